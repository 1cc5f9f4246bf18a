"""Generator: a stream of random numbers, and the default one.

It holds a seed and an offset that counts Philox calls; each draw takes a range of offsets, so a
seed gives the same bits on every device.
"""

from __future__ import annotations

import os
import struct
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.errors import ArgumentError, ShapeError, ValueRangeError
from tfw.ops.convert import as_device
from tfw.ops.data import tensor
from tfw.tensor import Tensor

_DEFAULT_SEED = 67280421310721  # PyTorch's too


class Generator:
    """A stream of random numbers: a seed, and how many Philox calls it has given out.

    Errors: RuntimeError for an unknown device.
    Example: `Generator().manual_seed(3).initial_seed() == 3`
    """

    def __init__(self, device: Any = "cpu") -> None:
        self.device = as_device(device)
        self._seed, self._offset = _DEFAULT_SEED, 0

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed` anew."""
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise ArgumentError(
                f"seed={seed!r} is no integer", op="manual_seed", argument="seed", value=seed
            )
        seed = seed.__index__()
        if not -(1 << 63) <= seed < 1 << 64:
            raise ValueRangeError(
                f"seed={seed}",
                op="manual_seed",
                argument="seed",
                value=seed,
                rule="-2^63 <= seed < 2^64",
            )
        self._seed, self._offset = seed % (1 << 64), 0
        return self

    def seed(self) -> int:
        """Seed from the system's entropy and return the seed."""
        seed = int.from_bytes(os.urandom(8), "little") >> 1
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """Return the seed."""
        return self._seed

    def take(self, calls: int) -> tuple[int, int]:
        """Give out a range of Philox calls: (seed, first offset)."""
        first = self._offset
        self._offset += calls
        return self._seed, first

    def get_state(self) -> Tensor:
        """Return the state as 16 bytes."""
        return tensor(np.frombuffer(struct.pack("<QQ", self._seed, self._offset), np.uint8))

    def set_state(self, new_state: Tensor) -> Generator:
        """Go on from a state that `get_state` gave. RuntimeError for another tensor."""
        if (
            not isinstance(new_state, Tensor)  # pyright: ignore[reportUnnecessaryIsInstance]
            or new_state.dtype is not dtypes.uint8
            or new_state._a.size != 16
        ):
            raise ShapeError(
                "new_state is no state of a Generator",
                op="set_state",
                argument="new_state",
                rule="16 bytes, uint8",
            )
        self._seed, self._offset = struct.unpack("<QQ", bytes(new_state.tolist()))
        return self

    def clone_state(self) -> Generator:
        """Return a Generator that goes on from the same state."""
        twin = Generator(self.device)
        twin._seed, twin._offset = self._seed, self._offset
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return _generator, (str(self.device), self._seed, self._offset)


def _generator(where: str, seed: int, offset: int) -> Generator:
    result = Generator(where)
    result._seed, result._offset = seed, offset
    return result


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, which random functions use unless given another; returns it.

    Shapes: none.
    Dtypes: none.
    Errors: TypeError unless seed is an integer, ValueError outside -2^63 <= seed < 2^64.
    Source: elementary.
    Example: `tfw.manual_seed(0).initial_seed() == 0`
    """
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the system's entropy; returns the seed.

    Shapes: none.
    Dtypes: none.
    Errors: none.
    Source: elementary.
    Example: `tfw.seed() == tfw.initial_seed()`
    """
    return default_generator.seed()


def initial_seed() -> int:
    """Return the default generator's seed.

    Shapes: none.
    Dtypes: none.
    Errors: none.
    Source: elementary.
    Example: `tfw.initial_seed() == tfw.default_generator.initial_seed()`
    """
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """Return the default generator's state, for `set_rng_state`.

    Shapes: (16,).
    Dtypes: uint8.
    Errors: none.
    Source: elementary.
    Example: `tfw.get_rng_state().shape == (16,)`
    """
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Continue the default generator from a state that `get_rng_state` gave.

    Shapes: (16,).
    Dtypes: uint8.
    Errors: RuntimeError for a tensor that is no such state.
    Source: elementary.
    Example: `tfw.set_rng_state(tfw.get_rng_state()) is None`
    """
    default_generator.set_state(new_state)
