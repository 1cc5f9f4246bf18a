"""PyTorch's function for each op, and tensors of both on the same values and strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.nn import functional

import tfw
from tfw.tensor import Tensor

TORCH_DTYPES = {
    d: getattr(torch, d.name)
    for d in (
        *(tfw.bool, tfw.uint8, tfw.int8, tfw.int16, tfw.int32, tfw.int64, tfw.float16),
        *(tfw.bfloat16, tfw.float32, tfw.float64, tfw.complex64, tfw.complex128),
    )
}
TFW_DTYPES = {t: d for d, t in TORCH_DTYPES.items()}


def to_torch(x: Any) -> Any:
    """Return a torch tensor on the memory of an ndarray or a tfw tensor; else the value."""
    if isinstance(x, Tensor):
        x = x.detach()._a
    if isinstance(x, (list, tuple)):
        return type(x)(to_torch(e) for e in x)
    if isinstance(x, tfw.dtype):
        return TORCH_DTYPES[x]
    if not isinstance(x, np.ndarray):
        return x
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def values(x: torch.Tensor) -> Any:
    """Return a torch tensor's values: floats in float64, others as they are."""
    x = x.detach()
    return (x.double() if x.is_floating_point() else x).numpy()


def _take_at(x: Any, indices: Any, dims: Any) -> Any:
    rest = [d for d in range(x.ndim) if d not in dims]
    return x.permute([*dims, *rest])[tuple(indices)]


def _put_at(x: Any, v: Any, indices: Any, dims: Any, accumulate: bool) -> Any:
    result = x.clone()
    rest = [d for d in range(x.ndim) if d not in dims]
    result.permute([*dims, *rest]).index_put_(tuple(indices), v, accumulate)
    return result


def _cross_entropy(x: Any, t: Any, w: Any, ignore: int, smoothing: float, reduction: str) -> Any:
    return functional.cross_entropy(
        x, t, w, ignore_index=ignore, label_smoothing=smoothing, reduction=reduction
    )


def _attention(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, *_: Any) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=scale)


def _layer_norm(x: Any, w: Any, b: Any, shape: Any, eps: float) -> Any:
    return functional.layer_norm(x, shape, w, b, eps)


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch tells reductions of everything apart by leaving out dim."""

    def call(x: Any, dim: Any, keepdim: bool) -> Any:
        return function(x) if dim is None and not keepdim else function(x, dim, keepdim)

    return call


# (inputs, attrs) -> result; ops that are not here are functions of torch with the same arguments.
TWINS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, alpha: torch.add(a, b, alpha=alpha),
    "sub": lambda a, b, alpha: torch.sub(a, b, alpha=alpha),
    "sum": lambda x, dim, keepdim, dtype: torch.sum(x, dim, keepdim, dtype=dtype),
    "mean": lambda x, dim, keepdim, dtype: torch.mean(x, dim, keepdim, dtype=dtype),
    "any": _reduction(torch.any),
    "all": _reduction(torch.all),
    "view": lambda x, shape: x.view(shape),
    "expand": lambda x, size: x.expand(size),
    "squeeze": lambda x, dim: x.squeeze() if dim is None else x.squeeze(dim),
    "clone": lambda x, memory_format: x.clone(),
    "copy": lambda x, src: x.clone().copy_(src),
    "to_dtype": lambda x, dtype: x.to(dtype),
    "filled_like": lambda x, value: x.clone().fill_(value),
    "zero_of": lambda x: torch.zeros((), dtype=x.dtype),
    "gelu": lambda x, approximate: functional.gelu(x, approximate=approximate),
    "gelu_grad": lambda g, x, approximate: torch.ops.aten.gelu_backward(
        g, x, approximate=approximate
    ),
    "linear": functional.linear,
    "softmax_along": torch.softmax,
    "log_softmax_along": torch.log_softmax,
    "softmax_grad": lambda g, y, dim: torch._softmax_backward_data(g, y, dim, y.dtype),
    "log_softmax_grad": lambda g, y, dim: torch._log_softmax_backward_data(g, y, dim, y.dtype),
    "max_along": torch.max,
    "min_along": torch.min,
    "topk_along": torch.topk,
    "nonzero_rows": torch.nonzero,
    "slice_view": lambda x, index: x[index],
    "take_at": _take_at,
    "put_at": _put_at,
    "embedding_rows": lambda i, w, padding: functional.embedding(i, w, padding),
    "cross_entropy_rows": _cross_entropy,
    "attention_stats": _attention,
    "layer_norm_stats": _layer_norm,
    "relu_grad": lambda g, y: torch.ops.aten.threshold_backward(g, y, 0),
    "sum_to_size": lambda x, size: x.sum_to_size(size),
    "masked_fill": torch.masked_fill,
    "pow": torch.pow,
    "neg": torch.neg,
}

# PyTorch has no function with the same arguments; the walk holds them against references.
WITHOUT = frozenset(
    (
        *("adam_step_", "sgd_step_", "attention_grad", "cross_entropy_grad", "layer_norm_grad"),
        *("dropout_at", "embedding_grad", "integers_at", "normal_at", "uniform_at"),
        *("to_device", "view_scatter"),
    )
)


def twin(name: str) -> Callable[..., Any]:
    """Return PyTorch's function for an op, taking the op's inputs, then its attributes."""
    return TWINS.get(name) or getattr(torch, name)


def outputs_of(name: str, result: Any) -> list[Any]:
    """Return the results that both have: PyTorch keeps statistics to itself."""
    found = list(result) if isinstance(result, (tuple, list)) else [result]
    if name in ("cross_entropy_rows", "attention_stats", "layer_norm_stats"):
        return found[:1]
    return found
