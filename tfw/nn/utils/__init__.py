"""Helpers for parameters: clip gradients, turn parameters into one vector and back."""

from tfw.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from tfw.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from tfw.nn.utils.clip_grad import get_total_norm as get_total_norm
from tfw.nn.utils.convert_parameters import parameters_to_vector as parameters_to_vector
from tfw.nn.utils.convert_parameters import vector_to_parameters as vector_to_parameters
