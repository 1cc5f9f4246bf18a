"""Random programs of views, in-place and other ops, a statement a line, for any module `t`."""

from __future__ import annotations

import random
from typing import Any

SHAPES = [(2, 3), (3, 2), (4,), (2, 2, 2), (3,), (), (1, 3)]
NUMBERS = [-1.5, -0.5, 0.25, 0.5, 1.25, 2.0]
Env = dict[str, Any]


class Author:
    """Writes a program line by line; each line suits the shapes that the names have by then."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._names = 0

    def _new(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _literal(self, shape: tuple[int, ...]) -> Any:
        if not shape:
            return self.rng.choice(NUMBERS)
        return [self._literal(shape[1:]) for _ in range(shape[0])]

    def _indices(self, n: int, count: int) -> list[int]:
        return [self.rng.randrange(n) for _ in range(count)]

    def opening(self) -> list[str]:
        """Return lines that make the first tensors."""
        return [
            f"{self._new()} = t.tensor({self._literal(self.rng.choice(SHAPES))}, dtype=t.float64, "
            f"requires_grad={self.rng.random() < 0.6})"
            for _ in range(self.rng.randint(2, 3))
        ]

    def line(self, env: Env) -> str:
        """Return one more statement."""
        names = [name for name in env if name.startswith("v")]
        a, b = self.rng.choice(names[-6:]), self.rng.choice(names)
        kind = self.rng.random()
        mode = ""
        if self.rng.random() < 0.1:
            mode = self.rng.choice(["with t.no_grad(): ", "with t.enable_grad(): "])
        if kind < 0.35:  # not under no_grad: see test_grad_modes on views taken there
            return f"{self._new()} = {self._view(a, tuple(env[a].shape))}"
        if kind < 0.6:
            return f"{mode}{self._new()} = {self._value(a, tuple(env[a].shape), b)}"
        if kind < 0.97:
            return mode + self._change(a, env[a], b)
        return f"{self._new()} = {a}.{self.rng.choice(['clone', 'detach'])}().requires_grad_()"

    def _view(self, a: str, shape: tuple[int, ...]) -> str:
        rng, n = self.rng, len(shape)
        choices = [
            *[f"{a}.unsqueeze({rng.randint(0, n)})", f"{a}.detach()", f"{a}.view_as({a})"],
            *[f"{a}.expand_as({a})", f"{a}[...]", f"{a}[None]"],
        ]
        if n:
            d, first = rng.randrange(n), shape[0]
            if first:
                choices += [
                    *[f"{a}[{rng.randrange(-first, first)}]", f"{a}[{rng.randrange(first)}:]"],
                    *[f"{a}[:{rng.randint(1, first)}]", f"{a}[::2]"],
                ]
            choices += [
                *[f"{a}[..., 0:{rng.randint(1, max(shape[-1], 1))}]", f"{a}[:, None]"],
                *[f"{a}.reshape(-1)", f"{a}.view(-1)", f"{a}.flatten()", f"{a}.squeeze()"],
                f"{a}.expand(2, {', '.join(map(str, shape))})",
            ]
            if shape[d] > 1:
                at = rng.randint(1, shape[d] - 1)
                choices += [
                    f"{a}.split([{at}, {shape[d] - at}], {d})[{rng.randrange(2)}]",
                    f"{a}.chunk(2, {d})[{rng.randrange(2)}]",
                ]
        if n > 1:
            order = ", ".join(map(str, rng.sample(range(n), n)))
            choices += [
                *[f"{a}.transpose(0, {rng.randrange(n)})", f"{a}.permute({order})", f"{a}.mT"],
                f"{a}[:, {rng.randrange(max(shape[1], 1))}]",
            ]
        return rng.choice(choices)

    def _value(self, a: str, shape: tuple[int, ...], b: str) -> str:
        choices = [
            *[
                f"{a} * {b}",
                f"{a} + {b}",
                f"{a} - {b}",
                f"{a} * 2.0",
                f"{a} + 3.0",
                f"1.0 - {a}",
                f"-{a}",
            ],
            *[
                f"t.tanh({a})",
                f"t.relu({a})",
                f"{a}.exp()",
                f"{a}.abs()",
                f"{a}.clone()",
                f"{a} * {a}",
            ],
            *[f"{a}.sum()", f"{a}.mean()", f"t.where({a} > 0, {a}, {b})", f"t.maximum({a}, {b})"],
            *[f"{a} / ({b} * {b} + 1.0)", f"t.cat([{a}, {a}])", f"{a}.contiguous()"],
        ]
        if shape:
            choices += [
                *[f"{a}.sum(0)", f"{a}.sum(-1, keepdim=True)", f"t.softmax({a}, -1)"],
                f"t.stack([{a}, {a}])",
            ]
            if shape[0]:
                picked = self._indices(shape[0], 3)
                choices += [f"{a}[t.tensor({picked})]", f"{a}[{a} > 0]", f"{a}.max(0)[0]"]
        if 0 < len(shape) < 3:  # PyTorch copies larger operands and so forgives changing them
            choices += [f"{a} @ {b}.reshape(-1)[:{shape[-1]}]"]
        return self.rng.choice(choices)

    def _change(self, a: str, x: Any, b: str) -> str:
        rng, shape, number = self.rng, tuple(x.shape), self.rng.choice([0.5, -1.5, 2.0])
        if any(n > 1 and step == 0 for n, step in zip(shape, x.stride(), strict=True)):
            # PyTorch lets one number be written all over it; tfw refuses every change alike.
            return f"{a}.mul_({b})"
        choices = [
            *[f"{a}.mul_({b})", f"{a}.add_({b})", f"{a}.sub_({b})", f"{a}.mul_({number})"],
            *[f"{a}.add_({number})", f"{a}.tanh_()", f"{a}.relu_()", f"{a}.neg_()", f"{a}.exp_()"],
            *[
                f"{a}.sqrt_()",
                f"{a}.abs_()",
                f"{a}.copy_({b})",
                f"{a}.fill_({number})",
                f"{a}.zero_()",
            ],
            *[f"{a} += {b}", f"{a} *= {b}", f"{a} -= {number}", f"{a} /= 2.0", f"{a}[...] = {b}"],
            *[
                f"{a}.add_({b}, alpha=2.0)",
                f"{a}.mul_({a})",
                f"{a}.add_({a})",
                f"{a}.mul_({b}.detach())",
            ],
            *[f"{a}.masked_fill_({a} > 0, {number})", f"{a}.masked_fill_({b} > 0, {number})"],
            *[f"{a}.masked_fill_({a} > 0.3, {b}.sum())", f"{a}.fill_({b}.sum())"],
            f"{a}.div_({b} * {b} + 1.0)",
        ]
        if shape and shape[0]:
            n = shape[0]
            i, j = rng.randrange(n), rng.randrange(n)
            some = self._indices(n, 2)
            choices += [
                *[
                    f"{a}[{i}] = {number}",
                    f"{a}[{i}] = {b}",
                    f"{a}[{i}] = {a}[{j}]",
                    f"{a}[{i}:] = {number}",
                ],
                *[f"{a}[{i}:] = {a}[:{n - i}]", f"{a}[{i}] += {b}", f"{a}[{i}] *= {number}"],
                *[f"{a}[{i}] *= {a}[{j}]", f"{a}[1:].mul_({a}[:-1])", f"{a}[{a} > 0] = {number}"],
                *[f"{a}[{a} > 0] = {b}.sum()", f"{a}[t.tensor({some})] = {number}"],
                *[f"{a}[t.tensor({sorted(set(some))})] = {b}", f"{a}[t.tensor([{i}])] += {number}"],
            ]
        return rng.choice(choices)

    def ending(self, env: Env) -> list[str]:
        """Return lines that differentiate a sum over some of the tensors, once or twice."""
        rng = self.rng
        names = [name for name in env if name.startswith("v")]
        used = [name for name in names if rng.random() < 0.6] or names[-1:]
        loss = " + ".join(f"({v} * {rng.choice([1.0, 2.0, -0.5])} * {v}).sum()" for v in used)
        leaves = ", ".join(v for v in names if env[v].requires_grad and env[v].is_leaf)
        if rng.random() < 0.7 or not leaves:
            return [f"loss = {loss}", "loss.backward()"]
        return [
            f"loss = {loss}",
            f"first = t.autograd.grad(loss, [{leaves}], create_graph=True, allow_unused=True)",
            "loss = sum((g * g).sum() for g in first if g is not None)",
            f"second = t.autograd.grad(loss, [{leaves}], materialize_grads=True)",
        ]
