"""Op: all that is told of one op, in one place, and the decorators that register it.

A composed op has a body, written with other ops; a primitive has none and gives rules instead::

    @primitive(numpy=np.exp, triton="tl.exp({input})", pointwise=True, promotion="float", ...)
    def exp(input: Tensor) -> Tensor:
        \"\"\"Exponential ...\"\"\"

    exp.vjp(input=lambda g, y: g * y)

docs/adding-an-op.md shows every slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from tfw import dtypes
from tfw.dispatch import NUMBERS, dispatch, dispatch_inplace
from tfw.dtypes import dtype
from tfw.errors import ArgumentError
from tfw.fastpath import make_function
from tfw.graph import Edge
from tfw.recording import GradPlan, replay_view
from tfw.runtime.backend import Kind, Runnable
from tfw.runtime.cpu.backend import cpu
from tfw.shapes import CPU, Spec, broadcast_shapes, contiguous_strides, elementwise_strides
from tfw.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

# Every registered op by name; tests, docs and benchmarks walk it.
OPS: dict[str, Op] = {}


class OpFunction(Protocol, Generic[P, R]):
    """A public op: a plain function that also leads to its op's slots."""

    op: Op
    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def vjp(self, **vjps: Callable[..., Any]) -> None:
        """See `Op.vjp`."""

    def joint_vjp(self, *inputs: str) -> Callable[[F], F]:
        """See `Op.joint_vjp`."""
        ...

    def numpy(self, rule: F, /) -> F:
        """See `Op.numpy`."""
        ...

    def kernel(self, device_type: str, /) -> Callable[[F], F]:
        """See `Op.kernel`."""
        ...

    def jvp(self, rule: F, /) -> F:
        """See `Op.jvp`."""
        ...

    def samples(self, maker: F, /) -> F:
        """See `Op.samples`."""
        ...

    def rejects(self, maker: F, /) -> F:
        """See `Op.rejects`."""
        ...

    def reference(self, function: F, /) -> F:
        """See `Op.reference`."""
        ...

    def cost(self, rule: F, /) -> F:
        """See `Op.cost`."""
        ...


SLOTS = ("vjp", "joint_vjp", "numpy", "kernel", "jvp", "samples", "rejects", "reference", "cost")


class Call(tuple[Any, ...]):
    """Arguments of one call of an op: positional ones, then `keywords`. ndarrays stand for tensors."""

    keywords: dict[str, Any]

    def __new__(cls, *args: Any, **keywords: Any) -> Call:
        call = super().__new__(cls, args)
        call.keywords = keywords
        return call


class Reject:
    """A bad call: the error it must raise, and fields that the error must carry."""

    def __init__(self, call: Call, error: type[Exception], **fields: Any) -> None:
        self.call, self.error, self.fields = call, error, fields


class Cost:
    """Work of one call: bytes that must move and floating-point operations."""

    def __init__(self, bytes: int, flops: int) -> None:
        self.bytes, self.flops = bytes, flops


class Op(Runnable):
    """One op and its slots.

    Attributes:
        inputs, attrs, outputs: names of tensors, of other arguments, of results.
        list_at: position of the last input if that is a list of tensors, else None.
        body: the composed definition, or None for a primitive.
        rules: NumPy rule under "cpu", kernel plans under other device types.
        infer: shape and dtype rule, `infer(*input_specs, *attrs) -> Spec(s)`; raises the named errors.
        layout: of a view op, `layout(spec, *attrs) -> (shape, strides, offset)`.
        generic: a rule in terms of the backend's own operations, `generic(backend, *payloads, *attrs)`.
        triton: of an elementwise primitive, its expression in Triton, e.g. ``"tl.exp({input})"``.
        dtypes: dtypes taken, for all inputs or by name.
        promotion: "" (none), "common" or "float"; `promoted` names the operands (all by default).
        pointwise: computes each element from its own; broadcasting, layout and kernel follow.
        computes: does arithmetic, so half types are computed in float32 and rounded once.
        views: a view op with several outputs.
        differentiable: False where no gradient exists, e.g. comparisons.
        autocast: "" (any dtype), "half" or "float32": what automatic mixed precision runs it in.
        random: draws random numbers from explicit state.
        data_dependent: the result's shape depends on values, so meta cannot infer it.
        fast: style of the CPU fast path, a key of `fastpath._BODIES`; `fast_dtypes` are the dtypes whose
            NumPy result is declared to be PyTorch's, `fast_rule` the rule if not the CPU's, which takes
            no attribute that `guard`, a condition on one, names; `strided` if a view op's rule is a view
            of any layout; `viewed_as` the op that its views replay.
        method, varargs, dunders, inplace: how Tensor gets it.
        hidden: not a public name.

    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        body: Callable[..., Any] | None,
        numpy: Callable[..., Any] | None = None,
        triton: str = "",
        infer: Callable[..., Any] | None = None,
        layout: Callable[..., Any] | None = None,
        generic: Callable[..., Any] | None = None,
        outputs: Sequence[str] = ("y",),
        dtypes: Sequence[dtype] | dict[str, Sequence[dtype]] | None = None,
        promotion: str = "",
        promoted: Sequence[str] | None = None,
        pointwise: bool = False,
        result_dtype: dtype | None = None,
        computes: bool | None = None,
        views: bool = False,
        fast: str = "",
        fast_rule: Callable[..., Any] | None = None,
        guard: str = "",
        viewed_as: OpFunction[..., Any] | None = None,
        strided: bool = False,
        fast_dtypes: Sequence[dtype] = (dtypes.float32, dtypes.float64),
        method: bool | str = True,
        dunders: Sequence[str] = (),
        inplace: bool = False,
        varargs: str = "",
        differentiable: bool = True,
        autocast: str = "",
        random: bool = False,
        data_dependent: bool = False,
        hidden: bool = False,
    ) -> None:
        self.name = function.__name__
        self.module = function.__module__
        self.doc = function.__doc__ or ""
        self.body = body
        self.rules: dict[str, Callable[..., Any]] = {} if numpy is None else {"cpu": numpy}
        self.triton, self.layout, self.generic = triton, layout, generic
        self.outputs = tuple(outputs)
        self.dtypes, self.promotion = dtypes, promotion
        self.pointwise, self.result_dtype = pointwise, result_dtype
        self.views = views
        self.differentiable, self.autocast = differentiable, autocast
        self.random, self.data_dependent = random, data_dependent
        self.hidden = hidden
        self.computes = (layout is None and not views) if computes is None else computes
        self.vjps: dict[tuple[str, ...], Callable[..., Any]] = {}
        self.plans: dict[int, GradPlan] = {}
        self.jvp_rule: Callable[..., Any] | None = None
        self.sample_maker: Callable[..., Iterable[Call]] | None = None
        self.reject_maker: Callable[[], Iterable[Reject]] | None = None
        self.reference_rule: Callable[..., Any] | None = None
        self.cost_rule: Callable[..., Cost] | None = None
        self._read_signature(function)
        self.promoted = None if promoted is None else tuple(self.inputs.index(n) for n in promoted)
        self.broadcasts = pointwise and len(self.inputs) > 1
        if infer is None and pointwise:
            infer = self._pointwise_spec
        if infer is None and layout is not None and not views:
            infer = self._view_spec
        self.infer = infer
        self.varargs, self.inplace, self.method = varargs, inplace, method
        self.function = self._make_functions(
            fast, fast_rule, guard, viewed_as, strided, fast_dtypes, dunders
        )
        OPS[self.name] = self

    # ---- reading the declaration

    def _read_signature(self, function: Callable[..., Any]) -> None:
        """Sort the parameters into tensors (by annotation) and attributes."""
        code = function.__code__
        n_positional, n_keyword = code.co_argcount, code.co_kwonlyargcount
        names = code.co_varnames[: n_positional + n_keyword]
        defaults = dict(
            zip(reversed(names[:n_positional]), reversed(function.__defaults__ or ()), strict=False)
        ) | (function.__kwdefaults__ or {})
        annotations = {n: str(a) for n, a in function.__annotations__.items()}
        parameters: list[tuple[str, str]] = []
        for i, name in enumerate(names):
            if i == n_positional:
                parameters.append(("*", "*"))
            text = f"{name}={defaults[name]!r}" if name in defaults else name
            parameters.append((name, text))
        self.parameters = tuple(parameters)
        self.defaults = defaults
        values = [n for n in names if n != "out"]
        listed = [n for n in values if annotations.get(n, "").startswith("Sequence[Tensor")]
        tensors = [n for n in values if annotations.get(n, "").startswith("Tensor")] + listed
        self.list_at = len(tensors) - 1 if listed else None
        self.inputs = tuple(tensors)
        self.attrs = tuple(n for n in values if n not in tensors)
        self.tensor_positions = tuple(values.index(n) for n in self.inputs)
        self.attr_positions = tuple(values.index(n) for n in self.attrs)
        self.accepts = tuple(
            ((type(None),) if "None" in annotations[n] else ())
            + (NUMBERS if "Number" in annotations[n] else ())
            + ((list, tuple) if n in listed else ())
            for n in self.inputs
        )

    def _make_functions(
        self,
        fast: str,
        fast_rule: Callable[..., Any] | None,
        guard: str,
        viewed_as: OpFunction[..., Any] | None,
        strided: bool,
        fast_dtypes: Sequence[dtype],
        dunders: Sequence[str],
    ) -> Callable[..., Any]:
        """Make the public function, and attach the method, operator and in-place forms to Tensor."""
        rule = fast_rule or self.rules.get("cpu")
        kinds = self._fast_kinds(fast, fast_dtypes, strided)
        view_op = self if viewed_as is None else viewed_as.op
        n_tensors = 2 if fast == "binary" else 1
        names = tuple(n for n, _ in self.parameters if n not in ("*", "out"))

        def make(
            parameters: tuple[tuple[str, str], ...],
            style: str = fast,
            slow: Callable[..., Any] = dispatch,
        ) -> Callable[..., Any]:
            given = {n for n, _ in parameters}
            # A parameter left out is at its default, which the guard allows.
            values = tuple(n if n in given else repr(self.defaults[n]) for n in names)
            passed = (
                guard
                if not guard or guard.split()[0] in given
                else guard.replace(guard.split()[0], repr(self.defaults[guard.split()[0]]))
            )
            return make_function(
                self, parameters, values, style, rule, kinds, slow, view_op, n_tensors, passed
            )

        function = make(self.parameters)
        for slot in SLOTS:
            setattr(function, slot, getattr(self, slot))
        function.op = self  # pyright: ignore[reportFunctionMemberAccess]  OpFunction
        if self.method:
            method = function
            if self.varargs:
                method = make(
                    tuple((n, f"*{n}" if n == self.varargs else t) for n, t in self.parameters)
                )
            setattr(Tensor, self.method if isinstance(self.method, str) else self.name, method)
        if dunders:
            operands = self.parameters[: len(self.inputs)]
            operator = make(operands, slow=_operator if len(operands) > 1 else dispatch)
            for dunder in dunders:
                setattr(Tensor, dunder, operator)
        if self.inplace:
            import numpy as np

            style = f"inplace_{fast}" if fast and isinstance(rule, np.ufunc) else ""
            parameters = tuple(p for p in self.parameters if p[0] != "out")
            if parameters[-1][0] == "*":
                parameters = parameters[:-1]
            method = make(parameters, style, dispatch_inplace)
            method.__name__ = method.__qualname__ = self.name + "_"
            method.__doc__ = f"In-place form of `{self.name}`."
            setattr(Tensor, self.name + "_", method)
            for dunder in dunders:
                if not dunder.startswith("__r"):
                    operator = make(parameters[: len(self.inputs)], style, _inplace_operator)
                    setattr(Tensor, f"__i{dunder[2:]}", operator)
        return function

    def _fast_kinds(
        self, fast: str, fast_dtypes: Sequence[dtype], strided: bool
    ) -> dict[Kind, Kind]:
        """Map each kind that the fast path takes to the dense kind of its result."""
        if fast == "view":
            dense = [cpu.kinds(d, CPU) for d in dtypes.ALL]
            kinds = {k: k for k in dense} | {k.scalar: k for k in dense}
            return kinds | {k.strided: k for k in dense} if strided else kinds
        return {cpu.kinds(d, CPU): cpu.kinds(self.result_dtype or d, CPU) for d in fast_dtypes}

    # ---- shape rules that follow from a declaration

    def _pointwise_spec(self, *args: Any) -> Spec:
        """Broadcast shape, PyTorch's layout, and the dtype of the operands (or the declared one)."""
        specs = [s for s in args[: len(self.inputs)] if isinstance(s, Spec)]
        shape = broadcast_shapes(self.name, *[s.shape for s in specs], names=self.inputs)
        strides = elementwise_strides(shape, [(s.shape, s.strides) for s in specs])
        d = self.result_dtype or specs[-1].dtype
        return Spec(shape, strides, d, specs[0].device)

    def _view_spec(self, spec: Spec, *attrs: Any) -> Spec:
        assert self.layout is not None
        shape, strides, _ = self.layout(spec, *attrs)
        return spec._replace(shape=shape, strides=strides)

    # ---- slots, each also an attribute of the public function

    def vjp(self, **vjps: Callable[..., Any]) -> None:
        """Give the gradient of one input each: `mul.vjp(input=lambda g, other: g * other, ...)`.

        What the function's parameters may name is told in `recording.GradPlan`.
        """
        for name, function in vjps.items():
            self._add_vjp((name,), function)

    def joint_vjp(self, *inputs: str) -> Callable[[F], F]:
        """Decorate one function that gives the gradients of several inputs at once, as a tuple."""

        def add(function: F) -> F:
            self._add_vjp(inputs, function)
            return function

        return add

    def _add_vjp(self, inputs: tuple[str, ...], function: Callable[..., Any]) -> None:
        unknown = [n for n in inputs if n not in self.inputs]
        if unknown:
            raise ArgumentError(
                f"vjp of {unknown[0]!r}, which is no input",
                op=self.name,
                argument=unknown[0],
                rule=", ".join(self.inputs),
            )
        self.vjps[inputs] = function
        self.plans.clear()

    def numpy(self, rule: F) -> F:
        """Override the body on the CPU with a NumPy rule `rule(*inputs, *attrs)`."""
        self.rules["cpu"] = rule
        return rule

    def kernel(self, device_type: str) -> Callable[[F], F]:
        """Decorate the function of Specs that returns the Plan of this op's kernel on a device type."""

        def add(plan: F) -> F:
            self.rules[device_type] = plan
            return plan

        return add

    def jvp(self, rule: F) -> F:
        """Give the forward-mode derivative, `rule(tangents, *inputs, *attrs)`."""
        self.jvp_rule = rule
        return rule

    def samples(self, maker: F) -> F:
        """Give good calls: `maker(rng)` yields `Call`s whose ndarrays stand for tensors."""
        self.sample_maker = maker
        return maker

    def rejects(self, maker: F) -> F:
        """Give bad calls: `maker()` yields `Reject`s."""
        self.reject_maker = maker
        return maker

    def reference(self, function: F) -> F:
        """Give the value from outside tfw: `function(*arrays_in_float64, *attrs)` in NumPy or SciPy."""
        self.reference_rule = function
        return function

    def cost(self, rule: F) -> F:
        """Give `rule(*input_specs, *attrs) -> Cost`."""
        self.cost_rule = rule
        return rule

    def replay(self, view: Any, edge: Edge) -> Edge:
        """Return a fresh edge for a view that this op took, given its parent's edge."""
        return replay_view(self, view, edge)

    def bind(self, args: Sequence[Any], keywords: dict[str, Any]) -> tuple[Any, ...]:
        """Return arguments in signature order with defaults filled in, for callers that walk the registry."""
        values = [n for n, _ in self.parameters if n not in ("*", "out")]
        bound = dict(zip(values, args, strict=False)) | keywords
        return tuple(bound[n] if n in bound else self.defaults[n] for n in values)

    def __repr__(self) -> str:
        return f"<Op {self.name}>"


def _operator(op: Op, args: tuple[Any, ...]) -> Any:
    """Slow path of Python operators: leave operands that are no numbers to the other side."""
    return dispatch(op, args) if isinstance(args[1], (Tensor, *NUMBERS)) else NotImplemented


def _inplace_operator(op: Op, args: tuple[Any, ...]) -> Any:
    return dispatch_inplace(op, args) if isinstance(args[1], (Tensor, *NUMBERS)) else NotImplemented


def op(**slots: Any) -> Callable[[Callable[P, R]], OpFunction[P, R]]:
    """Register a composed op: the decorated function is its definition and its oracle."""

    def register(function: Callable[P, R]) -> OpFunction[P, R]:
        return Op(function, body=function, **slots).function  # pyright: ignore[reportReturnType]  a function with OpFunction's attributes

    return register


def primitive(**slots: Any) -> Callable[[Callable[P, R]], OpFunction[P, R]]:
    """Register an op without a body: the decorated function gives name, signature and docstring."""

    def register(function: Callable[P, R]) -> OpFunction[P, R]:
        return Op(function, body=None, **slots).function  # pyright: ignore[reportReturnType]  a function with OpFunction's attributes

    return register


def like(name: str) -> Callable[..., Spec]:
    """Return a shape rule: the result is laid out as input `name` (the first input) would be if dense."""

    def infer(x: Spec, *_: Any) -> Spec:
        return x._replace(strides=elementwise_strides(x.shape, [(x.shape, x.strides)]))

    infer.__name__ = f"like_{name}"
    return infer


def fresh(x: Spec, shape: Sequence[int], d: dtype | None = None) -> Spec:
    """Return the Spec of a new row-major result beside input `x`."""
    shape = tuple(shape)
    return Spec(shape, contiguous_strides(shape), d or x.dtype, x.device)
