"""Loading files that someone forged or that were damaged: always found, never acted on."""

from __future__ import annotations

import contextlib
import io
import struct
from collections import OrderedDict

import numpy as np
import pytest
from checkpoints import DTYPES, again, alike, at, bits, forge, loaded, saved, sealed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tfw
from tfw.errors import CheckpointError
from tfw.serialization import load, save

# ---- forged files: their checksums are right, so only the checks of each field stand in the way


def node(**changes):
    return lambda f: at(f)[1].update(changes)


def entry(**changes):
    return lambda f: f["header"]["tensor"].update(changes)


def replaced(value):
    return lambda f: f["tree"].update(obj=value)


def text(tree):
    return lambda f: f.update(text=tree)


FORGERIES = {
    "stride": node(stride=[1 << 40, 1]),
    "stride, negative": node(stride=[-3, 1]),
    "stride, huge": node(stride=[1 << 70, 1]),
    "stride, few": node(stride=[1]),
    "stride, text": node(stride=["3", 1]),
    "shape": node(shape=[3, 3]),
    "shape, huge": node(shape=[1 << 62, 1 << 62], stride=[0, 0]),
    "shape, empty and huge": lambda f: (
        at(f)[1].pop("storage"),
        at(f)[1].update(shape=[0, 1 << 62, 8]),
    ),
    "shape, negative": node(shape=[-1, 3]),
    "shape, bool": node(shape=[True, 3]),
    "shape, many": node(shape=[1] * 65),
    "shape, missing": lambda f: at(f)[1].pop("shape"),
    "offset": node(offset_bytes=8),
    "offset, negative": node(offset_bytes=-4),
    "offset, float": node(offset_bytes=0.0),
    "dtype": node(dtype="float128"),
    "dtype, wide": node(dtype="float64"),
    "dtype, list": node(dtype=[]),
    "dtype, of arrays": node(dtype="uint16"),
    "storage": node(storage="other"),
    "storage, list": node(storage=[]),
    "storage, checksums": node(storage="__checksums__"),
    "storage, missing": lambda f: at(f)[1].pop("storage"),
    "device": node(device="tpu"),
    "class": node(**{"class": "os.system"}),
    "field": node(code="1"),
    "requires_grad": node(dtype="int32", requires_grad=True),
    "attributes": node(attributes={"_node": 1}),
    "attributes, method": node(attributes={"backward": 1}),
    "attributes, list": node(attributes=["list"]),
    "tag": replaced(["call", "os.system", "true"]),
    "tag, none": replaced([]),
    "tag, number": replaced([1, 2]),
    "same": replaced(["same", 0]),
    "same, negative": replaced(["list", ["list"], ["same", -1]]),
    "same, text": replaced(["list", ["list"], ["same", "0"]]),
    "key": replaced(["dict", [["list"], 1]]),
    "key, twice": replaced(["dict", [1, 1], [True, 2]]),
    "pair": replaced(["dict", [1]]),
    "set": replaced(["set", ["list"]]),
    "float": replaced(["float", "00"]),
    "float, missing": replaced(["float"]),
    "int": replaced(["int", "12"]),
    "bytes": replaced(["bytes", "***"]),
    "dtype value": replaced(["dtype", "os"]),
    "device value": replaced(["device", "x:y"]),
    "size": replaced(["size", "1"]),
    "scalar": replaced(["scalar", "float32", "AAAA"]),
    "scalar, object": replaced(["scalar", "object", "AAAAAAAAAAA="]),
    "ndarray": replaced(["ndarray", {"dtype": "float32", "shape": [3]}]),
    "deep": text('{"obj":' + '["list",' * 5000 + "1" + "]" * 5000 + "}"),
    "deep dict": text('{"obj":' + '{"a":' * 500 + "1" + "}" * 501),
    "tree": text("{"),
    "tree, list": text("[1]"),
    "tree, NaN": text('{"obj":NaN}'),
    "tree, twice": text('{"obj":1,"obj":2}'),
    "tree, without": text('{"a":2}'),
    "version": lambda f: f["header"]["__metadata__"].update({"tfw.version": "2"}),
    "metadata, number": lambda f: f["header"]["__metadata__"].update({"n": 1}),
    "metadata, without": lambda f: f["header"]["__metadata__"].pop("tfw.tree"),
    "entry, size": entry(shape=[2, 4]),
    "entry, huge": entry(shape=[1 << 62, 1 << 62]),
    "entry, offsets": entry(data_offsets=[4, 28]),
    "entry, reversed": entry(data_offsets=[24, 0]),
    "entry, three": entry(data_offsets=[0, 24, 24]),
    "entry, negative": entry(data_offsets=[-24, 0]),
    "entry, dtype": entry(dtype="F128"),
    "entry, field": entry(extra=1),
    "entry, list": lambda f: f["header"].update(tensor=[]),
    "entry, overlap": lambda f: f["header"].update(
        two={"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    ),
    "entry, far": lambda f: f["header"].update(
        two={"dtype": "F32", "shape": [2], "data_offsets": [1 << 40, (1 << 40) + 8]}
    ),
    "no checksums": lambda f: f["header"].pop("__checksums__"),
    "no entries": lambda f: [f["header"].pop(k) for k in ("tensor", "__checksums__")],
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_headers(tmp_path, name):
    genuine = saved(tfw.arange(6, dtype=tfw.float32).reshape(2, 3))
    forged = forge(genuine, FORGERIES[name])
    path = tmp_path / "x"
    path.write_bytes(forged)
    for file, mmap in ((io.BytesIO(forged), False), (path, False), (path, True)):
        with pytest.raises(CheckpointError) as caught:
            load(file, mmap=mmap)
        assert caught.value.op == "load"
    unchanged = loaded(forge(genuine, lambda f: None))
    assert unchanged.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_duplicate_names_in_the_header():
    data = saved(tfw.ones(2))
    (n,) = struct.unpack_from("<Q", data)
    text = data[8 : 8 + n].decode().rstrip().replace('"tensor":{', '"tensor":{"dtype":"F32",', 1)
    with pytest.raises(CheckpointError, match="a name comes twice"):
        loaded(sealed(text, data[8 + n :]))


def test_memory_that_no_machine_has():
    size = 1 << 61
    forged = forge(
        saved(tfw.zeros(2, dtype=tfw.uint8)),
        lambda f: (
            f["header"]["tensor"].update(shape=[size], data_offsets=[0, size]),
            f["header"]["__checksums__"].update(data_offsets=[size, size + 8]),
        ),
    )
    with pytest.raises(CheckpointError):
        loaded(forged)


def test_damage_is_named(tmp_path):
    path = tmp_path / "x.tfw"
    save({"first": tfw.zeros(100), "second": tfw.zeros(100)}, path)
    data = bytearray(path.read_bytes())
    data[-500] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"'(first|second)' does not match its checksum"):
        load(path)
    path.write_bytes(bytes(data) + b"x")
    with pytest.raises(CheckpointError, match="something follows"):
        load(path)
    path.write_bytes(bytes(data)[:-1])
    with pytest.raises(CheckpointError, match="it is cut"):
        load(path)


# ---- properties

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(allow_nan=True),
    st.text(st.characters(), max_size=8),
    st.binary(max_size=8),
    st.sampled_from(DTYPES),
)
tensors = st.builds(
    lambda dtype, shape, start: bits(dtype, int(np.prod(shape)) + start)[start:].reshape(shape),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 2),
)
keys = st.one_of(st.text(max_size=4), st.integers(), st.booleans(), st.none(), st.tuples(st.text()))
nestings = st.recursive(
    st.one_of(scalars, tensors),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
    ),
    max_leaves=12,
)
quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(nestings)
def test_any_nesting_comes_back(obj):
    assert alike(again(obj), obj)


GENUINE = {
    "model": OrderedDict(w=tfw.arange(12.0).reshape(3, 4), b=tfw.ones(2, dtype=tfw.bfloat16)),
    "view": tfw.arange(6)[1:4],
    "steps": [1, 2.5, ("x", None), {3: b"y"}],
}
GENUINE_BYTES = saved(GENUINE)


@quick
@given(st.integers(0, len(GENUINE_BYTES) - 1), st.integers(1, 255))
def test_a_changed_byte_is_always_found(position, change):
    damaged = bytearray(GENUINE_BYTES)
    damaged[position] ^= change
    with pytest.raises(CheckpointError):
        loaded(bytes(damaged))


def test_every_single_bit_of_the_header_counts():
    (n,) = struct.unpack_from("<Q", GENUINE_BYTES)
    for position in range(0, 8 + n, 3):
        damaged = bytearray(GENUINE_BYTES)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(CheckpointError):
            loaded(bytes(damaged))


@quick
@given(st.integers(0, len(GENUINE_BYTES) - 1))
def test_a_cut_file_is_always_found(length):
    with pytest.raises(CheckpointError):
        loaded(GENUINE_BYTES[:length])


@quick
@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data):
    with pytest.raises(CheckpointError):
        loaded(data)


TAGS = [
    *("list", "tuple", "dict", "ordered", "set", "counter", "same", "float", "int", "bytes"),
    *("size", "scalar", "dtype", "device", "complex", "ndarray", "tensor"),
]
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["dtype", "shape", "stride", "storage", "offset_bytes", "x"]), inner
        ),
        st.lists(inner, max_size=3).map(lambda rest: ["tensor", *rest]),
        st.tuples(
            st.sampled_from(TAGS),
            inner,
        ).map(list),
    ),
    max_leaves=10,
)


@quick
@given(json_values)
def test_any_forged_tree_loads_or_is_refused(value):
    data = forge(saved(tfw.ones(2)), replaced(value))
    with contextlib.suppress(CheckpointError):
        loaded(data)
