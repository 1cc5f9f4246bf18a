"""Clip gradients: by their total norm, or element by element."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator

from tfw.autograd import no_grad
from tfw.dtypes import accumulation
from tfw.errors import TfwError
from tfw.ops.compare import ne
from tfw.ops.creation import zeros
from tfw.ops.elementwise import maximum, minimum, sqrt
from tfw.ops.join import stack
from tfw.ops.matmul import matmul
from tfw.tensor import Tensor

Tensors = Tensor | Iterable[Tensor]


class NonFiniteError(TfwError, RuntimeError):
    """A gradient norm that is infinite or NaN."""


def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients by min(1, max_norm / (norm + 1e-6)), in place; return the norm before.

    The norm is that of the gradients' norms, which is that of one vector of all elements (but for
    order 0, where it counts the gradients that are not zero). Nothing waits for a GPU
    unless error_if_nonfinite. `foreach` is accepted and changes nothing.

    Shapes: any; the result is ().
    Dtypes: floating; the norm is float32 for half types (PyTorch rounds it to them).
    Errors: RuntimeError if error_if_nonfinite and the norm is infinite or NaN.
    Source: Pascanu, Mikolov and Bengio 2013, On the difficulty of training recurrent neural
        networks.
    Example: `norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)`
    """
    parameters = _listed(parameters)
    gradients = list(_gradients(parameters))
    total = get_total_norm(gradients, norm_type, error_if_nonfinite)
    with no_grad():
        factor = minimum(max_norm / (total + 1e-6), 1.0)
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.device))
    return total


def get_total_norm(
    tensors: Tensors,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Return the norm of tensors taken together as one vector: (sum |x|^p)^(1/p), max |x| for inf.

    `foreach` is accepted and changes nothing.

    Shapes: any; the result is ().
    Dtypes: floating; float32 for half types.
    Errors: RuntimeError if error_if_nonfinite and the norm is infinite or NaN.
    Source: elementary.
    Example: `nn.utils.get_total_norm([tfw.full((1,), 3.0), tfw.full((1,), 4.0)]).item() == 5.0`
    """
    norm_type = float(norm_type)
    with no_grad():
        norms = [_norm(x, norm_type) for x in _listed(tensors)]
        if not norms:
            return zeros(())
        total = _norm(stack([n.to(norms[0].device) for n in norms]), norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise NonFiniteError(
            f"the norm of order {norm_type} is {total.item()}",
            op="get_total_norm",
            argument="tensors",
            value=total.item(),
            remedy="error_if_nonfinite=False scales by it anyway",
        )
    return total


def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Clamp each element of all gradients to [-clip_value, clip_value], in place.

    `foreach` is accepted and changes nothing.

    Shapes: any.
    Dtypes: floating.
    Errors: none.
    Source: elementary.
    Example: `nn.utils.clip_grad_value_(model.parameters(), 0.5)`
    """
    limit = float(clip_value)
    with no_grad():
        for gradient in _gradients(_listed(parameters)):
            gradient.copy_(minimum(maximum(gradient, -limit), limit))


def _listed(tensors: Tensors) -> list[Tensor]:
    if isinstance(tensors, Tensor):
        return [tensors]
    listed = list(tensors)
    if not listed and isinstance(tensors, Iterator):
        warnings.warn("nothing to clip: the iterator was empty or used up", stacklevel=3)
    return listed


def _gradients(parameters: list[Tensor]) -> Iterator[Tensor]:
    return (p.grad for p in parameters if p.grad is not None)


def _norm(x: Tensor, p: float) -> Tensor:
    """Return the p-norm of all elements, in float32 at least."""
    flat = x.detach().to(dtype=accumulation(x.dtype)).reshape(-1)
    if p == 2.0:
        return sqrt(matmul(flat, flat))  # one pass over memory and no temporary
    size = flat.abs()
    if math.isinf(p):
        return size.amax() if p > 0 else size.amin()
    if p == 0.0:
        return ne(size, 0.0).to(dtype=size.dtype).sum()
    return size.pow(p).sum().pow(1.0 / p)
