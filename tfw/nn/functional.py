"""Layers as functions: PyTorch's signatures over the ops in `tfw.ops`."""

from __future__ import annotations

import warnings
from typing import Any

from tfw.autograd import no_grad
from tfw.errors import NoKernelError
from tfw.ops import elementwise as _elementwise
from tfw.ops import softmax as _softmax
from tfw.ops.activation import gelu as gelu
from tfw.ops.attention import scaled_dot_product_attention as scaled_dot_product_attention
from tfw.ops.cross_entropy import cross_entropy as cross_entropy
from tfw.ops.dropout import dropout as dropout
from tfw.ops.elementwise import tanh as tanh
from tfw.ops.embedding import embedding_rows
from tfw.ops.loss import mse_loss as mse_loss
from tfw.ops.matmul import linear as linear
from tfw.ops.norm import layer_norm as layer_norm
from tfw.tensor import Tensor


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Rectifier: max(input, 0), in input's own memory if inplace.

    Shapes: input's.
    Dtypes: all but bool.
    Errors: RuntimeError for bool, or if inplace for a leaf that requires grad.
    Source: elementary.
    Example: `nn.functional.relu(tfw.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]`
    """
    return input.relu_() if inplace else _elementwise.relu(input)


def relu_(input: Tensor) -> Tensor:
    """Do as `relu` does, in input's own memory."""
    return input.relu_()


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Softmax along dim: exp(x - max) / sum(exp(x - max)); a row of -inf gives NaN.

    Shapes: input's.
    Dtypes: floating, or converted to `dtype` first; computed in float32 for half types.
    Errors: IndexError for a dim out of range, RuntimeError for an integer dtype.
    Source: Bridle 1990, Probabilistic Interpretation of Feedforward Classification Network Outputs.
    Example: `nn.functional.softmax(tfw.zeros(2), 0).tolist() == [0.5, 0.5]`
    """
    if dim is None:
        dim = _implicit_dim("softmax", input, _stacklevel)
    return _softmax.softmax(input, dim, dtype=dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Logarithm of softmax along dim: x - max - log(sum(exp(x - max))).

    Shapes: input's.
    Dtypes: floating, or converted to `dtype` first; computed in float32 for half types.
    Errors: IndexError for a dim out of range, RuntimeError for an integer dtype.
    Source: elementary.
    Example: `nn.functional.log_softmax(tfw.zeros(1), 0).tolist() == [0.0]`
    """
    if dim is None:
        dim = _implicit_dim("log_softmax", input, _stacklevel)
    return _softmax.log_softmax(input, dim, dtype=dtype)


def _implicit_dim(op: str, input: Tensor, stacklevel: int) -> int:
    """Choose the dim that PyTorch chose before it asked for one."""
    dim = 0 if input.ndim in (0, 1, 3) else 1
    warnings.warn(f"{op}: the choice of a dim is deprecated; pass dim={dim}", stacklevel=stacklevel)
    return dim


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of weight at the indices in input; row padding_idx gets no gradient.

    With max_norm, the rows in use whose norm is larger are first scaled down to it, in place.

    Shapes: input (*), weight (V, D), result (*, D).
    Dtypes: input int32 or int64; the result has weight's.
    Errors: IndexError for an index outside weight, ValueError for such a padding_idx,
        NotImplementedError for scale_grad_by_freq or sparse: the gradient is dense.
    Source: elementary.
    Example: `nn.functional.embedding(tfw.tensor([1]), tfw.eye(2)).tolist() == [[0.0, 1.0]]`
    """
    if scale_grad_by_freq or sparse:
        name = "sparse" if sparse else "scale_grad_by_freq"
        raise NoKernelError(
            f"{name}=True is not supported; the gradient is dense and unscaled",
            op="embedding",
            argument=name,
            value=True,
        )
    if max_norm is not None:
        _limit_norms(input, weight, max_norm, norm_type)
    return embedding_rows(input, weight, padding_idx)


def _limit_norms(input: Tensor, weight: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows of weight that input uses down to max_norm, in place."""
    with no_grad():
        indices = input.reshape(-1)
        rows = embedding_rows(indices, weight)
        if norm_type == float("inf"):
            norms = rows.abs().amax(1, keepdim=True)
        else:
            norms = rows.abs().pow(norm_type).sum(1, keepdim=True).pow(1 / norm_type)
        # As in PyTorch, the small number keeps the result below max_norm.
        scale = _elementwise.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
        # A row in use twice is written twice with the same values.
        weight[indices] = rows * scale
