"""Activations as modules: ReLU, GELU, Tanh, Softmax, LogSoftmax."""

from __future__ import annotations

from tfw.nn import functional
from tfw.nn.module import Module
from tfw.ops.activation import gelu
from tfw.ops.elementwise import tanh
from tfw.tensor import Tensor


class ReLU(Module):
    """Rectifier: y = max(x, 0), in the input's own memory if inplace.

    Shapes: the input's.
    Dtypes: all but bool.
    Parameters: none.
    Errors: RuntimeError for bool, or if inplace for a leaf that requires grad.
    Source: elementary.
    Example: `nn.ReLU()(tfw.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]`
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return max(input, 0)."""
        return functional.relu(input, self.inplace)

    def extra_repr(self) -> str:
        """Return inplace if it is on."""
        return "inplace=True" if self.inplace else ""


class GELU(Module):
    """GELU: y = x * (1 + erf(x / sqrt(2))) / 2, or its tanh form with approximate="tanh".

    Shapes: the input's.
    Dtypes: floating.
    Parameters: none.
    Errors: ValueError, when called, for another approximation.
    Source: Hendrycks and Gimpel 2016, Gaussian Error Linear Units, arXiv:1606.08415.
    Example: `nn.GELU()(tfw.zeros(2)).tolist() == [0.0, 0.0]`
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Return gelu(input)."""
        return gelu(input, self.approximate)

    def extra_repr(self) -> str:
        """Return the approximation."""
        return f"approximate={self.approximate!r}"


class Tanh(Module):
    """Hyperbolic tangent: y = tanh(x).

    Shapes: the input's.
    Dtypes: floating; integers become the default dtype.
    Parameters: none.
    Errors: none.
    Source: elementary.
    Example: `nn.Tanh()(tfw.zeros(2)).tolist() == [0.0, 0.0]`
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return tanh(input)."""
        return tanh(input)


class Softmax(Module):
    """Softmax along dim: y = exp(x) / sum(exp(x)).

    Shapes: the input's.
    Dtypes: floating.
    Parameters: none.
    Errors: IndexError, when called, for a dim out of range.
    Source: Bridle 1990, Probabilistic Interpretation of Feedforward Classification Network Outputs.
    Example: `nn.Softmax(dim=0)(tfw.zeros(2)).tolist() == [0.5, 0.5]`
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Return softmax(input) along dim."""
        return functional.softmax(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        """Return the dim."""
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """Logarithm of softmax along dim: y = x - log(sum(exp(x))).

    Shapes: the input's.
    Dtypes: floating.
    Parameters: none.
    Errors: IndexError, when called, for a dim out of range.
    Source: elementary.
    Example: `nn.LogSoftmax(dim=0)(tfw.zeros(1)).tolist() == [0.0]`
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Return log_softmax(input) along dim."""
        return functional.log_softmax(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        """Return the dim."""
        return f"dim={self.dim}"
