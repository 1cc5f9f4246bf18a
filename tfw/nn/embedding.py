"""Embedding: a table of vectors, looked up by index."""

from __future__ import annotations

from typing import Any

from tfw.dtypes import dtype
from tfw.errors import NoKernelError, ShapeError, ValueRangeError
from tfw.nn import functional, init
from tfw.nn.module import Module
from tfw.nn.parameter import Parameter
from tfw.ops.creation import empty
from tfw.tensor import Tensor


class Embedding(Module):
    """Rows of a table: y[...] = weight[index[...]].

    Row `padding_idx` starts at 0 and gets no gradient. With max_norm, rows that are looked up and
    whose norm (of order norm_type) is larger are first scaled down to it, in place.
    The gradient is dense: sparse=True and scale_grad_by_freq=True are refused.

    Shapes: input (*), result (*, embedding_dim).
    Dtypes: input int32 or int64; the result has the weight's.
    Parameters: weight (num_embeddings, embedding_dim) from N(0, 1).
    Errors: IndexError for an index outside the table, ValueError for such a padding_idx.
    Source: elementary.
    Example: `nn.Embedding(10, 3)(tfw.tensor([[1, 2]])).shape == (1, 2, 3)`
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueRangeError(
                    f"padding_idx={padding_idx} is outside a table of {num_embeddings} rows",
                    op="Embedding",
                    argument="padding_idx",
                    value=padding_idx,
                    rule=f"{-num_embeddings} <= padding_idx < {num_embeddings}",
                )
            padding_idx %= num_embeddings
        for name, asked in (("scale_grad_by_freq", scale_grad_by_freq), ("sparse", sparse)):
            if asked:
                raise NoKernelError(
                    f"{name}=True is not supported; the gradient is dense and unscaled",
                    op="Embedding",
                    argument=name,
                    value=asked,
                )
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            table = empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
            self.weight = Parameter(table, requires_grad=not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise ShapeError(
                    f"_weight has shape {tuple(_weight.shape)}",
                    op="Embedding",
                    argument="_weight",
                    value=tuple(_weight.shape),
                    rule=f"({num_embeddings}, {embedding_dim})",
                )
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """Return an Embedding that shares a given table's memory; it is not trained if freeze.

        Errors: RuntimeError unless the table has two dims.
        """
        if embeddings.ndim != 2:
            raise ShapeError(
                f"embeddings has shape {tuple(embeddings.shape)}",
                op="Embedding.from_pretrained",
                argument="embeddings",
                value=tuple(embeddings.shape),
                rule="two dims",
            )
        rows, columns = embeddings.shape
        return cls(
            num_embeddings=rows,
            embedding_dim=columns,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
            _weight=embeddings,
            _freeze=freeze,
        )

    def reset_parameters(self) -> None:
        """Draw the initial values anew; row padding_idx becomes 0."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight.detach()[self.padding_idx])

    def forward(self, input: Tensor) -> Tensor:
        """Return the rows at the indices."""
        return functional.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type
        )

    def extra_repr(self) -> str:
        """Return the sizes and what differs from the defaults."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        return text
