"""Modules made of modules: Sequential, ModuleList, ModuleDict."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import chain, groupby
from typing import Any, TypeVar, cast, overload

from tfw.errors import ArgumentError, OutOfRangeError, ValueRangeError
from tfw.nn.module import Module, block_repr

S = TypeVar("S", bound="Sequence")


def position(op: str, index: Any, size: int) -> int:
    """Return an index counted from the front. IndexError if it is out of range."""
    at = operator.index(index)
    if not -size <= at < size:
        raise OutOfRangeError(
            f"index {at} is out of range for {size} elements",
            op=op,
            argument="index",
            value=at,
            rule=f"{-size} <= index < {size}" if size else "none: it is empty",
        )
    return at % size


def pairs(op: str, items: Any) -> Iterator[tuple[str, Any]]:
    """Yield the (key, value) pairs of a mapping or of an iterable of pairs.

    Errors: TypeError if it is no iterable or an element is none, ValueError if one is no pair.
    """
    if not isinstance(items, Iterable):
        raise ArgumentError(
            f"expected a mapping or an iterable of pairs, not {type(items).__name__}",
            op=op,
            argument="items",
            value=items,
        )
    if isinstance(items, Mapping) or hasattr(items, "items"):  # pyright: ignore[reportUnknownArgumentType]
        yield from cast("Mapping[str, Any]", items).items()
        return
    for number, pair in enumerate(cast("Iterable[Any]", items)):
        if not isinstance(pair, Iterable):
            raise ArgumentError(
                f"element {number} is a {type(pair).__name__}, not a pair of key and value",
                op=op,
                argument="items",
                value=pair,
            )
        entry = tuple(cast("Iterable[Any]", pair))
        if len(entry) != 2:
            raise ValueRangeError(
                f"element {number} has length {len(entry)}",
                op=op,
                argument="items",
                value=entry,
                rule="pairs of key and value",
            )
        yield entry


class Sequence(Module):
    """What Sequential and ModuleList share: modules named "0", "1", ... and list methods."""

    _modules: dict[str, Any]

    @overload
    def __getitem__(self: S, idx: slice) -> S: ...
    @overload
    def __getitem__(self, idx: int) -> Any: ...
    def __getitem__(self, idx: int | slice) -> Any:
        modules = list(self._modules.values())
        if isinstance(idx, slice):
            return self._of(list(self._modules.items())[idx])
        return modules[position(type(self).__name__, idx, len(modules))]

    def _of(self, items: list[tuple[str, Module]]) -> Any:
        """Return a new container of this class with some of the modules."""
        return type(self)([module for _, module in items])  # pyright: ignore[reportCallIssue]

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self._name(idx), module)

    def __delitem__(self, idx: int | slice) -> None:
        names = list(self._modules)
        for name in names[idx] if isinstance(idx, slice) else [self._name(idx)]:
            delattr(self, name)
        self._renumber(list(self._modules.values()))

    def _name(self, idx: int) -> str:
        return list(self._modules)[position(type(self).__name__, idx, len(self._modules))]

    def _renumber(self, modules: list[Any]) -> None:
        self._modules.clear()
        self._modules.update((str(i), module) for i, module in enumerate(modules))

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def append(self: S, module: Module | None) -> S:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self: S, modules: Iterable[Module]) -> S:
        """Add modules at the end. TypeError if they are no iterable."""
        if not isinstance(modules, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"expected an iterable of modules, not {type(modules).__name__}",
                op=f"{type(self).__name__}.extend",
                argument="modules",
                value=modules,
            )
        for module in list(modules):  # a copy, so that a list can be extended by itself
            self.append(module)
        return self

    def insert(self: S, index: int, module: Module) -> S:
        """Put a module before position `index`; negative counts from the end.

        Errors: IndexError if index is past either end, TypeError if it is no Module.
        """
        size = len(self)
        if not -size <= index <= size:
            raise OutOfRangeError(
                f"index {index} is out of range for {size} elements",
                op=f"{type(self).__name__}.insert",
                argument="index",
                value=index,
                rule=f"{-size} <= index <= {size}",
            )
        modules = list(self._modules.values())
        self.append(module)  # checks it
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def pop(self, key: int | slice) -> Any:
        """Remove and return the module at a position, or the container of a slice's."""
        removed = self[key]
        del self[key]
        return removed


class Sequential(Sequence):
    """The modules one after another: forward(x) = last(... second(first(x))).

    Give modules, or one OrderedDict of them by name.

    Shapes: what the first takes to what the last returns.
    Dtypes: the modules'.
    Parameters: the modules'.
    Errors: TypeError for an argument that is no Module.
    Source: elementary.
    Example: `nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))`
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in cast("OrderedDict[str, Module]", args[0]).items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input: Any) -> Any:
        """Pass the input through all modules in order."""
        for module in self._modules.values():
            input = module(input)
        return input

    def _of(self, items: list[tuple[str, Module]]) -> Any:
        return type(self)(OrderedDict(items))

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _not_sequential(other)
        return Sequential(*self, *other)

    def __iadd__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _not_sequential(other)
        return self.extend(other)

    def __mul__(self, other: int) -> Sequential:
        return Sequential(*list(self) * _factor(other))

    def __rmul__(self, other: int) -> Sequential:
        return self * other

    def __imul__(self, other: int) -> Sequential:
        return self.extend(list(self) * (_factor(other) - 1))


def _not_sequential(other: object) -> ValueRangeError:
    return ValueRangeError(
        f"a {type(other).__name__} cannot be added",
        op="Sequential",
        argument="other",
        value=other,
        rule="a Sequential",
    )


def _factor(value: int) -> int:
    if not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            f"cannot be multiplied by a {type(value).__name__}",
            op="Sequential",
            argument="other",
            value=value,
        )
    if value <= 0:
        raise ValueRangeError(
            f"cannot be repeated {value} times",
            op="Sequential",
            argument="other",
            value=value,
            rule="a positive integer",
        )
    return value


class ModuleList(Sequence):
    """A list of modules, all registered; it has no forward of its own.

    Shapes: none.
    Dtypes: the modules'.
    Parameters: the modules'.
    Errors: TypeError for an element that is no Module.
    Source: elementary.
    Example: `nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])`
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(chain(self, other))

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __repr__(self) -> str:
        items: list[str] = []
        start = 0
        for text, equal in groupby(repr(module) for module in self):
            n = len(list(equal))
            items.append(
                f"({start}): {text}" if n == 1 else f"({start}-{start + n - 1}): {n} x {text}"
            )
            start += n
        return block_repr(self._get_name(), items)


class ModuleDict(Module):
    """A dict of modules by name, all registered; it has no forward of its own.

    Shapes: none.
    Dtypes: the modules'.
    Parameters: the modules'.
    Errors: TypeError for a value that is no Module, KeyError for a name with a dot.
    Source: elementary.
    Example: `nn.ModuleDict({"up": nn.Linear(4, 16), "down": nn.Linear(16, 4)})`
    """

    _modules: dict[str, Any]

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module | None) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Remove and return a module. KeyError if there is none of this name."""
        return self._modules.pop(key)

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._modules.keys()

    def items(self) -> ItemsView[str, Any]:
        """Return the names with their modules."""
        return self._modules.items()

    def values(self) -> ValuesView[Any]:
        """Return the modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add the modules of a mapping or of an iterable of pairs, replacing equal names.

        Errors: TypeError if it is neither, ValueError for an element that is no pair.
        """
        for name, module in pairs("ModuleDict.update", modules):
            self[name] = module
