"""What a module is made of: parameters, buffers and submodules, as attributes and as iterators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from tfw.errors import ArgumentError, TfwError, ValueRangeError
from tfw.nn.parameter import Buffer, Parameter
from tfw.tensor import Tensor

if TYPE_CHECKING:
    from tfw.nn.module import Module


class MemberError(TfwError, AttributeError):
    """A member that is not there, or that is assigned before `Module.__init__` ran."""


class MemberNameError(TfwError, KeyError):
    """A name that no member can have, or that is taken."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would print its repr


class NonLeafError(TfwError, ValueError):
    """A computed tensor where only a leaf can be."""


class Members:
    """The part of Module that holds its members and finds them as attributes."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]

    def _init_members(self) -> None:
        """Give a new module its empty tables."""
        self.__dict__.update(
            _parameters={}, _buffers={}, _modules={}, _non_persistent_buffers_set=set()
        )

    # ---- registration

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, to be found as attribute `name`; None keeps the name for later.

        Errors: AttributeError before `Module.__init__`, TypeError if param is no Parameter,
        KeyError for a bad or taken name, ValueError if param was computed.
        """
        self._check_name("parameter", name, "_parameters")
        if param is not None and not isinstance(param, Parameter):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._wrong_type("parameter", name, param, "nn.Parameter or None")
        if param is not None and not param.is_leaf:
            raise NonLeafError(
                f"parameter {name!r} was computed from other tensors",
                op=type(self).__name__,
                argument=name,
                value=param,
                remedy="compute it in forward(), or make a Parameter of its detach()",
            )
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but not trained; `state_dict` has it if persistent.

        Errors: AttributeError before `Module.__init__`, TypeError if it is no Tensor, KeyError for
        a bad or taken name.
        """
        self._check_name("buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._wrong_type("buffer", name, tensor, "tfw.Tensor or None")
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule, to be found as attribute `name`.

        Errors: AttributeError before `Module.__init__`, TypeError if it is no Module, KeyError for
        a bad or taken name.
        """
        if module is not None and not isinstance(module, Members):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._wrong_type("module", name, module, "nn.Module or None")
        self._check_name("module", name, "_modules")
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        """Do as `add_module` does."""
        self.add_module(name, module)

    def _check_name(self, what: str, name: Any, table: str) -> None:
        """Raise unless a member may get this name: a new one, or one of its own table."""
        self._check_ready(what, name)
        if not isinstance(name, str):
            raise ArgumentError(
                f"the name of a {what} must be a string, not {type(name).__name__}",
                op=type(self).__name__,
                argument="name",
                value=name,
            )
        taken = name not in self.__dict__[table] and hasattr(self, name)
        if taken or not name or "." in name:
            raise MemberNameError(
                f"attribute {name!r} already exists" if taken else f"{name!r} names no {what}",
                op=type(self).__name__,
                argument="name",
                value=name,
                rule="a new name" if taken else "a string without '.' that is not empty",
            )

    def _check_ready(self, what: str, name: object) -> None:
        if "_modules" not in self.__dict__:
            raise MemberError(
                f"{what} {name!r} is assigned before Module.__init__() ran",
                op=type(self).__name__,
                argument=str(name),
                remedy="call super().__init__() first",
            )

    def _wrong_type(self, what: str, name: str, value: object, rule: str) -> ArgumentError:
        return ArgumentError(
            f"an object of type {type(value).__name__} cannot be {what} {name!r}",
            op=type(self).__name__,
            argument=name,
            value=value,
            rule=rule,
        )

    # ---- attributes

    def __getattr__(self, name: str) -> Any:
        # Python comes here after it looked in the instance and the class.
        members = self.__dict__
        if "_parameters" in members:
            for table in (members["_parameters"], members["_modules"], members["_buffers"]):
                if name in table:
                    return table[name]
        raise MemberError(
            f"{type(self).__name__!r} object has no attribute {name!r}", argument=name
        )

    def __setattr__(self, name: str, value: Any) -> None:
        members = self.__dict__
        if isinstance(value, Parameter):
            self._check_ready("parameter", name)
            self._forget(name, but="_parameters")
            self.register_parameter(name, value)
        elif name in members.get("_parameters", ()):
            if value is not None:
                raise self._wrong_type("parameter", name, value, "nn.Parameter or None")
            self.register_parameter(name, None)
        elif isinstance(value, Members):
            self._check_ready("module", name)
            self._forget(name, but="_modules")
            self._modules[name] = cast("Module", value)
        elif name in members.get("_modules", ()):
            if value is not None:
                raise self._wrong_type("module", name, value, "nn.Module or None")
            self._modules[name] = None
        elif isinstance(value, Buffer):
            self.register_buffer(name, value, value.persistent)
        elif name in members.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise self._wrong_type("buffer", name, value, "nn.Buffer, tfw.Tensor or None")
            self._buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__}
        names.update(self._parameters, self._buffers, self._modules)
        return sorted(n for n in names if not n[:1].isdigit())  # "0" is no attribute one can type

    def _forget(self, name: str, but: str) -> None:
        """Drop whatever `name` stood for outside one table."""
        self.__dict__.pop(name, None)
        for table in ("_parameters", "_buffers", "_modules"):
            if table != but:
                self.__dict__[table].pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    # ---- by path

    def get_submodule(self, target: str) -> Module:
        """Return the submodule at a dotted path such as ``"blocks.0.norm"``; itself for ``""``.

        Errors: AttributeError if there is none or it is no module.
        """
        found = cast("Any", self)
        for name in target.split(".") if target else ():
            found = self._part(found, name, target)
            if not isinstance(found, Members):
                raise self._no_such("a module", name, target)
        return cast("Module", found)

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module at a dotted path; with strict only where there is one already.

        Errors: ValueError for an empty path or no module, AttributeError if the path leads nowhere.
        """
        if not target or not isinstance(module, Members):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueRangeError(
                f"cannot set a {type(module).__name__} at {target!r}",
                op="set_submodule",
                argument="target" if not target else "module",
                value=target if not target else module,
                rule="a path that is not empty, and a Module",
            )
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        replaces = strict or hasattr(parent, name)
        if replaces and not isinstance(self._part(parent, name, target), Members):
            raise self._no_such("a module", name, target)
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter at a dotted path. AttributeError if there is none."""
        path, _, name = target.rpartition(".")
        found = self._part(self.get_submodule(path), name, target)
        if not isinstance(found, Parameter):
            raise self._no_such("a parameter", name, target)
        return found

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer at a dotted path. AttributeError if there is none."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        found = self._part(module, name, target)
        if name not in module._buffers:
            raise self._no_such("a buffer", name, target)
        return found

    def _part(self, module: Any, name: str, target: str) -> Any:
        if not hasattr(module, name):
            raise MemberError(
                f"{type(module).__name__} has no attribute {name!r}",
                op=type(self).__name__,
                argument="target",
                value=target,
            )
        return getattr(module, name)

    def _no_such(self, what: str, name: str, target: str) -> MemberError:
        return MemberError(
            f"{name!r} is not {what}", op=type(self).__name__, argument="target", value=target
        )

    # ---- iterators

    def named_modules(
        self,
        memo: set[Any] | None = None,
        prefix: str = "",
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Module]]:
        """Yield this module and all below it with their paths, each once if remove_duplicate."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, cast("Module", self)
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, path, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """Yield this module and all below it, each once."""
        for _, module in self.named_modules():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield the direct submodules with their names, each once."""
        memo: set[Any] = set()
        for name, module in self._modules.items():
            if module is not None and module not in memo:
                memo.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """Yield the direct submodules, each once."""
        for _, module in self.named_children():
            yield module

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yield the parameters with their paths, each once if remove_duplicate.

        Only this module's own if recurse is False.
        """
        return self._named_members(
            lambda m: m._parameters.items(), prefix, recurse, remove_duplicate
        )

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yield the parameters, each once; only this module's own if recurse is False."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield the buffers with their paths, as `named_parameters` does."""
        return self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the buffers, each once; only this module's own if recurse is False."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def _named_members(
        self,
        get_members_fn: Callable[[Any], Iterable[tuple[str, Any]]],
        prefix: str = "",
        recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:
        modules: Iterable[tuple[str, Any]] = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        memo: set[Any] = set()
        for path, module in modules:
            for name, member in get_members_fn(module):
                if member is None or member in memo:
                    continue
                if remove_duplicate:
                    memo.add(member)
                yield (f"{path}.{name}" if path else name), member
