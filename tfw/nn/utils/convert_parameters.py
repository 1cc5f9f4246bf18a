"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from tfw.errors import ArgumentError, ShapeError
from tfw.ops.join import cat
from tfw.ops.movement import reshape
from tfw.shapes import device
from tfw.tensor import Tensor


class MixedDevicesError(ArgumentError):
    """Parameters on several devices, which no one vector can hold."""


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Return all parameters' elements in one vector, in order; gradients flow back to them.

    Shapes: any; the result is (n,).
    Dtypes: promoted to a common one.
    Errors: TypeError if they are on different devices.
    Source: elementary.
    Example: `nn.utils.parameters_to_vector(nn.Linear(2, 3).parameters()).shape == (9,)`
    """
    listed = list(parameters)
    _check_devices("parameters_to_vector", listed)
    return cat([reshape(p, (-1,)) for p in listed])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make each parameter show its part of a vector, in order; they share its memory.

    Shapes: vec (n,) with n the number of all elements (PyTorch ignores surplus ones).
    Dtypes: the parameters take vec's.
    Errors: TypeError if vec is no Tensor or the parameters are on different devices, RuntimeError
        if the number of elements differs; then no parameter was changed.
    Source: elementary.
    Example: `nn.utils.vector_to_parameters(tfw.zeros(9), nn.Linear(2, 3).parameters())`
    """
    if not isinstance(vec, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            f"vec must be a Tensor, not {type(vec).__name__}",
            op="vector_to_parameters",
            argument="vec",
            value=vec,
        )
    listed = list(parameters)
    _check_devices("vector_to_parameters", listed)
    n_elements = sum(p.numel() for p in listed)
    if tuple(vec.shape) != (n_elements,):
        raise ShapeError(
            f"vec has shape {tuple(vec.shape)}",
            op="vector_to_parameters",
            argument="vec",
            value=tuple(vec.shape),
            rule=f"({n_elements},), all elements of the parameters",
        )
    at = 0
    for parameter in listed:
        part = vec.detach()[at : at + parameter.numel()]
        parameter.data = reshape(part, tuple(parameter.shape))
        at += parameter.numel()


def _check_devices(op: str, parameters: list[Tensor]) -> None:
    devices: list[device] = [p.device for p in parameters]
    for d in devices:
        if d != devices[0]:
            raise MixedDevicesError(
                f"parameters are on {devices[0]} and on {d}",
                op=op,
                argument="parameters",
                value=d,
                rule="all on one device",
            )
