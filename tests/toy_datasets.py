"""Datasets that the tests of the data package share."""

from __future__ import annotations

import gc
import multiprocessing
import os

import pytest

from tfw.utils.data import Dataset, IterableDataset


class Numbers(Dataset):
    def __init__(self, n, offset=0):
        self.n, self.offset = n, offset

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if not -self.n <= index < self.n:
            raise IndexError(index)
        return index % self.n + self.offset


class Batched(Numbers):
    def __getitems__(self, indices):
        return [100 + i for i in indices]


class Stream(IterableDataset):
    def __init__(self, *values):
        self.values = values

    def __iter__(self):
        return iter(self.values)


class Calls(Dataset):
    """Sample i is what a function returns for i."""

    def __init__(self, function, n=12):
        self.function, self.n = function, n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return self.function(index)


def same(index):
    return index


def raises(index):
    if index == 4:
        raise KeyError("no sample 4")
    return index


@pytest.fixture
def no_process_is_left():
    shared = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    yield
    gc.collect()  # a caught error holds the frames that it passed, and the loader's iterator there
    assert multiprocessing.active_children() == []
    if shared:
        assert {n for n in os.listdir("/dev/shm") if "tfw" in n} <= shared
