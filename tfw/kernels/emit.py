"""Generates the Triton source of an elementwise program for one kind of walk.

Every kernel has two branches: full blocks load and store without masks, so that accesses stay
128 bits wide at any length, and the block at the edge masks. Both compute the same lines.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

from tfw import dtypes
from tfw.dtypes import Category, accumulation, dtype
from tfw.kernels import program
from tfw.kernels.program import Node, Program, is_arithmetic
from tfw.kernels.spelling import converted, literal, triton_type
from tfw.kernels.walk import FLAT, GATHER, ROWS, TILE
from tfw.runtime.cuda.plan import LazyFunction

# Names that the generated source uses itself; an op's own get an underscore where they collide.
_RESERVED = frozenset(
    (
        *("tl", "libdevice", "device", "float", "start", "offsets", "rest", "mask", "n", "block"),
        *("batch", "rows", "cols", "n_rows", "n_cols", "row_start", "col_start", "row_mask"),
        *("col_mask", "BLOCK", "ROWS", "COLS"),
    )
)


class Shape(NamedTuple):
    """What the source depends on besides the program: a `Walk` without its numbers."""

    mode: str
    forms: tuple[str, ...]
    operands: tuple[int, ...]
    row: int
    wide: bool


class Size(NamedTuple):
    """A size that a kernel takes: that of one dim, or the product of several.

    Attributes:
        first, last: the dims, from `first` up to but without `last` (None: to the outermost).
        starts_runs: whether where runs of memory start depends on it.

    """

    first: int
    last: int | None
    starts_runs: bool

    def of(self, sizes: tuple[int, ...]) -> int:
        """Return its value for these sizes."""
        return math.prod(sizes[self.first : self.last])


class Emitted:
    """A generated kernel, and the parameters that its launcher must fill, in this order.

    Attributes:
        function: the kernel.
        tensors: parameter and dtype of each operand in memory: inputs, then results.
        numbers: parameter and node of each number passed by value.
        strides: parameter, layout and dim of each stride.
        sizes: parameter and meaning of each size.
        kernels: room for a Kernel per set of promises about its arguments.

    """

    __slots__ = ("function", "kernels", "numbers", "sizes", "strides", "tensors")

    def __init__(
        self,
        function: LazyFunction,
        tensors: list[tuple[str, dtype]],
        numbers: list[tuple[str, Node]],
        strides: list[tuple[str, int, int]],
        sizes: dict[str, Size],
    ) -> None:
        self.function, self.tensors, self.numbers = function, tuple(tensors), tuple(numbers)
        self.strides, self.sizes = tuple(strides), tuple(sizes.items())
        self.kernels: dict[Any, Any] = {}


_emitted: dict[tuple[Program, Shape], Emitted] = {}
_EMITTED_KEPT = 4096


def emit(p: Program, shape: Shape) -> Emitted:
    """Return the kernel of a program for a kind of walk, generated once.

    Operands of the walk are the program's inputs in memory, in the order of its nodes, then its
    results.

    Errors: DtypeError for a dtype that Triton cannot compute with.
    """
    found = _emitted.get((p, shape))
    if found is None:
        if len(_emitted) >= _EMITTED_KEPT:
            _emitted.clear()
        found = _emitted.setdefault((p, shape), _Writer(p, shape).write())
    return found


def tensor_inputs(p: Program) -> list[int]:
    """Return the numbers of a program's inputs in memory, in the order of its nodes."""
    return [n.detail for n in p.nodes if n.kind == program.TENSOR]


class _Writer:
    """Writes one kernel."""

    def __init__(self, p: Program, shape: Shape) -> None:
        self.program, self.shape = p, shape
        self.names: list[str] = []  # of each node
        self.strides: list[tuple[str, int, int]] = []
        self.sizes: dict[str, Size] = {}
        self.tensors: list[tuple[str, dtype]] = []
        self.numbers: list[tuple[str, Node]] = []
        used: set[str] = set(_RESERVED)
        for i, node in enumerate(p.nodes):
            triton_type(node.dtype)
            name = f"t{i}"
            if node.kind in (program.TENSOR, program.NUMBER):
                name = p.input_names[node.detail]
            elif node.kind == program.ATTR:
                name = p.attr_names[node.detail]
            while name in used:
                name += "_"
            used.add(name)
            self.names.append(name)
            if node.kind == program.TENSOR:
                self.tensors.append((f"{name}_ptr", node.dtype))
            elif node.kind in (program.NUMBER, program.ATTR):
                self.numbers.append((name, node))
        many = len(p.outputs) > 1
        for k, i in enumerate(p.outputs):
            self.tensors.append((f"out{k}_ptr" if many else "out_ptr", p.nodes[i].dtype))

    def write(self) -> Emitted:
        shape = self.shape
        setup = list(self._tile() if shape.mode in (ROWS, TILE) else self._line())
        full = list(self._body(masked=False))
        edge = list(self._body(masked=True))
        parameters = [
            *(name for name, _ in self.tensors),
            *(name for name, _ in self.numbers),
            *(name for name, *_ in self.strides),
            *self.sizes,
        ]
        constants = ("BLOCK",) if shape.mode in (FLAT, GATHER) else ("ROWS", "COLS")
        signature = ", ".join([*parameters, *(f"{c}: tl.constexpr" for c in constants)])
        name = f"{self.program.name}_kernel"
        lines = [
            f"def {name}({signature}):",
            f'    """Elementwise kernel of `{self.program.name}`, {shape.mode} walk."""',
            *(f"    {line}" for line in setup),
            f"    if {self._is_full()}:",
            *(f"        {line}" for line in full),
            "    else:",
            *(f"        {line}" for line in (*self._masks(), *edge)),
        ]
        function = LazyFunction(name, (*parameters, *constants), "\n".join(lines) + "\n", _define)
        return Emitted(function, self.tensors, self.numbers, self.strides, self.sizes)

    # ---- where elements lie

    def _size(self, name: str, first: int, last: int | None, starts_runs: bool = False) -> str:
        self.sizes[name] = Size(first, last, starts_runs)
        return name

    def _size_of(self, d: int) -> str:
        return self._size(f"size_{d}", d, d + 1, starts_runs=d == 0)

    def _line(self) -> Iterator[str]:
        """Blocks of the result's offsets, and for a gather the offsets of the other layouts."""
        self._size("n", 0, None)
        wide = ".to(tl.int64)" if self.shape.wide else ""
        yield f"start = tl.program_id(0){wide} * BLOCK"
        yield "offsets = start + tl.arange(0, BLOCK)"
        if self.shape.mode == FLAT:
            return
        n_dims = len(next(f for f in self.shape.forms if f != "c"))
        if n_dims > 1:
            yield "rest = offsets"
        for d in range(n_dims):
            last = d == n_dims - 1
            if n_dims == 1:
                yield "i0 = offsets"
            elif last:
                yield f"i{d} = rest"
            else:
                size = self._size_of(d)
                yield f"i{d} = rest % {size}"
                yield f"rest = rest // {size}"
        for k, form in enumerate(self.shape.forms):
            if form != "c":
                yield f"offsets_{k} = {self._sum(k, [(f'i{d}', d) for d in range(n_dims)])}"

    def _tile(self) -> Iterator[str]:
        """Blocks of rows and columns; rows are all outer dims as one, or one of them per batch."""
        shape = self.shape
        n_dims = len(next(f for f in shape.forms if f != "c"))
        wide = ".to(tl.int64)" if shape.wide else ""
        n_cols = self._size("n_cols", 0, 1, starts_runs=True)
        if shape.mode == ROWS:
            n_rows = self._size("n_rows", 1, None)
        else:
            n_rows = self._size("n_rows", shape.row, shape.row + 1, starts_runs=True)
        yield "block = tl.program_id(0)"
        yield f"col_start = (block % tl.cdiv({n_cols}, COLS)) * COLS"
        yield f"block = block // tl.cdiv({n_cols}, COLS)"
        indices: list[tuple[str, int]] = [("cols", 0)]
        if shape.mode == ROWS:
            yield f"row_start = block{wide} * ROWS"
        else:
            yield f"row_start = (block % tl.cdiv({n_rows}, ROWS)) * ROWS"
            yield f"batch = (block // tl.cdiv({n_rows}, ROWS)){wide}"
            yield from self._split(
                indices, "batch", [d for d in range(1, n_dims) if d != shape.row]
            )
        yield "rows = row_start + tl.arange(0, ROWS)[:, None]"
        yield "cols = col_start + tl.arange(0, COLS)[None, :]"
        if shape.mode == ROWS:
            yield from self._split(indices, "rows", list(range(1, n_dims)))
        else:
            if shape.wide:
                yield "rows = rows.to(tl.int64)"
                yield "cols = cols.to(tl.int64)"
            indices.append(("rows", shape.row))
        for k, form in enumerate(shape.forms):
            if form == "c" and shape.mode == ROWS:
                yield f"offsets_{k} = rows * {n_cols} + cols"
            else:
                yield f"offsets_{k} = {self._sum(k, indices)}"

    def _split(self, indices: list[tuple[str, int]], whole: str, dims: list[int]) -> Iterator[str]:
        """Split an index over several dims into one for each."""
        if len(dims) == 1:
            indices.append((whole, dims[0]))
            return
        if dims:
            yield f"rest = {whole}"
        for d in dims:
            indices.append((f"i{d}", d))
            if d == dims[-1]:
                yield f"i{d} = rest"
            else:
                size = self._size_of(d)
                yield f"i{d} = rest % {size}"
                yield f"rest = rest // {size}"

    def _sum(self, layout: int, indices: list[tuple[str, int]]) -> str:
        """Return the offset in a layout as a sum of indices times strides."""
        form = self.shape.forms[layout]
        terms: list[str] = []
        for index, d in indices:
            letter = "1" if form == "c" and d == 0 else "s" if form == "c" else form[d]
            if letter == "1":
                terms.append(index)
            elif letter == "s":
                name = f"stride_{layout}_{d}"
                self.strides.append((name, layout, d))
                terms.append(f"{index} * {name}")
        return " + ".join(terms) or "0"

    def _is_full(self) -> str:
        if self.shape.mode in (FLAT, GATHER):
            return "n - start >= BLOCK"
        return "(n_rows - row_start >= ROWS) & (n_cols - col_start >= COLS)"

    def _masks(self) -> Iterator[str]:
        if self.shape.mode in (FLAT, GATHER):
            yield "mask = offsets < n"
            return
        yield "row_mask = rows < n_rows"
        yield "col_mask = cols < n_cols"
        yield "mask = row_mask & col_mask"

    def _access(self, operand: int) -> tuple[str, str]:
        """Return an operand's offsets and mask, both empty if it is one element for all."""
        shape = self.shape
        k = shape.operands[operand]
        form = shape.forms[k]
        if set(form) == {"0"}:
            return "", ""
        if shape.mode in (FLAT, GATHER):
            return ("offsets" if form == "c" else f"offsets_{k}"), "mask"
        if form == "c":
            return f"offsets_{k}", "mask"
        along_rows = set(form[1:]) != {"0"} if shape.mode == ROWS else form[shape.row] != "0"
        if form[0] == "0":
            # Rows of a tile may differ by batch only.
            return f"offsets_{k}", "row_mask" if along_rows else ""
        return f"offsets_{k}", "mask" if along_rows else "col_mask"

    # ---- what is computed

    def _body(self, masked: bool) -> Iterator[str]:
        p = self.program
        operand = 0
        for i, node in enumerate(p.nodes):
            if node.kind == program.TENSOR:
                offsets, mask = self._access(operand)
                value = self._load(operand, offsets, mask if masked else "", node.dtype)
                yield f"{self.names[i]} = {value}"
                operand += 1
            elif node.kind in (program.APPLY, program.CAST):
                value = self._apply(node) if node.kind == program.APPLY else self._cast(node)
                yield f"{self.names[i]} = {value}"
        for i in p.outputs:
            offsets, mask = self._access(operand)
            yield self._store(operand, offsets, mask if masked else "", i)
            operand += 1

    def _load(self, operand: int, offsets: str, mask: str, d: dtype) -> str:
        pointer, _ = self.tensors[operand]
        address = f"{pointer} + {offsets}" if offsets else pointer
        other = "0.0" if d.category is Category.FLOATING else "0"
        text = f"tl.load({address}, mask={mask}, other={other})" if mask else f"tl.load({address})"
        if d is dtypes.bool_:
            return f"{text} != 0"
        wide = accumulation(d)
        return text if wide is d else f"{text}.to({triton_type(wide)})"

    def _store(self, operand: int, offsets: str, mask: str, i: int) -> str:
        pointer, _ = self.tensors[operand]
        node = self.program.nodes[i]
        value = self.names[i]
        if node.kind == program.CONSTANT:
            value = self._full(node)
        if node.dtype is dtypes.bool_:
            value = f"({value}).to(tl.int8)"
        elif node.dtype.category is Category.FLOATING and node.dtype.itemsize < 4:
            value = f"{value}.to({triton_type(node.dtype)})"
        return f"tl.store({pointer} + {offsets}, {value}" + (f", mask={mask})" if mask else ")")

    def _full(self, node: Node) -> str:
        value = literal(node.detail, node.dtype)
        return f"tl.full((), {value}, {triton_type(accumulation(node.dtype))})"

    def _apply(self, node: Node) -> str:
        expression, fields = node.detail
        args = [self.program.nodes[a] for a in node.args]
        # Constants take the type of what they meet; they need one of their own where they meet
        # nothing, or are handed to a function that asks for it.
        alone = (
            "device." in expression
            or "libdevice." in expression
            or all(a.kind == program.CONSTANT or a.dtype is dtypes.bool_ for a in args)
        )
        texts: list[str] = []
        for a, arg in zip(node.args, args, strict=True):
            text = self.names[a]
            if arg.kind == program.CONSTANT:
                text = self._full(arg) if alone else literal(arg.detail, arg.dtype)
            elif arg.kind in (program.NUMBER, program.ATTR) and arg.dtype is dtypes.bool_:
                text = f"({text} != 0)"
            texts.append(text)
        if all(a.dtype is dtypes.bool_ for a in args) and is_arithmetic(expression):
            as_numbers = [f"({t}).to(tl.int32)" for t in texts]
            return f"({expression.format(**dict(zip(fields, as_numbers, strict=True)))}) != 0"
        return expression.format(**dict(zip(fields, texts, strict=True)))

    def _cast(self, node: Node) -> str:
        (a,) = node.args
        source = self.program.nodes[a]
        text = self._full(source) if source.kind == program.CONSTANT else self.names[a]
        return converted(text, source.dtype, node.dtype)


def _define(name: str, source: str) -> Any:
    """Make a Triton function of source text; tracebacks and the compiler find its lines."""
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    from tfw.kernels import device

    filename = f"<tfw kernel {name} {sha256(source.encode()).hexdigest()[:12]}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    scope: dict[str, Any] = {
        "__name__": __name__,
        "tl": tl,
        "libdevice": libdevice,
        "device": device,
    }
    exec(compile(source, filename, "exec"), scope)
    return triton.jit(scope[name])
