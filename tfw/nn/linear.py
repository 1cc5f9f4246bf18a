"""Linear and Identity."""

from __future__ import annotations

import math
from typing import Any

from tfw.dtypes import dtype
from tfw.nn import init
from tfw.nn.module import Module
from tfw.nn.parameter import Parameter
from tfw.ops.creation import empty
from tfw.ops.matmul import linear
from tfw.tensor import Tensor


class Identity(Module):
    """The input itself: y = x. Takes and ignores any arguments, so that it can stand for any layer.

    Shapes: the input's.
    Dtypes: all.
    Parameters: none.
    Errors: none.
    Source: elementary.
    Example: `nn.Identity(54, bias=True)(tfw.ones(2)).tolist() == [1.0, 1.0]`
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """Return the input."""
        return input


class Linear(Module):
    """An affine map of the last dim: y = x @ weight.T + bias.

    Shapes: input (..., in_features), result (..., out_features).
    Dtypes: floating, equal to the weight's.
    Parameters: weight (out_features, in_features) and bias (out_features,), both from U(-b, b) with
    b = 1 / sqrt(in_features).
    Errors: RuntimeError if input's last dim or dtype does not fit.
    Source: elementary.
    Example: `nn.Linear(4, 3)(tfw.ones(2, 4)).shape == (2, 3)`
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty(out_features, in_features, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the initial values anew."""
        # With slope sqrt(5) the bound is 1 / sqrt(fan_in), as for the bias.
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """Return input @ weight.T + bias."""
        return linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
