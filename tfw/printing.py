"""How a tensor prints: PyTorch's format, reading only the values that are shown."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfw import dtypes
from tfw.errors import ValueRangeError

if TYPE_CHECKING:
    from tfw.tensor import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class _Options:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES: dict[str, dict[str, float]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}
_options = _Options()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors print, from now on and in all threads.

    Args:
        precision: digits after the point (4 at the start).
        threshold: elements above which only the edges are shown (1000).
        edgeitems: elements shown at either end of a dimension (3).
        linewidth: characters per line (80).
        profile: "default", "short" or "full": values for all four, which the others override.
        sci_mode: whether to write 1.0000e+00; None, also when left out, decides per tensor.

    Errors: ValueError for an unknown profile or a negative number.
    Example: ``tfw.set_printoptions(precision=2)``

    """
    if profile is not None and profile not in _PROFILES:
        raise ValueRangeError(
            f"profile={profile!r} is unknown",
            op="set_printoptions",
            argument="profile",
            value=profile,
            rule=", ".join(_PROFILES),
        )
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    changes = _PROFILES.get(profile or "", {}) | {k: v for k, v in given.items() if v is not None}
    for name, value in changes.items():
        if value < 0:
            raise ValueRangeError(
                f"{name}={value} is negative",
                op="set_printoptions",
                argument=name,
                value=value,
                rule=f"{name} >= 0",
            )
    for name, value in changes.items():
        setattr(_options, name, value)
    _options.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """Return the options in force, fit for `set_printoptions(**options)`."""
    return asdict(_options)


@contextlib.contextmanager
def printoptions(**options: Any) -> Generator[None]:
    """Use the given options, those of `set_printoptions`, inside a `with` block."""
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


def tensor_string(tensor: Tensor) -> str:
    """Return what ``repr(tensor)`` shows.

    A user's subclass prints under its own name, tfw's own (Parameter) as ``tensor(...)``.
    """
    cls = type(tensor)
    prefix = "tensor(" if cls.__module__.startswith("tfw.") else f"{cls.__name__}("
    indent = len(prefix)
    body, suffixes = _contents(tensor, indent)
    grad_fn = tensor.grad_fn
    if grad_fn is not None:
        suffixes.append(f"grad_fn=<{grad_fn.name()}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    return _with_suffixes(prefix + body, suffixes, indent)


def _contents(tensor: Tensor, indent: int) -> tuple[str, list[str]]:
    """Return the bracketed values, and what must be said of device, size and dtype."""
    d, n_elements = tensor.dtype, tensor.numel()
    size, dtype = f"size={tuple(tensor.shape)}", f"dtype={d!r}"
    is_default = d is dtypes.get_default_dtype()
    if tensor.is_meta:
        return "...", [f"device='{tensor.device}'", size] + [dtype] * (not is_default)
    suffixes: list[str] = []
    if tensor.device.type != "cpu":
        suffixes.append(f"device='{tensor.device}'")
    if not n_elements:
        # No element shows the type, so int64 and bool are named too.
        return "[]", suffixes + [size] * (tensor.ndim != 1) + [dtype] * (not is_default)
    if not _options.edgeitems:
        suffixes.append(size)
    if not (is_default or d in (dtypes.int64, dtypes.bool_, dtypes.of_scalar(1j))):
        suffixes.append(dtype)
    summarize = n_elements > _options.threshold
    if summarize and not _options.edgeitems and tensor.ndim:
        return "[...]", suffixes
    values = _read(tensor, summarize)
    texts, width = _format_complex(values) if d.is_complex else _format(values)
    cut = [summarize and n > 2 * _options.edgeitems for n in tensor.shape]
    return _nest(texts, list(values.shape), cut, width, indent), suffixes


def _read(tensor: Tensor, summarize: bool) -> Array:
    """Return the values to show as an ndarray, which leaves out the middle of long dims.

    One strided view covers both ends of every long dim, so a device copies only what is shown.
    """
    payload, backend, edge = tensor._a, tensor._kind.backend, _options.edgeitems
    if summarize:
        shape: list[int] = []
        strides: list[int] = []
        for n, step in zip(tensor.shape, tensor.stride(), strict=True):
            if n > 2 * edge:
                shape += [2, edge]
                strides += [(n - edge) * step, step]
            else:
                shape.append(n)
                strides.append(step)
        payload = backend.view(payload, tuple(shape), tuple(strides), 0)
        shown = [2 * edge if n > 2 * edge else n for n in tensor.shape]
    else:
        shown = list(tensor.shape)
    values = np.asarray(backend.to_host(payload)).reshape(shown)
    if tensor.dtype in dtypes.FLOAT8:
        return values.astype(np.float32)
    return values


def _format(values: Array) -> tuple[list[str], int]:
    """Return the text of each element in row-major order, all padded to the width returned."""
    numbers = np.ravel(values)
    if numbers.dtype.kind in "biu":
        texts = [str(x) for x in numbers.tolist()]
        width = max(map(len, texts))
    else:
        numbers = numbers.astype(np.float64)
        with np.errstate(all="ignore"):
            # Zeros and non-finite values decide neither the notation nor the width.
            counted = np.isfinite(numbers) & (numbers != 0)
            write = _notation(numbers[counted])
        texts = [write(x) for x in numbers.tolist()]
        width = max((len(t) for t, c in zip(texts, counted.tolist(), strict=True) if c), default=1)
    return [t.rjust(width) for t in texts], width


def _notation(numbers: Array) -> Callable[[float], str]:
    """Return what writes one number, chosen as PyTorch does by the nonzero finite `numbers`."""
    scientific = False
    if numbers.size:
        sizes = np.abs(numbers)
        low, high = sizes.min(), sizes.max()
        scientific = _options.sci_mode
        if scientific is None:
            scientific = bool(high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4)
    if scientific:
        return f"{{:.{_options.precision}e}}".format
    if np.all(numbers == np.ceil(numbers)):
        return _write_integer
    return f"{{:.{_options.precision}f}}".format


def _write_integer(number: float) -> str:
    # The point tells a float from an int.
    return f"{number:.0f}." if math.isfinite(number) else f"{number}"


def _format_complex(values: Array) -> tuple[list[str], int]:
    real, real_width = _format(np.real(values))
    imag, imag_width = _format(np.imag(values))
    texts: list[str] = []
    for r, padded in zip(real, imag, strict=True):
        i = padded.lstrip() + "j"
        texts.append(r + i if i[0] in "+-" else f"{r}+{i}")
    # Room for both numbers and the j; PyTorch does not count the sign between them.
    return texts, real_width + imag_width + 1


def _nest(texts: list[str], shape: list[int], cut: list[bool], width: int, indent: int) -> str:
    """Return nested brackets around `texts`; `cut` says which dims lack their middle."""
    if not shape:
        return texts[0]
    n, rest = shape[0], math.prod(shape[1:])
    if len(shape) == 1:
        items = texts
        if cut[0]:
            items = [*texts[: n // 2], " ...", *texts[n // 2 :]]
        per_line = max(1, (_options.linewidth - indent) // (width + 2))
        lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    parts = [
        _nest(texts[i * rest : (i + 1) * rest], shape[1:], cut[1:], width, indent + 1)
        for i in range(n)
    ]
    if cut[0]:
        parts.insert(n // 2, "...")
    return "[" + ("," + "\n" * (len(shape) - 1) + " " * (indent + 1)).join(parts) + "]"


def _with_suffixes(text: str, suffixes: list[str], indent: int) -> str:
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if column + len(suffix) + 2 > _options.linewidth:
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"
