"""Dropout."""

from __future__ import annotations

from tfw.nn.module import Module
from tfw.ops.dropout import check_probability, dropout
from tfw.tensor import Tensor


class Dropout(Module):
    """In training, zero each element with probability p and divide the others by 1 - p; else y = x.

    Shapes: the input's.
    Dtypes: floating.
    Parameters: none.
    Errors: ValueError unless 0 <= p <= 1.
    Source: Srivastava et al. 2014, Dropout: A Simple Way to Prevent Neural Networks from
    Overfitting.
    Example: `nn.Dropout(0.5).eval()(tfw.ones(2)).tolist() == [1.0, 1.0]`
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        check_probability("Dropout", p)
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with some elements dropped, if training."""
        return dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        """Return the options."""
        return f"p={self.p}, inplace={self.inplace}"
