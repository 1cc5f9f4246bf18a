"""Reverse-mode differentiation: backward, grad, modes, Function, gradcheck."""

from tfw.autograd.calls import backward as backward
from tfw.autograd.calls import grad as grad
from tfw.autograd.function import Function as Function
from tfw.autograd.gradcheck import gradcheck as gradcheck
from tfw.autograd.gradcheck import gradgradcheck as gradgradcheck
from tfw.autograd.methods import attach as _attach
from tfw.autograd.modes import detect_anomaly as detect_anomaly
from tfw.autograd.modes import enable_grad as enable_grad
from tfw.autograd.modes import inference_mode as inference_mode
from tfw.autograd.modes import no_grad as no_grad
from tfw.autograd.modes import set_detect_anomaly as set_detect_anomaly
from tfw.autograd.modes import set_grad_enabled as set_grad_enabled
from tfw.tensor import Tensor as _Tensor

Variable = _Tensor  # PyTorch's old name
_attach()
