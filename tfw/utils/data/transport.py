"""How batches travel from a worker to the loader's process: shared memory without names.

A message is a pickle whose arrays lie outside it (protocol 5). Small ones go through the
connection. Larger ones are written into a *segment*: anonymous memory (memfd) that the worker made,
whose file descriptor it sent once. The receiver's arrays are that memory; when the last of them is
dropped, the segment's number goes back to the worker, which writes the next batch there. So nothing
appears in /dev/shm, nothing outlives the processes however they end, and a steady loop maps no
memory and takes no page faults.

Measured on two cores, per message of 16 MiB: pickled through a pipe 40 ms, out of band through a
pipe 17, a fresh memfd per message 18, recycled segments 4.6. At 4 KiB: 37, 76, 105 and 30 us.
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from collections import deque
from collections.abc import Iterable, Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# Below this many bytes a copy through the connection costs no more than a segment does.
INLINE_BYTES = 1 << 14
# Free segments that a worker keeps for batches to come. More are there only after the loop held on
# to many batches for a while.
KEPT_SEGMENTS = 8
# Arrays start on cache lines.
_ALIGNMENT = 64
_PAGE = mmap.PAGESIZE


def _aligned(n: int) -> int:
    return -(-n // _ALIGNMENT) * _ALIGNMENT


def _capacity(n: int) -> int:
    """Round up by at most an eighth, so that batches of slightly different sizes share segments."""
    step = max(_PAGE, 1 << max(n.bit_length() - 4, 0))
    return -(-n // step) * step


def _anonymous_file(n_bytes: int) -> int:
    """Return the descriptor of memory that no file system names."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tfw-loader")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, n_bytes)
    return descriptor


class Sender:
    """The worker's end: writes messages, and knows which segments are free."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._segments: dict[int, Array] = {}
        self._free: set[int] = set()
        self._made = 0

    def release(self, numbers: Iterable[int]) -> None:
        """Take back segments that the receiver no longer looks at."""
        self._free.update(numbers)

    def send(self, head: tuple[Any, ...], content: object) -> None:
        """Send a small picklable `head` and any picklable content."""
        buffers: list[pickle.PickleBuffer] = []
        body = pickle.dumps(content, protocol=5, buffer_callback=buffers.append)
        parts = [memoryview(body), *(b.raw() for b in buffers)]
        total = sum(_aligned(p.nbytes) for p in parts)
        if total <= INLINE_BYTES:
            self._connection.send_bytes(pickle.dumps((head, None, [bytes(p) for p in parts])))
            return
        number, dropped = self._take(total)
        descriptor, capacity = -1, 0
        if number not in self._segments:
            capacity = _capacity(total)
            descriptor = _anonymous_file(capacity)
        try:
            if capacity:
                self._segments[number] = np.frombuffer(mmap.mmap(descriptor, capacity), np.uint8)
            extents = _write(parts, self._segments[number])
            where = (number, capacity, dropped)
            self._connection.send_bytes(pickle.dumps((head, where, extents)))
            if capacity:
                reduction.send_handle(self._connection, descriptor, os.getppid())
        finally:
            if capacity:
                os.close(descriptor)

    def _take(self, n_bytes: int) -> tuple[int, list[int]]:
        """Choose a free segment that fits, or a new number in place of one that is too small.

        Also returns the numbers of segments given up.
        """
        fitting = [k for k in self._free if self._segments[k].size >= n_bytes]
        kept = KEPT_SEGMENTS
        if fitting:
            number = min(fitting, key=lambda k: self._segments[k].size)
            self._free.remove(number)
        else:
            self._made += 1
            number = self._made
            kept = min(kept, max(len(self._free) - 1, 0))
        dropped = [self._free.pop() for _ in range(len(self._free) - kept)]
        for old in dropped:
            del self._segments[old]
        return number, dropped


def _write(parts: Sequence[memoryview], segment: Array) -> list[tuple[int, int]]:
    """Copy parts into a segment; returns where each starts and how long it is."""
    extents: list[tuple[int, int]] = []
    start = 0
    for part in parts:
        extents.append((start, part.nbytes))
        segment[start : start + part.nbytes] = np.frombuffer(part, np.uint8)
        start += _aligned(part.nbytes)
    return extents


class _Lease:
    """Memory of one message at the receiver; when its last array goes, the segment is free."""

    def __init__(self, number: int, segment: Array, free: deque[int]) -> None:
        self._number, self._free = number, free
        self._segment = segment  # keeps the mapping alive
        self.__array_interface__ = segment.__array_interface__

    def __del__(self) -> None:
        # May run in any thread and at any time: appending to a deque is all that is safe.
        self._free.append(self._number)


class Receiver:
    """The loader's end.

    Attributes:
        free: numbers of segments to report back to the worker.

    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._segments: dict[int, Array] = {}
        self.free: deque[int] = deque()

    def receive(self) -> tuple[tuple[Any, ...], Content]:
        """Wait for a message. EOFError or OSError when the worker is gone."""
        head, where, parts = pickle.loads(self._connection.recv_bytes())
        if where is None:
            # Arrays over bytes would be read-only.
            return head, Content([bytearray(p) for p in parts])
        number, capacity, dropped = where
        for old in dropped:
            del self._segments[old]
        if capacity:
            descriptor = reduction.recv_handle(self._connection)
            try:
                mapped = mmap.mmap(descriptor, capacity)
            finally:
                os.close(descriptor)
            self._segments[number] = np.frombuffer(mapped, np.uint8)
        memory = np.asarray(_Lease(number, self._segments[number], self.free))
        return head, Content([memory[start : start + n] for start, n in parts])

    def take_free(self) -> list[int]:
        """Return the numbers of segments freed since the last call."""
        return [self.free.popleft() for _ in range(len(self.free))]


class Content:
    """What a message carries, not yet unpickled: that may run the user's code, and fail."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts

    def load(self) -> Any:
        """Unpickle."""
        return pickle.loads(self._parts[0], buffers=self._parts[1:])
