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
from functools import lru_cache
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from tfw.dispatch import NUMBERS
from tfw.dtypes import dtype
from tfw.errors import ArgumentError
from tfw.expose import expose
from tfw.fastpath import SLOW, Fast
from tfw.graph import Edge
from tfw.recording import GradPlan, replay_view
from tfw.runtime.backend import Runnable
from tfw.shapes import Shape, Spec, broadcast_shapes, contiguous_strides, elementwise_strides

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])

# Every registered op by name; tests, docs and benchmarks walk it.
OPS: dict[str, Op] = {}


class OpFunction(Protocol, Generic[P, R_co]):
    """A public op: a plain function that also leads to its op's slots."""

    op: Op
    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the op."""
        ...

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
    """Arguments of one call of an op: positional, then `keywords`; ndarrays stand for tensors."""

    keywords: dict[str, Any]

    def __new__(cls, *args: Any, **keywords: Any) -> Call:
        """Take the arguments as the op would."""
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
        infer: shape and dtype rule, `infer(*input_specs, *attrs) -> Spec(s)`; raises the named
            errors.
        layout: of a view op, `layout(spec, *attrs) -> (shape, strides, offset)`.
        generic: a rule in terms of the backend's own operations,
            `generic(backend, *payloads, *attrs)`.
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
        fast: how the common case on the CPU is recognised.
        method, varargs, dunders, inplace: how Tensor gets it; see `expose`.
        hidden: not a public name; `shown` is then what messages call it.
        writes_one_value: its in-place form writes the same value everywhere.

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
        fast: Fast = SLOW,
        method: bool | str = True,
        dunders: Sequence[str] = (),
        inplace: bool = False,
        varargs: str = "",
        differentiable: bool = True,
        autocast: str = "",
        random: bool = False,
        data_dependent: bool = False,
        hidden: bool = False,
        shown: str = "",
        writes_one_value: bool = False,
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
        self.hidden, self.writes_one_value = hidden, writes_one_value
        self.shown = shown or self.name
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
        self.fast, self.varargs, self.inplace, self.method = fast, varargs, inplace, method
        self.function = expose(self, fast, method, dunders, inplace, varargs)
        for slot in SLOTS:
            setattr(self.function, slot, getattr(self, slot))
        self.function.op = self  # pyright: ignore[reportFunctionMemberAccess]  OpFunction
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
        annotations = {n: _annotation(a) for n, a in function.__annotations__.items()}
        parameters: list[tuple[str, str]] = []
        for i, name in enumerate(names):
            if i == n_positional:
                parameters.append(("*", "*"))
            text = f"{name}={defaults[name]!r}" if name in defaults else name
            parameters.append((name, text))
        self.parameters = tuple(parameters)
        self.n_positional = n_positional
        self.keyword_only = tuple(n for n in names[n_positional:] if n != "out")
        self.defaults = defaults
        values = [n for n in names if n != "out"]
        listed = [n for n in values if annotations.get(n, "").startswith("Sequence[Tensor")]
        tensors = [n for n in values if annotations.get(n, "").startswith("Tensor")] + listed
        self.list_at = len(tensors) - 1 if listed else None
        self.inputs = tuple(tensors)
        self.attrs = tuple(n for n in values if n not in tensors)
        self.default_attrs = [defaults.get(n) for n in self.attrs]
        self.tensor_positions = tuple(values.index(n) for n in self.inputs)
        self.attr_positions = tuple(values.index(n) for n in self.attrs)
        self.accepts: tuple[tuple[type[Any], ...], ...] = tuple(
            ((type(None),) if "None" in annotations[n] else ())
            + (NUMBERS if "Number" in annotations[n] else ())
            + ((list, tuple) if n in listed else ())
            for n in self.inputs
        )

    # ---- shape rules that follow from a declaration

    def _pointwise_spec(self, *args: Any) -> Spec:
        """Broadcast shape, PyTorch's layout, the dtype of the operands or the declared one."""
        specs = [s for s in args[: len(self.inputs)] if isinstance(s, Spec)]
        shape, strides = _pointwise_layout(self.shown, self.inputs, tuple(s[:2] for s in specs))
        return Spec(shape, strides, self.result_dtype or specs[-1].dtype, specs[0].device)

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
                op=self.shown,
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
        """Decorate the function of Specs that returns the op's Plan on a device type."""

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
        """Give the value from outside tfw, by NumPy or SciPy.

        The function is called as `function(*arrays_in_float64, *attrs)`.
        """
        self.reference_rule = function
        return function

    def cost(self, rule: F) -> F:
        """Give `rule(*input_specs, *attrs) -> Cost`."""
        self.cost_rule = rule
        return rule

    def run_body(self, args: Sequence[Any]) -> Any:
        """Run the composed definition on arguments in signature order."""
        assert self.body is not None
        n = self.n_positional
        return self.body(*args[:n], **dict(zip(self.keyword_only, args[n:], strict=True)))

    def replay(self, view: Any, edge: Edge) -> Edge:
        """Return a fresh edge for a view that this op took, given its parent's edge."""
        return replay_view(self, view, edge)

    def bind(self, args: Sequence[Any], keywords: dict[str, Any]) -> tuple[Any, ...]:
        """Return arguments in signature order with defaults, for callers that walk the registry."""
        values = [n for n, _ in self.parameters if n not in ("*", "out")]
        bound = dict(zip(values, args, strict=False)) | keywords
        return tuple(bound[n] if n in bound else self.defaults[n] for n in values)

    def __repr__(self) -> str:
        return f"<Op {self.name}>"


def _annotation(annotation: object) -> str:
    """Return an annotation as it is written, also where annotations are evaluated."""
    if isinstance(annotation, type):
        return annotation.__name__
    return str(annotation).replace("tfw.tensor.", "").replace("collections.abc.", "")


@lru_cache(maxsize=4096)
def _pointwise_layout(
    op: str, names: tuple[str, ...], layouts: tuple[tuple[Shape, Shape], ...]
) -> tuple[Shape, Shape]:
    """Return shape and strides of an elementwise result; kept, since a program has few of them."""
    shape = broadcast_shapes(op, *[s for s, _ in layouts], names=names)
    return shape, elementwise_strides(shape, layouts)


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
    """Return a shape rule: the result is laid out as the first input, `name`, would be if dense."""

    def infer(x: Spec, *_: Any) -> Spec:
        strides = elementwise_strides(x.shape, [(x.shape, x.strides)])
        return x._replace(strides=strides, aligned=True)

    infer.__name__ = f"like_{name}"
    return infer


def fresh(x: Spec, shape: Sequence[int], d: dtype | None = None) -> Spec:
    """Return the Spec of a new row-major result beside input `x`."""
    shape = tuple(shape)
    return Spec(shape, contiguous_strides(shape), d or x.dtype, x.device)
