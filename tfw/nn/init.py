"""Initial values of parameters, written in place without being recorded for backward.

Sources: Glorot and Bengio 2010, "Understanding the difficulty of training deep feedforward neural
networks" (xavier); He et al. 2015, "Delving deep into rectifiers" (kaiming); Saxe et al. 2013,
"Exact solutions to the nonlinear dynamics of learning in deep linear neural networks" (orthogonal);
Martens 2010, "Deep learning via Hessian-free optimization" (sparse).
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal

import numpy as np

from tfw.autograd import no_grad
from tfw.dtypes import accumulation
from tfw.errors import ShapeError, ValueRangeError
from tfw.ops.compare import lt, where
from tfw.ops.creation import empty_like
from tfw.ops.data import from_numpy
from tfw.ops.elementwise import log, maximum, minimum, sqrt
from tfw.tensor import Tensor

Mode = Literal["fan_in", "fan_out"]

_GAINS = {
    **dict.fromkeys(("linear", "sigmoid"), 1.0),
    **dict.fromkeys((f"conv{n}d" for n in (1, 2, 3)), 1.0),
    **dict.fromkeys((f"conv_transpose{n}d" for n in (1, 2, 3)), 1.0),
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,  # keeps the variance that selu's own derivation assumes
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor by which weights before a nonlinearity must grow to keep the variance.

    1 for linear, conv* and sigmoid, 5/3 for tanh, sqrt(2) for relu, 3/4 for selu,
    sqrt(2 / (1 + param^2)) for leaky_relu (param 0.01 by default).

    Errors: ValueError for another nonlinearity, or a negative slope that is no number.
    Example: `nn.init.calculate_gain("leaky_relu", 0.2)`
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueRangeError(
                f"negative slope {slope!r} is no number",
                op="calculate_gain",
                argument="param",
                value=slope,
            )
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueRangeError(
            f"unknown nonlinearity {nonlinearity!r}",
            op="calculate_gain",
            argument="nonlinearity",
            value=nonlinearity,
            rule=", ".join((*_GAINS, "leaky_relu")),
        )
    return _GAINS[nonlinearity]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with values drawn uniformly from [a, b)."""
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fill with values drawn from the normal distribution N(mean, std^2)."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Fill with values of N(mean, std^2) that lie in [a, b].

    By the inverse of the distribution function, mean + std * sqrt(2) * erfinv(u) with u uniform.
    u is kept off -1 and 1, where PyTorch's version returns the bound itself now and then however
    many standard deviations it is away.
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            f"trunc_normal_: mean={mean} is more than two std={std} from [{a}, {b}]; "
            "the values may not follow the distribution",
            stacklevel=2,
        )
    spread = std * math.sqrt(2.0)
    limit = 1.0 - 2.0**-23
    low, high = (min(max(math.erf((bound - mean) / spread), -limit), limit) for bound in (a, b))
    with no_grad():
        # Half types have too few digits near 1: draw in float32.
        u = empty_like(tensor, dtype=accumulation(tensor.dtype))
        u.uniform_(low, high, generator=generator)
        return tensor.copy_(minimum(maximum(_erfinv(u) * spread + mean, a), b))


# Source: Giles 2012, "Approximating the erfinv function", GPU Computing Gems; relative error 3e-7.
_CENTRAL = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_TAIL = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


def _erfinv(x: Tensor) -> Tensor:
    """Inverse error function inside (-1, 1): x times one of two polynomials in -log(1 - x^2)."""
    w = -log((1.0 - x) * (1.0 + x))
    central, tail = w - 2.5, sqrt(w) - 3.0
    p, q = central * 0.0 + _CENTRAL[0], tail * 0.0 + _TAIL[0]
    for c, t in zip(_CENTRAL[1:], _TAIL[1:], strict=True):
        p, q = p * central + c, q * tail + t
    return where(lt(w, 5.0), p, q) * x


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one value."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with 1."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with 0."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Make an (m, n) tensor the identity: 1 on the diagonal, 0 elsewhere. ValueError unless 2-d."""
    _check_ndim("eye_", tensor, (2,))
    return _write(tensor, np.eye(tensor.shape[0], tensor.shape[1]))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Make a convolution's weight (out, in, *kernel) pass its input channels through.

    Each group keeps as many channels as both sides have, at the kernel's centre.

    Errors: ValueError unless it has 3 to 5 dims and `groups` divides the output channels.
    """
    _check_ndim("dirac_", tensor, (3, 4, 5))
    n_out, n_in, *kernel = tensor.shape
    if groups < 1 or n_out % groups:
        raise ValueRangeError(
            f"groups={groups} does not divide {n_out} output channels",
            op="dirac_",
            argument="groups",
            value=groups,
        )
    values = np.zeros(tensor.shape)
    centre = tuple(n // 2 for n in kernel)
    per_group = n_out // groups
    for group in range(groups):
        for channel in range(min(per_group, n_in)):
            values[(group * per_group + channel, channel, *centre)] = 1.0
    return _write(tensor, values)


def _fans(op: str, tensor: Tensor) -> tuple[int, int]:
    """Return how many inputs one output has and how many outputs one input has."""
    if tensor.ndim < 2:
        raise ValueRangeError(
            f"a tensor of shape {tuple(tensor.shape)} has no fan in and fan out",
            op=op,
            argument="tensor",
            value=tuple(tensor.shape),
            rule="at least two dims: (out, in, *kernel)",
        )
    n_out, n_in, *kernel = tensor.shape
    field = math.prod(kernel)
    return n_in * field, n_out * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill from U(-a, a), a = gain * sqrt(6 / (fan_in + fan_out)). ValueError below two dims."""
    fan_in, fan_out = _fans("xavier_uniform_", tensor)
    bound = gain * math.sqrt(6.0 / float(fan_in + fan_out))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill from N(0, s^2), s = gain * sqrt(2 / (fan_in + fan_out)). ValueError below two dims."""
    fan_in, fan_out = _fans("xavier_normal_", tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(fan_in + fan_out)), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: Mode = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Fill from U(-b, b) with b = gain * sqrt(3 / fan), gain that of the nonlinearity with slope a.

    Errors: ValueError below two dims or for another mode or nonlinearity.
    """
    if _is_empty("kaiming_uniform_", tensor):
        return tensor
    std = _kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity)
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: Mode = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Fill from N(0, s^2) with s = gain / sqrt(fan), gain that of the nonlinearity with slope a.

    Errors: ValueError below two dims or for another mode or nonlinearity.
    """
    if _is_empty("kaiming_normal_", tensor):
        return tensor
    std = _kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity)
    return normal_(tensor, 0.0, std, generator)


def _is_empty(op: str, tensor: Tensor) -> bool:
    if tensor.numel():
        return False
    warnings.warn(f"{op}: a tensor without elements has nothing to initialise", stacklevel=3)
    return True


def _kaiming_std(op: str, tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    wanted = mode.lower()
    if wanted not in ("fan_in", "fan_out"):
        raise ValueRangeError(
            f"mode={mode!r}", op=op, argument="mode", value=mode, rule="'fan_in' or 'fan_out'"
        )
    fan = _fans(op, tensor)[("fan_in", "fan_out").index(wanted)]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Make the rows of (rows, the rest) orthonormal, or the columns if there are more rows.

    By QR of a normal matrix, its signs fixed so that all orthogonal matrices are equally likely;
    the QR runs in NumPy on the host, and waits for a GPU.

    Errors: ValueError below two dims.
    """
    if tensor.ndim < 2:
        _check_ndim("orthogonal_", tensor, (2, 3, 4, 5))
    if not tensor.numel():
        return tensor
    normal_(tensor, 0.0, 1.0, generator)
    rows = tensor.shape[0]
    matrix = tensor.detach().cpu().double().numpy().reshape(rows, -1)
    wide = rows < matrix.shape[1]
    q, r = np.linalg.qr(matrix.T if wide else matrix)
    q = q * np.sign(np.diag(r))
    return _write(tensor, gain * (q.T if wide else q).reshape(tensor.shape))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fill an (m, n) tensor from N(0, std^2), then set ceil(sparsity * m) of each column to 0.

    Which ones is drawn at random; the drawing is sorted in NumPy on the host.

    Errors: ValueError unless it has two dims.
    """
    _check_ndim("sparse_", tensor, (2,))
    uniform_(tensor, 0.0, 1.0, generator)
    n_zeros = math.ceil(sparsity * tensor.shape[0])
    order = np.argsort(tensor.detach().cpu().float().numpy(), axis=0, kind="stable")
    keep = np.ones(tensor.shape)
    np.put_along_axis(keep, order[:n_zeros], 0.0, axis=0)
    normal_(tensor, 0.0, std, generator)
    with no_grad():
        return tensor.mul_(_like(tensor, keep))


def _check_ndim(op: str, tensor: Tensor, allowed: tuple[int, ...]) -> None:
    if tensor.ndim not in allowed:
        raise NdimError(
            f"the tensor has shape {tuple(tensor.shape)}",
            op=op,
            argument="tensor",
            value=tuple(tensor.shape),
            rule=" or ".join(str(n) for n in allowed) + " dims",
        )


class NdimError(ShapeError, ValueError):
    """A tensor whose number of dims the initialiser does not take."""


def _like(tensor: Tensor, values: Any) -> Tensor:
    return from_numpy(np.ascontiguousarray(values)).to(dtype=tensor.dtype, device=tensor.device)


def _write(tensor: Tensor, values: Any) -> Tensor:
    with no_grad():
        return tensor.copy_(_like(tensor, values))
