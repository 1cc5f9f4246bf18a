"""The functions that users call: one closure per op, compiled from a template per parameter list.

Makers are compiled once and shared by all ops with the same parameters: compiling one costs about
0.15 ms, a `*args, **kwargs` wrapper would cost 0.3 us per call.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from tfw import dispatch, dtypes, templates
from tfw.dtypes import Category, dtype
from tfw.graph import LEAF, View, cell_of, edge_of
from tfw.inplace import dispatch_out
from tfw.recording import OpNode, plan_of, record_any, record_binary, record_unary
from tfw.runtime.backend import Kind
from tfw.runtime.cpu.backend import cpu
from tfw.runtime.cpu.elementwise import THREADED_SIZE, threaded
from tfw.runtime.thread_state import state
from tfw.shapes import CPU, Shape, broadcast_shapes, elementwise_strides
from tfw.tensor import Tensor

# What a rule may raise for arguments that the slow path then names or handles.
RECOVERABLE = (AttributeError, KeyError, TypeError, ValueError, IndexError)


@dataclass(frozen=True)
class Fast:
    """How an op's function recognises its common case on the CPU.

    Attributes:
        style: "unary" or "binary": row-major tensors of one kind, the second may be a number;
            "view": a view of one tensor; "list": a list of tensors of one kind; "direct": several
            tensors, the first of the main dtype, the others of that or of the dtype that `needs`
            names.
        rule: what computes it, if not the op's NumPy rule.
        dtypes: main dtypes whose NumPy result is declared to be PyTorch's (views take all).
        guard: condition on one attribute under which this holds; the rule does not take that
            attribute.
        threaded: whether the rule, elementwise with `out` as last argument, is cut over threads
            for large arrays.
        any_layout: whether the rule takes tensors that are not row-major.
        viewed_as: the op that a view replays, if not the op itself.
        main: for "direct", the tensor of the main dtype, if not the first.
        needs: for "direct", tensors of another dtype.
        outputs: for "direct", the dtype of each output, None for the main one.

    """

    style: str
    rule: Callable[..., Any] | None = None
    dtypes: tuple[dtype, ...] = (dtypes.float32, dtypes.float64)
    guard: str = ""
    threaded: bool = False
    any_layout: bool = False
    viewed_as: Any = None
    main: str = ""
    needs: dict[str, dtype] = field(default_factory=dict[str, dtype])
    outputs: tuple[dtype | None, ...] = (None,)

    def kinds(self, result: dtype | None) -> dict[Kind, Any]:
        """Map each kind that is taken to the result's dense kind (for "direct" a tuple of them)."""
        if self.style == "view":
            dense = [cpu.kinds(d, CPU) for d in dtypes.ALL]
            kinds = {k: k for k in dense} | {k.scalar: k for k in dense}
            return kinds | {k.strided: k for k in dense} if self.any_layout else kinds
        if self.style == "direct":
            return {
                cpu.kinds(d, CPU): tuple(cpu.kinds(o or d, CPU) for o in self.outputs)
                for d in self.dtypes
            }
        return {cpu.kinds(d, CPU): cpu.kinds(result or d, CPU) for d in self.dtypes}


SLOW = Fast("")


class Tensors(NamedTuple):
    """What the "direct" template must know of an op's tensors.

    The main one, all, which may be None, which may be numbers, which have a dtype of their own.
    """

    main: str
    names: tuple[str, ...]
    optional: tuple[str, ...]
    numbers: tuple[str, ...]
    own: tuple[str, ...]


_numbers: dict[tuple[Kind, complex], np.ndarray[Any, Any]] = {}
_NUMBERS_KEPT = 4096


def number(kind: Kind, value: float) -> np.ndarray[Any, Any]:
    """Return a number as a 0-d array of the kind's dtype, cached: NumPy takes 0.3 us to make one.

    Raises TypeError where the number would change the result's dtype.
    """
    if value.__class__ is float and kind.dtype.category is not Category.FLOATING:
        raise TypeError
    found = _numbers.get((kind, value))
    if found is None or value == 0:  # 0.0 and -0.0 are equal as keys
        found = state.run(np.asarray(value).astype, kind.dtype.numpy)
        if len(_numbers) >= _NUMBERS_KEPT:
            _numbers.clear()
        _numbers[kind, value] = found
    return found


def any_layout(
    op: Any,
    rule: Callable[..., Any],
    fast: dict[Kind, Kind],
    slow: Callable[..., Any],
    args: tuple[Any, ...],
) -> Any:
    """Run a two-tensor op whose operands are not both row-major: expanded, transposed, 0-d.

    A third of the slow path's time; gradients of sums and of matrix products come here.
    """
    x, y, *attrs = args
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)) or dispatch.intercept is not None:
        return slow(op, args)
    kind = x._kind.dense
    if y._kind.dense is not kind or kind not in fast or attrs != op.default_attrs:
        return slow(op, args)
    a, b = x._a, y._a
    try:
        value = state.run(rule, a, b)
    except RECOVERABLE:
        return slow(op, args)
    kind = fast[kind]
    if value.__class__ is not np.ndarray:
        value = np.asarray(value)
    if not value.ndim:
        kind = kind.scalar
    elif value.ndim > 1:
        wanted = _byte_strides(a.shape, a.strides, b.shape, b.strides, a.itemsize, value.itemsize)
        if value.strides != wanted:
            return slow(op, args)
        if not value.flags.c_contiguous:
            kind = kind.strided
    out = object.__new__(Tensor)
    out._a = value
    out._kind = kind
    if (x._node is not None or y._node is not None) and state.grad_enabled:
        record_binary(op, out, x, y, tuple(attrs))
    return out


def inplace_recorded(
    op: Any,
    rule: Callable[..., Any],
    fast: dict[Kind, Kind],
    slow: Callable[..., Any],
    args: tuple[Any, ...],
) -> Any:
    """Run a two-tensor op in place where an operand is tracked, but neither is a view.

    An op whose gradient needs the overwritten value goes to `slow`, which copies it first.
    """
    x, y, *attrs = args
    kind = x._kind
    node = x._node
    plain = dispatch.intercept is None and fast.get(kind) is kind and attrs == op.default_attrs
    if node is LEAF and not state.grad_enabled:  # a parameter being updated
        node = None
    if not plain or not (node is None or (node.__class__ is OpNode and not node.watched)):
        return slow(op, args)
    if y.__class__ is float or y.__class__ is int:
        edge, value = None, y
    elif (
        isinstance(y, Tensor)
        and y._kind is kind
        and y._node.__class__ is not View
        and (y is x or y._cell is None or y._cell is not x._cell)  # memory of its own
    ):
        edge, value = edge_of(y), y._a
    else:
        return slow(op, args)
    recording = state.grad_enabled and (node is not None or edge is not None)
    plan = plan_of(op, (node is not None) + 2 * (edge is not None)) if recording else None
    if plan is not None and ("input", 0) in plan.saves:
        return slow(op, args)
    try:
        state.run(rule, x._a, number(kind, value) if value is y else value, x._a)
    except RECOVERABLE:
        return slow(op, args)
    cell_of(x)[0] += 1
    if plan is not None:
        record_binary(op, x, x, y, tuple(attrs))
    return x


@lru_cache(maxsize=4096)
def _byte_strides(
    a: Shape, a_strides: Shape, b: Shape, b_strides: Shape, itemsize: int, result_itemsize: int
) -> Shape:
    """Return the strides in bytes that PyTorch gives the result of two arrays with these."""
    layouts = [
        (a, tuple(s // itemsize for s in a_strides)),
        (b, tuple(s // itemsize for s in b_strides)),
    ]
    shape = broadcast_shapes("", a, b)
    return tuple(s * result_itemsize for s in elementwise_strides(shape, layouts))


_names: dict[str, Any] = {
    "any_layout": any_layout,
    "inplace_recorded": inplace_recorded,
    "_dispatch": dispatch,
    "dispatch_out": dispatch_out,
    "state": state,
    "ndarray": np.ndarray,
    "asarray": np.asarray,
    "new": object.__new__,
    "new_view": tuple[Any, ...].__new__,
    "Tensor": Tensor,
    "View": View,
    "cell_of": cell_of,
    "number": number,
    "THREADED_SIZE": THREADED_SIZE,
    "record_any": record_any,
    "record_unary": record_unary,
    "record_binary": record_binary,
    "RECOVERABLE": RECOVERABLE,
}


@cache
def _maker(
    style: str,
    parameters: tuple[tuple[str, str], ...],
    values: tuple[str, ...],
    rule_values: tuple[str, ...],
    n_tensors: int,
    guard: str,
    is_threaded: bool,
    any_layout: bool,
    tensors: Tensors | None,
    n_outputs: int,
) -> Callable[..., Any]:
    """Compile the template for one parameter list.

    Args:
        style: which fast path, a key of `templates.BODIES` or "direct".
        parameters: (name, text in the signature) of each parameter.
        values: expression for each of the op's arguments, in signature order.
        rule_values: for each attribute that the rule takes.
        n_tensors: how many of them, from the first, are tensors (not for "direct").
        guard, is_threaded, any_layout: as `Fast` has them.
        tensors: for "direct".
        n_outputs: for "direct".

    """
    starred = {name for name, text in parameters if text.startswith("*") and name != "*"}
    attrs = [v for v in values if v not in tensors.names] if tensors else values[n_tensors:]
    dense = ".dense" if any_layout else ""
    args = "".join(f"{v}, " for v in values)
    x = tensors.main if tensors else values[0] if values else ""
    fields = {
        "signature": ", ".join(text for _, text in parameters),
        "args": args,
        "attrs": "".join(f"{v}, " for v in attrs),
        "rule_attrs": "".join(f", *{v}" if v in starred else f", {v}" for v in rule_values),
        "guard": guard and f" and {guard}",
        "dense": dense,
        "x": x,
        "rule": f"rule if {x}._a.size < THREADED_SIZE else large" if is_threaded else "rule",
        "y": values[1] if len(values) > 1 else "",
    }
    body = templates.BODIES.get(style, templates.DIRECT)
    if tensors:
        fields |= _direct_fields(tensors, n_outputs, dense, args)
    has_out = any(name == "out" for name, _ in parameters)
    parts = [templates.HEAD, templates.OUT if has_out else "", body, templates.TAIL]
    source = "".join(parts).format(**fields)
    filename = f"<tfw {style or 'op'}({fields['signature']})>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    scope = dict(_names)
    exec(compile(source, filename, "exec"), scope)
    return scope["make"]


def _direct_fields(tensors: Tensors, n_outputs: int, dense: str, args: str) -> dict[str, str]:
    checks: list[str] = []
    for name in tensors.names:
        template = templates.CHECK
        if name in tensors.optional:
            template = templates.CHECK_OPTIONAL
        elif name in tensors.numbers and name != tensors.main:
            template = templates.CHECK_NUMBER
        kind = f"needs[{tensors.own.index(name)}]" if name in tensors.own else "kind"
        checks.append(template.format(x=name, dense=dense, kind=kind, args=args))
    wraps = [
        templates.WRAP.format(k=k, value="value" if n_outputs == 1 else f"value[{k}]")
        for k in range(n_outputs)
    ]
    outs = "".join(f"out{k}, " for k in range(n_outputs))
    return {
        "checks": "".join(checks),
        "wraps": "".join(wraps),
        "payloads": ", ".join(f"{x}_a" for x in tensors.names),
        "tensors": "".join(f"{x}, " for x in tensors.names),
        "outs": outs,
        "returned": "out0" if n_outputs == 1 else f"({outs})",
    }


def make_function(
    op: Any,
    fast: Fast,
    parameters: tuple[tuple[str, str], ...],
    slow: Callable[..., Any] = dispatch.dispatch,
    style: str | None = None,
) -> Callable[..., Any]:
    """Return a function of an op with some of its parameters; those left out have their defaults.

    Args:
        op: the op.
        fast: its fast path.
        parameters: (name, text in the signature) of each parameter.
        slow: where all else goes.
        style: the template, if not `fast.style`.

    """
    style = fast.style if style is None else style
    rule = fast.rule or op.rules.get("cpu")
    if rule is None:
        style = ""
    given = {name for name, _ in parameters}
    names = [n for n, _ in op.parameters if n not in ("*", "out")]
    values = tuple(n if n in given else repr(op.defaults[n]) for n in names)
    guarded = fast.guard.partition(" ")[0]
    # An attribute that is no parameter is at its default, which the guard allows.
    guard = fast.guard if guarded in given else ""
    rule_values = tuple(
        v for n, v in zip(names, values, strict=True) if n in op.attrs and n != guarded
    )
    tensors = None
    if style == "direct":
        optional = tuple(n for n, a in zip(op.inputs, op.accepts, strict=True) if type(None) in a)
        numbers = tuple(n for n, a in zip(op.inputs, op.accepts, strict=True) if float in a)
        main = fast.main or op.inputs[0]
        tensors = Tensors(main, op.inputs, optional, numbers, tuple(fast.needs))
    n_tensors = 2 if style.endswith("binary") else 1
    make = _maker(
        style,
        parameters,
        values,
        rule_values,
        n_tensors,
        guard,
        fast.threaded,
        fast.any_layout,
        tensors,
        len(fast.outputs),
    )
    needs = [cpu.kinds(d, CPU) for d in fast.needs.values()]
    view_op = op if fast.viewed_as is None else fast.viewed_as.op
    large = threaded(rule, n_tensors) if fast.threaded and rule else None
    function = make(op, rule, fast.kinds(op.result_dtype), slow, view_op, needs, large)
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.doc
    function.__module__ = op.module
    return function
