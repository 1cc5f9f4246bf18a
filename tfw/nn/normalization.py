"""LayerNorm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfw.dtypes import dtype
from tfw.nn import init
from tfw.nn.module import Module
from tfw.nn.parameter import Parameter
from tfw.ops.creation import empty
from tfw.ops.norm import layer_norm
from tfw.tensor import Tensor


class LayerNorm(Module):
    """Layer normalisation of the last dims: y = (x - mean) / sqrt(var + eps) * weight + bias.

    The variance is the biased one. Statistics are float32 for half types.

    Shapes: input (..., *normalized_shape), result the same.
    Dtypes: floating.
    Parameters: weight and bias (*normalized_shape), ones and zeros; none without
    elementwise_affine, no bias without `bias`.
    Errors: RuntimeError if input's shape does not end in normalized_shape.
    Source: Ba, Kiros and Hinton 2016, Layer Normalization, arXiv:1607.06450.
    Example: `nn.LayerNorm(4)(tfw.ones(2, 4)).tolist() == [[0.0] * 4] * 2`
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: dtype | None = None,
    ) -> None:
        super().__init__()
        shape = normalized_shape
        self.normalized_shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            parameter = None
            if wanted:
                parameter = Parameter(empty(*self.normalized_shape, device=device, dtype=dtype))
            self.register_parameter(name, parameter)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight to 1 and bias to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input."""
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the shape and options."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )
