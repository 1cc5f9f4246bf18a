"""Datasets, samplers and collation: PyTorch's behaviour, by hand or from PyTorch 2.13."""

from __future__ import annotations

from collections import Counter, OrderedDict, UserDict
from typing import Any, NamedTuple

import numpy as np
import pytest
from toy_datasets import Batched, Numbers, Stream

import tfw
from tfw.errors import ShapeError, ValueRangeError
from tfw.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    random_split,
)

# What no type checker would let pass.
ONE: Any = 1
ZERO: Any = 0
NOTHING: Any = None


class Point(NamedTuple):
    x: Any
    y: Any


# ---- datasets


def test_tensor_dataset():
    x, y = tfw.arange(6).reshape(3, 2), tfw.tensor([7, 8, 9])
    dataset = TensorDataset(x, y)
    assert len(dataset) == 3
    assert [t.tolist() for t in dataset[1]] == [[2, 3], 8]
    assert [t.tolist() for t in dataset[1:]] == [[[2, 3], [4, 5]], [8, 9]]


@pytest.mark.parametrize("shapes", [[(3, 2), (4,)], [()], []])
def test_tensor_dataset_rejects(shapes):
    with pytest.raises(ShapeError, match="TensorDataset: tensors of shapes"):
        TensorDataset(*[tfw.zeros(*s) for s in shapes])


def test_concat_dataset():
    dataset: Any = Numbers(2) + Numbers(3, offset=10)
    assert dataset.cumulative_sizes == [2, 5]
    assert list(dataset) == [0, 1, 10, 11, 12]
    assert dataset[-1] == 12
    assert dataset[-5] == 0
    with pytest.raises(ValueError, match="index=-6 is out of range for 5 samples"):
        dataset[-6]
    with pytest.raises(ValueError, match="there is no dataset"):
        ConcatDataset([])
    with pytest.raises(TypeError, match="ChainDataset"):
        ConcatDataset([Stream(1)])


def test_chain_dataset():
    assert list(Stream(1, 2) + Stream(3)) == [1, 2, 3]
    with pytest.raises(TypeError, match="Numbers is not an IterableDataset"):
        list(ChainDataset([Numbers(2)]))


def test_stack_dataset():
    a, b = Numbers(2), Batched(2)
    assert StackDataset(a, b)[1] == (1, 101)
    assert StackDataset(a=a, b=b).__getitems__([1, 0]) == [{"a": 1, "b": 101}, {"a": 0, "b": 100}]
    with pytest.raises(ValueError, match=r"lengths \[2, 3\]"):
        StackDataset(a, Numbers(3))
    with pytest.raises(ValueError, match="1 positional and 1 named"):
        StackDataset(a, b=b)


def test_subset():
    subset = Subset(Numbers(10), [7, 3, 5])
    assert len(subset) == 3
    assert [subset[i] for i in range(3)] == [7, 3, 5]
    assert subset.__getitems__([2, 0]) == [5, 7]
    assert Subset(Batched(10), [7, 3]).__getitems__([1]) == [103]


def test_subset_with_own_getitem_is_used_for_batches():
    class Doubled(Subset):
        def __getitem__(self, index):
            return 2 * super().__getitem__(index)

    (batch,) = DataLoader(Doubled(Batched(10), [7, 3]), batch_size=2)
    assert batch.tolist() == [14, 6]


def test_abstract_bases_say_what_is_missing():
    with pytest.raises(NotImplementedError, match="__getitem__"):
        Dataset()[0]
    with pytest.raises(NotImplementedError, match="__iter__"):
        iter(IterableDataset())
    with pytest.raises(NotImplementedError, match="__iter__"):
        iter(Sampler())


@pytest.mark.parametrize(
    ("n", "lengths", "expected"),
    [
        (10, [7, 3], [7, 3]),
        (10, [0.7, 0.3], [7, 3]),
        (10, [1 / 3, 1 / 3, 1 / 3], [4, 3, 3]),  # PyTorch gives the rest to the first parts
        (11, [0.5, 0.25, 0.25], [6, 3, 2]),
        (5, [0.9, 0.1], [5, 0]),
    ],
)
@pytest.mark.filterwarnings("ignore:random_split")
def test_random_split(n, lengths, expected):
    parts = random_split(Numbers(n), lengths, tfw.Generator().manual_seed(1))
    assert [len(p) for p in parts] == expected
    assert sorted(i for p in parts for i in p.indices) == list(range(n))
    again = random_split(Numbers(n), lengths, tfw.Generator().manual_seed(1))
    assert [p.indices for p in parts] == [p.indices for p in again]


def test_random_split_warns_of_an_empty_part():
    with pytest.warns(UserWarning, match="part 1 has no samples"):
        random_split(Numbers(2), [0.9, 0.1])


@pytest.mark.parametrize("lengths", [[3, 3], [1.5, -0.5], [0.5, 0.4], [12, -2], []])
def test_random_split_rejects(lengths):
    with pytest.raises(ValueRangeError, match="random_split") as caught:
        random_split(Numbers(10), lengths)
    assert caught.value.argument == "lengths"


# ---- samplers


def test_sequential_sampler():
    assert list(SequentialSampler("abcd")) == [0, 1, 2, 3]
    assert len(SequentialSampler("abcd")) == 4


def test_random_sampler_is_a_permutation_and_repeats_with_the_seed():
    tfw.manual_seed(5)
    first = list(RandomSampler(range(100)))
    second = list(RandomSampler(range(100)))
    tfw.manual_seed(5)
    assert list(RandomSampler(range(100))) == first
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second
    assert first != list(range(100))


def test_random_sampler_draws_one_seed_from_the_global_state():
    states = []
    for n in (3, 3000):
        tfw.manual_seed(0)
        list(RandomSampler(range(n)))
        states.append(tfw.get_rng_state().tolist())
    assert states[0] == states[1]


def test_random_sampler_num_samples():
    generator = tfw.Generator().manual_seed(0)
    assert Counter(RandomSampler("ab", num_samples=6, generator=generator)) == {0: 3, 1: 3}
    some = list(RandomSampler("abc", num_samples=2, generator=generator))
    assert len(set(some)) == 2
    drawn = list(RandomSampler("ab", replacement=True, num_samples=400, generator=generator))
    assert len(drawn) == 400
    assert 150 < sum(drawn) < 250


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: RandomSampler("ab", replacement=ONE), TypeError),
        (lambda: RandomSampler("ab", num_samples=0), ValueError),
        (lambda: RandomSampler(""), ValueError),
        (lambda: WeightedRandomSampler([1.0], 0), ValueError),
        (lambda: WeightedRandomSampler([1.0], True), ValueError),
        (lambda: WeightedRandomSampler([1.0], 1, replacement=NOTHING), ValueError),
        (lambda: WeightedRandomSampler([[1.0]], 1), ValueError),
        (lambda: BatchSampler([1], 0, False), ValueError),
        (lambda: BatchSampler([1], True, False), ValueError),
        (lambda: BatchSampler([1], 1, ZERO), ValueError),
        (lambda: list(WeightedRandomSampler([0.0, 1.0], 2, replacement=False)), RuntimeError),
        (lambda: list(WeightedRandomSampler([0.0, -1.0], 2)), RuntimeError),
    ],
)
def test_samplers_reject(make, error):
    with pytest.raises(error):
        make()


def test_weighted_sampler_follows_the_weights():
    generator = tfw.Generator().manual_seed(0)
    drawn = Counter(WeightedRandomSampler([1, 0, 3], 4000, generator=generator))
    assert set(drawn) == {0, 2}
    assert 900 < drawn[0] < 1100  # binomial with p = 1/4: standard deviation 27
    order = list(WeightedRandomSampler([1, 0, 3], 2, replacement=False, generator=generator))
    assert sorted(order) == [0, 2]


def test_subset_random_sampler():
    assert sorted(SubsetRandomSampler([9, 4, 6])) == [4, 6, 9]
    assert len(SubsetRandomSampler([9, 4, 6])) == 3


@pytest.mark.parametrize(
    ("drop_last", "expected"),
    [(False, [[0, 1, 2], [3, 4, 5], [6]]), (True, [[0, 1, 2], [3, 4, 5]])],
)
def test_batch_sampler(drop_last, expected):
    sampler = BatchSampler(range(7), 3, drop_last)
    assert list(sampler) == expected
    assert len(sampler) == len(expected)


# ---- collation


@pytest.mark.parametrize(
    ("batch", "dtype", "values"),
    [
        ([1, 2], tfw.int64, [1, 2]),
        ([1.5, 2.0], tfw.float64, [1.5, 2.0]),
        ([True, False], tfw.bool, [True, False]),
        ([tfw.ones(2), tfw.zeros(2)], tfw.float32, [[1, 1], [0, 0]]),
        ([np.float32(1.5), np.float32(2)], tfw.float32, [1.5, 2.0]),
        ([np.int16(1), np.int16(2)], tfw.int16, [1, 2]),
        ([np.bool_(True), np.bool_(False)], tfw.bool, [True, False]),
        ([np.arange(2, dtype=np.uint8)] * 2, tfw.uint8, [[0, 1], [0, 1]]),
    ],
)
def test_collate_leaves(batch, dtype, values):
    result = default_collate(batch)
    assert result.dtype is dtype
    assert result.tolist() == values


def test_collate_containers():
    samples = [
        OrderedDict(a=(1, "p"), b=[2.0], c=Point(1, b"u")),
        OrderedDict(a=(3, "q"), b=[4.0], c=Point(5, b"v")),
    ]
    result = default_collate(samples)
    assert type(result) is OrderedDict
    assert result["a"][0].tolist() == [1, 3]
    assert result["a"][1] == ["p", "q"]
    assert type(result["a"]) is list  # a plain tuple becomes a list, as in PyTorch
    assert result["b"][0].tolist() == [2.0, 4.0]
    assert type(result["c"]) is Point
    assert result["c"].x.tolist() == [1, 5]
    assert result["c"].y == [b"u", b"v"]


def test_collate_keeps_gradients():
    x = tfw.ones(2, requires_grad=True)
    default_collate([x, x * 2]).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]


def test_collate_does_not_change_the_samples():
    sample = {"a": 1}
    default_collate([sample, sample])
    assert sample == {"a": 1}


def test_collate_other_mappings():
    result = default_collate([UserDict(a=1), UserDict(a=2)])
    assert type(result) is UserDict
    assert result["a"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("batch", "where"),
    [
        (
            [tfw.zeros(2), tfw.zeros(3)],
            r"default_collate: sample 1 .*shape \(3,\), sample 0 has \(2,\)",
        ),
        (
            [{"x": (1, tfw.zeros(2))}, {"x": (1, tfw.zeros(3))}],
            r"\['x'\]\[1\]: sample 1 of the batch",
        ),
        ([Point(1, np.zeros(2)), Point(1, np.zeros(3))], r"\.y: sample 1 of the batch has shape"),
        ([[1, 2], [1, 2], [1]], "sample 2 of the batch has 1 elements, sample 0 has 2"),
        ([{"x": [1]}, {"x": [1, 2]}], r"\['x'\]: sample 1 of the batch has 2 elements"),
    ],
)
def test_collate_names_the_ragged_element(batch, where):
    with pytest.raises(RuntimeError, match=where):
        default_collate(batch)


def test_collate_rejects():
    with pytest.raises(TypeError, match=r"\['x'\] holds object"):
        default_collate([{"x": object()}])
    with pytest.raises(TypeError, match="NumPy array of dtype <U1"):
        default_collate([np.array(["a"])])
    with pytest.raises(KeyError, match="sample 1 of the batch lacks key"):
        default_collate([{"x": 1}, {"y": 1}])
    with pytest.raises(TypeError, match="NoneType"):
        default_collate([None])


def test_convert():
    result = default_convert({"a": np.arange(2), "b": (1, "x"), "c": Point(np.float32(2), None)})
    assert result["a"].tolist() == [0, 1]
    assert result["b"] == [1, "x"]
    assert result["c"].x.dtype is tfw.float32
    assert result["c"].y is None
    words = np.array(["a", "b"])
    assert default_convert(words) is words
