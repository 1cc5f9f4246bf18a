"""Elementwise programs: a graph of expressions without common subexpressions, as hashable data.

A value has a dtype, in which it would be stored, and is computed in the accumulation dtype of that
one.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import Any, NamedTuple

from tfw.dtypes import dtype

# What a node is; its `detail` is given in brackets.
TENSOR = "tensor"  # element of an input in memory (the input's number)
NUMBER = "number"  # an input that is a number on the host (the input's number)
ATTR = "attr"  # a number among the op's attributes (its number)
CONSTANT = "constant"  # a number known when the kernel is generated (the number)
APPLY = "apply"  # a primitive (its Triton expression and the names of its fields)
CAST = "cast"  # conversion to the node's dtype


class Node(NamedTuple):
    """One value of a program; `args` are positions of earlier nodes."""

    kind: str
    dtype: dtype
    detail: Any = None
    args: tuple[int, ...] = ()


class Program(NamedTuple):
    """Nodes in an order in which they can be computed, and which of them are results.

    Attributes:
        name: of the op, for the kernel's name.
        nodes: each after its arguments; all are needed.
        outputs: positions of the results.
        input_names: a name for each input that a node may refer to.
        attr_names: a name for each attribute that a node may refer to.

    """

    name: str
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    input_names: tuple[str, ...]
    attr_names: tuple[str, ...]


class Builder:
    """Collects nodes; equal ones become one."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._found: dict[Any, int] = {}

    def add(self, kind: str, dtype: dtype, detail: Any = None, args: tuple[int, ...] = ()) -> int:
        """Return the position of a node, new or found."""
        node = Node(kind, dtype, detail, args)
        # 0.0 == -0.0 and 1 == True as keys, but they are different numbers.
        key = (*node, repr(detail)) if kind == CONSTANT else node
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = len(self.nodes)
            self.nodes.append(node)
        return found

    def finish(
        self,
        name: str,
        outputs: tuple[int, ...],
        input_names: tuple[str, ...],
        attr_names: tuple[str, ...],
    ) -> Program:
        """Return the program that computes `outputs`, without the nodes that they do not need."""
        needed: set[int] = set()
        rest = list(outputs)
        while rest:
            i = rest.pop()
            if i not in needed:
                needed.add(i)
                rest.extend(self.nodes[i].args)
        kept = sorted(needed)
        moved = {old: new for new, old in enumerate(kept)}
        nodes = tuple(
            self.nodes[i]._replace(args=tuple(moved[a] for a in self.nodes[i].args)) for i in kept
        )
        return Program(name, nodes, tuple(moved[i] for i in outputs), input_names, attr_names)


@cache
def is_arithmetic(expression: str) -> bool:
    """Return whether an expression computes with numbers, not with bits, choices, comparisons.

    Truth values must become integers first: as one-bit numbers, True + True would be False.
    """
    for node in ast.walk(ast.parse(expression.replace("{", "").replace("}", ""), mode="eval")):
        if isinstance(node, ast.BinOp) and not isinstance(
            node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)
        ):
            return True
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) != "tl.where":
            return True
    return False
