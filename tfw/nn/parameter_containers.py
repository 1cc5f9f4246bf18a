"""Parameters in a list or a dict, all registered: ParameterList, ParameterDict."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import Any, cast

from tfw.errors import ArgumentError, TfwError
from tfw.nn.containers import pairs, position
from tfw.nn.module import Module
from tfw.nn.parameter import Parameter
from tfw.tensor import Tensor


class NotCallableError(TfwError, RuntimeError):
    """A container without forward was called."""


def _as_parameter(value: Any) -> Any:
    return (
        Parameter(value)
        if isinstance(value, Tensor) and not isinstance(value, Parameter)
        else value
    )


def _line(key: object, value: object) -> str:
    """Return the repr of one element; its indentation by two is PyTorch's."""
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    size = "x".join(str(n) for n in value.shape)
    where = f" ({value.device})" if value.is_cuda else ""
    return f"  ({key}): {kind} containing: [{value.dtype!r} of size {size}{where}]"


def _refuse_call(module: Module) -> NotCallableError:
    return NotCallableError(
        "it holds parameters and computes nothing",
        op=type(module).__name__,
        remedy="use its elements in the forward() of the module that has it",
    )


class ParameterList(Module):
    """A list of parameters, all registered; tensors put in become Parameters.

    Other values may be in it too; they are kept and not registered.

    Shapes: none.
    Dtypes: the parameters'.
    Parameters: "0", "1", ...
    Errors: IndexError for a position out of range, TypeError for what cannot be iterated.
    Source: elementary.
    Example: `nn.ParameterList([tfw.zeros(2), tfw.ones(3)])`
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, idx: int | slice) -> Any:
        if isinstance(idx, slice):
            return type(self)(self[i] for i in range(*idx.indices(len(self))))
        return getattr(self, str(position(type(self).__name__, idx, len(self))))

    def __setitem__(self, idx: int, param: Any) -> None:
        name = str(position(type(self).__name__, idx, len(self)))
        setattr(self, name, _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __iadd__(self, parameters: Iterable[Any]) -> ParameterList:
        return self.extend(parameters)

    def append(self, value: Any) -> ParameterList:
        """Add a value at the end."""
        setattr(self, str(self._size), _as_parameter(value))
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add values at the end. TypeError if they are no iterable, or one tensor."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"expected an iterable of parameters, not {type(values).__name__}",
                op="ParameterList.extend",
                argument="values",
                value=values,
            )
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        """Return one line per element."""
        return "\n".join(_line(i, value) for i, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: there is nothing to compute."""
        raise _refuse_call(self)


class ParameterDict(Module):
    """A dict of parameters by name, all registered; tensors put in become Parameters.

    Other values may be in it too; they are kept and not registered. Names keep the order of
    insertion, those of a plain dict are sorted first, as PyTorch does.

    Shapes: none.
    Dtypes: the parameters'.
    Parameters: the names.
    Errors: TypeError for a name that is no string, KeyError for a name that is not there.
    Source: elementary.
    Example: `nn.ParameterDict({"scale": tfw.ones(2), "shift": tfw.zeros(2)})`
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"a name must be a string, not {type(key).__name__}",
                op="ParameterDict",
                argument="key",
                value=key,
            )
        setattr(self, key, _as_parameter(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __or__(self, other: Any) -> ParameterDict:
        both = self.copy()
        both.update(other)
        return both

    def __ror__(self, other: Any) -> ParameterDict:
        both = ParameterDict(other)
        both.update(self)
        return both

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def copy(self) -> ParameterDict:
        """Return a new ParameterDict with the same parameters."""
        return ParameterDict(self.items())

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of a name, which becomes `default` if the name is new."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Remove all."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Remove and return a value. KeyError if the name is not there."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the newest name and value. KeyError if it is empty."""
        if not self._keys:
            raise KeyError("popitem: the ParameterDict is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a name, or `default` if it is not there."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Return a new ParameterDict with these names, all with one value."""
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._keys.keys()

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield the names with their values."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterator[Any]:
        """Yield the values."""
        return (self[key] for key in self._keys)

    def update(self, parameters: Any) -> None:
        """Add what a mapping or an iterable of pairs holds, replacing equal names.

        Errors: TypeError if it is neither, ValueError for an element that is no pair.
        """
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            parameters = sorted(cast("Mapping[str, Any]", parameters).items())
        for key, value in pairs("ParameterDict.update", parameters):
            self[key] = value

    def extra_repr(self) -> str:
        """Return one line per element."""
        return "\n".join(_line(key, value) for key, value in self.items())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: there is nothing to compute."""
        raise _refuse_call(self)
