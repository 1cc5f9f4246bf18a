"""DataLoader in one process: PyTorch's behaviour, by hand or from PyTorch 2.13."""

from __future__ import annotations

from typing import Any

import pytest
from toy_datasets import Batched, Numbers, Stream

import tfw
from tfw.errors import ValueRangeError
from tfw.utils.data import (
    DataLoader,
    get_worker_info,
)

ONE: Any = 1  # what no type checker would let pass


def test_batches_and_length():
    loader = DataLoader(Numbers(7), batch_size=3)
    assert [b.tolist() for b in loader] == [[0, 1, 2], [3, 4, 5], [6]]
    assert len(loader) == len(iter(loader)) == 3
    assert [b.tolist() for b in DataLoader(Numbers(7), 3, drop_last=True)] == [[0, 1, 2], [3, 4, 5]]
    assert list(DataLoader(Numbers(3), batch_size=None)) == [0, 1, 2]
    assert len(DataLoader(Numbers(3), batch_size=None)) == 3


def test_two_passes_at_once():
    loader = DataLoader(Numbers(4), batch_size=2)
    assert [(a.tolist(), b.tolist()) for a, b in zip(loader, loader, strict=True)] == [
        ([0, 1], [0, 1]),
        ([2, 3], [2, 3]),
    ]


def test_shuffle_follows_the_seed():
    def order():
        return [i for b in DataLoader(Numbers(50), 8, shuffle=True) for i in b.tolist()]

    tfw.manual_seed(1)
    first, second = order(), order()
    tfw.manual_seed(1)
    assert order() == first != second
    generator = tfw.Generator().manual_seed(9)
    tfw.manual_seed(2)
    state = tfw.get_rng_state().tolist()
    own = DataLoader(Numbers(9), 3, shuffle=True, generator=generator)
    assert sorted(i for b in own for i in b.tolist()) == list(range(9))
    assert tfw.get_rng_state().tolist() == state


def test_samplers_and_getitems():
    assert [b.tolist() for b in DataLoader(Numbers(9), 2, sampler=[4, 2, 8])] == [[4, 2], [8]]
    batches = DataLoader(Batched(9), batch_sampler=[[1], [2, 3]])
    assert [b.tolist() for b in batches] == [[101], [102, 103]]
    assert batches.batch_size is None
    assert list(DataLoader(Batched(9), 2, sampler=[1, 2], collate_fn=lambda b: b)) == [[101, 102]]


def test_iterable_dataset():
    assert [b.tolist() for b in DataLoader(Stream(1, 2, 3), 2)] == [[1, 2], [3]]
    assert [b.tolist() for b in DataLoader(Stream(1, 2, 3), 2, drop_last=True)] == [[1, 2]]
    assert list(DataLoader(Stream(1, 2, 3), batch_size=None)) == [1, 2, 3]
    assert get_worker_info() is None
    with pytest.raises(TypeError, match="has no len"):
        len(DataLoader(Stream(1, 2, 3)))


def test_iterable_dataset_that_promised_less_warns():
    class Liar(Stream):
        def __len__(self):
            return 2

    loader = DataLoader(Liar(1, 2, 3), batch_size=1)
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="promised 2 batches"):
        list(loader)


def test_stop_iteration_of_a_dataset_does_not_end_the_loop_silently():
    class Stops(Numbers):
        def __getitem__(self, index):
            raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(DataLoader(Stops(3)))


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"num_workers": -1}, "num_workers"),
        ({"timeout": -1}, "timeout"),
        ({"prefetch_factor": 2}, "prefetch_factor"),
        ({"prefetch_factor": 0, "num_workers": 1}, "prefetch_factor"),
        ({"persistent_workers": True}, "persistent_workers"),
        ({"sampler": [1], "shuffle": True}, "sampler"),
        ({"batch_sampler": [[1]], "batch_size": 2}, "batch_sampler"),
        ({"batch_sampler": [[1]], "drop_last": True}, "batch_sampler"),
        ({"batch_sampler": [[1]], "shuffle": True}, "batch_sampler"),
        ({"batch_sampler": [[1]], "sampler": [1]}, "batch_sampler"),
        ({"batch_size": None, "drop_last": True}, "drop_last"),
        ({"batch_size": 0}, "batch_size"),
        ({"multiprocessing_context": "fork"}, "multiprocessing_context"),
        ({"multiprocessing_context": "thread", "num_workers": 1}, "multiprocessing_context"),
        ({"dataset": Stream(1), "shuffle": True}, "shuffle"),
        ({"dataset": Stream(1), "sampler": [1]}, "sampler"),
        ({"dataset": Stream(1), "batch_sampler": [[1]]}, "batch_sampler"),
    ],
)
def test_loader_rejects(options, argument):
    arguments: Any = {"dataset": Numbers(3), **options}
    with pytest.raises(ValueRangeError, match=argument) as caught:
        DataLoader(**arguments)
    assert isinstance(caught.value, ValueError)
    assert caught.value.argument == argument


def test_loader_rejects_a_wrong_context():
    with pytest.raises(TypeError, match="multiprocessing_context=1"):
        DataLoader(Numbers(3), num_workers=1, multiprocessing_context=ONE)


def test_loader_is_fixed_once_made():
    loader = DataLoader(Numbers(3))
    with pytest.raises(ValueError, match="batch_size cannot be changed"):
        loader.batch_size = 2
    loader.timeout = 3  # as in PyTorch, what does not change the order may change


def test_pin_memory_changes_nothing_on_the_cpu():
    assert [b.tolist() for b in DataLoader(Numbers(2), 2, pin_memory=True)] == [[0, 1]]
