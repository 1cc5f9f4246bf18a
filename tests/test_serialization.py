"""Saving and loading: what survives, what is shared, the file format, where tensors go."""

from __future__ import annotations

import gc
import io
import json
import struct
import weakref
from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from checkpoints import DTYPES, again, alike, at, bits, forge, loaded, raw, saved

import tfw
from tfw import nn
from tfw.errors import DeviceError
from tfw.serialization import load, save

# ---- what survives


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0,), (2, 0, 3)], ids=str)
def test_every_dtype_and_shape(dtype, shape):
    tensor = bits(dtype, int(np.prod(shape))).reshape(shape)
    result = again(tensor)
    assert raw(result) == raw(tensor)
    assert result.dtype is dtype
    assert result.shape == shape


def _name(value):
    if isinstance(value, (int, set, frozenset)):  # too long, or in an order that changes
        return f"{type(value).__name__}"
    return repr(value)[:30]


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 0, -1, 2**63, -(10**5000), 1.5, -0.0, 5e-324, 1e308),
        *(float("inf"), -float("inf"), float("nan"), 1 + 2j, complex(float("nan"), -0.0)),
        *("", "text\n\u2028\ud800\0", b"", bytes(range(256))),
        *(tfw.bfloat16, tfw.bool, tfw.device("cuda:3"), tfw.device("cpu"), tfw.Size([2, 3])),
        *(np.float32(0.1), np.bool_(True), np.int8(-3), np.complex64(1j), np.uint64(2**64 - 1)),
        *([], (), {}, set(), frozenset({1, "a"}), {1, 2.5, None}),
        OrderedDict([("b", 1), ("a", 2)]),
        Counter("hello"),
        {1: "int", "1": "text", None: 0, (2, "x"): 1, 2.5: 2, b"k": 3, tfw.float16: 4},
        {"tensor": {"dtype": "float32"}, "__metadata__": ["list", ["same", 0]]},
        [[[[]]], ({"a": ()},)],
    ],
    ids=_name,
)
def test_values(value):
    assert alike(again(value), value)
    assert alike(again([value, {"k": value}]), [value, {"k": value}])


def test_nan_payload_survives():
    (odd,) = struct.unpack("<d", bytes.fromhex("efbeaddeffffff7f"))
    assert struct.pack("<d", again(odd)).hex() == "efbeaddeffffff7f"


def test_arrays():
    arrays = {
        "f": np.arange(6.0).reshape(2, 3),
        "u": np.array([1, 2], np.uint16),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "reversed": np.arange(5)[::-1],
        "empty": np.zeros((0, 2), np.int8),
        "zero": np.array(3.0),
    }
    result = again(arrays)
    assert alike(result, arrays)
    assert result["fortran"].strides == arrays["fortran"].strides
    assert result["reversed"].strides == (-8,)
    result["f"][0, 0] = 7  # writable, whatever the saved one was


def test_flags_classes_and_attributes():
    weight: Any = nn.Parameter(tfw.ones(2))
    weight.decay = False
    frozen = nn.Parameter(tfw.ones(2), requires_grad=False)
    result = again([weight, frozen, nn.Buffer(tfw.ones(1), persistent=False)])
    assert [type(t) for t in result] == [nn.Parameter, nn.Parameter, nn.Buffer]
    assert [t.requires_grad for t in result] == [True, False, False]
    assert result[0].decay is False
    assert result[2].persistent is False
    leaf, computed = again([tfw.ones(2, requires_grad=True), tfw.ones(2, requires_grad=True) * 3])
    assert leaf.requires_grad
    assert leaf.is_leaf
    assert computed.requires_grad  # a leaf now, as after torch.save
    assert computed.is_leaf
    assert computed.tolist() == [3.0, 3.0]


def test_meta_tensors_have_no_memory():
    data = saved(tfw.empty(1000, 1000, device="meta", dtype=tfw.float16))
    result = loaded(data)
    assert len(data) < 1000
    assert (result.is_meta, result.shape, result.dtype) == (True, (1000, 1000), tfw.float16)


# ---- what is shared


def test_views_share_memory_and_keep_their_layout():
    base = tfw.arange(24.0).reshape(4, 6)
    views = {
        "base": base,
        "t": base.t(),
        "part": base[1:3, ::2],
        "row": base[2],
        "cell": base[3, 5],
    }
    result = again(views)
    for name, view in views.items():
        assert result[name].stride() == view.stride()
        assert result[name].tolist() == view.tolist()
    result["base"][2, 2] = -1
    assert result["t"][2, 2].item() == -1
    assert result["part"][1, 1].item() == -1
    assert result["row"][2].item() == -1


def test_order_of_view_and_base_does_not_matter():
    base = tfw.arange(10)
    part, whole = again([base[4:6], base])
    part[0] = 77
    assert whole[4].item() == 77


def test_overlapping_views_without_their_base():
    base = tfw.arange(1_000_000)
    data = saved([base[10:14], base[12:16]])
    assert len(data) < 2000  # the base's other elements are not in the file
    a, b = loaded(data)
    a[3] = -1
    assert b.tolist() == [12, -1, 14, 15]


def test_one_object_stays_one_and_aliases_share():
    weight = nn.Parameter(tfw.zeros(3))
    shared = [1]
    data = saved({"a": weight, "b": weight, "alias": weight.detach(), "l": shared, "m": (shared,)})
    result = loaded(data)
    assert result["a"] is result["b"]
    assert result["l"] is result["m"][0]
    result["alias"][0] = 5
    assert result["a"].tolist() == [5, 0, 0]
    assert len(safetensors.numpy.load(data)) == 2  # the weight once, and the checksums


def test_expanded_tensor_saves_one_row():
    data = saved(tfw.ones(1, 3).expand(100_000, 3))
    assert len(data) < 1000
    result = loaded(data)
    assert result.stride() == (0, 1)
    assert result.shape == (100_000, 3)


def test_memory_seen_as_two_dtypes():
    numbers = np.arange(4, dtype=np.float32)
    words, floats = again([numbers.view(np.uint32), tfw.from_numpy(numbers)])
    floats[0] = 1.0
    assert words[0] == 0x3F800000
    real, both = again([tfw.from_numpy(numbers), tfw.from_numpy(numbers.view(np.complex64))])
    real[1] = 9.0
    assert both.tolist() == [9j, 2 + 3j]


def test_neighbours_are_not_merged():
    base = tfw.arange(4)
    assert set(safetensors.numpy.load(saved({"a": base[:2], "b": base[2:]}))) == {
        "a",
        "b",
        "__checksums__",
    }


def test_saving_and_loading_keep_nothing_alive():
    gc.collect()
    gc.disable()
    try:
        tensor = tfw.ones(3)
        data = saved({"x": tensor, "a": np.ones(2)})
        result = loaded(data)
        dead = [weakref.ref(tensor), weakref.ref(result["x"])]
        del tensor, result
        assert [ref() for ref in dead] == [None, None]
    finally:
        gc.enable()


# ---- the format


def test_the_safetensors_library_reads_the_file(tmp_path):
    path = tmp_path / "model.tfw"
    state = {
        "model": {"fc.weight": tfw.arange(6.0).reshape(2, 3), "mask": tfw.tensor([True, False])},
        "list": [tfw.tensor(3, dtype=tfw.int16), tfw.tensor([1 + 2j])],
        "step": 7,
    }
    save(state, path)
    tensors = safetensors.numpy.load_file(path)
    tensors.pop("__checksums__")
    assert {k: v.tolist() for k, v in tensors.items()} == {
        "model.fc.weight": [[0, 1, 2], [3, 4, 5]],
        "model.mask": [True, False],
        "list.0": 3,
        "list.1": [[1, 2]],
    }
    with safetensors.safe_open(path, "np") as file:
        assert json.loads(file.metadata()["tfw.tree"])["obj"]["step"] == 7


def test_names_are_unique_and_valid():
    tensors = {"a": {"b": tfw.ones(1)}, "a.b": tfw.ones(2), "__metadata__": tfw.ones(3)}
    tensors |= {"\ud800": tfw.ones(4), "": tfw.ones(5)}
    data = saved(tensors)
    sizes = sorted(v.size for k, v in safetensors.numpy.load(data).items() if k[:3] != "__c")
    assert sizes == [1, 2, 3, 4, 5]
    assert alike(loaded(data), tensors)


def test_data_is_aligned_for_mmap(tmp_path):
    path = tmp_path / "x.tfw"
    save([tfw.ones(3, dtype=d) for d in DTYPES], path)
    for tensor in load(path, mmap=True):
        assert tensor.numpy().flags.aligned


def test_file_objects_in_a_row():
    file = io.BytesIO()
    save({"a": tfw.ones(2)}, file)
    save("second", file)
    file.seek(0)
    assert load(file)["a"].tolist() == [1, 1]
    assert load(file) == "second"


def test_a_pipe_is_enough():
    class Pipe:
        def __init__(self, data):
            self.rest = data

        def read(self, n=-1):
            part, self.rest = self.rest[: min(n, 7)], self.rest[min(n, 7) :]
            return part

    pipe: Any = Pipe(saved({"x": tfw.arange(100)}))
    assert load(pipe)["x"].tolist() == list(range(100))


def test_unbuffered_files(tmp_path):
    with open(tmp_path / "x", "w+b", buffering=0) as file:
        save(tfw.arange(1000), file)
        file.seek(0)
        assert load(file).tolist() == list(range(1000))


def test_mmap_does_not_write_to_the_file(tmp_path):
    path = tmp_path / "x.tfw"
    save(tfw.zeros(1000), path)
    mapped = load(path, mmap=True)
    mapped[0] = 1
    assert mapped[0].item() == 1
    assert load(path)[0].item() == 0
    with pytest.raises(TypeError, match="needs a path"):
        load(io.BytesIO(saved(1)), mmap=True)


def test_weights_only_is_accepted():
    assert load(io.BytesIO(saved(3)), weights_only=False) == 3


# ---- where it goes


def test_map_location():
    data = saved({"x": tfw.ones(2), "y": tfw.ones(2)})
    assert loaded(data, map_location="meta")["x"].is_meta
    assert loaded(data, map_location=tfw.device("meta"))["x"].is_meta
    assert loaded(data, map_location={"cpu": "meta"})["x"].is_meta
    assert not loaded(data, map_location={"cuda:0": "meta"})["x"].is_meta
    seen = []

    def choose(storage, location):
        seen.append((storage.tolist(), location))
        return None if len(seen) == 1 else storage * 2

    result = loaded(data, map_location=choose)
    assert seen == [([1, 1], "cpu"), ([1, 1], "cpu")]
    assert (result["x"].tolist(), result["y"].tolist()) == ([1, 1], [2, 2])
    with pytest.raises(TypeError, match="map_location"):
        loaded(data, map_location=lambda storage, location: storage[:1])


def test_device_that_is_not_there():
    data = forge(saved(tfw.ones(2)), lambda h: at(h)[1].update(device="cuda:7"))
    with pytest.raises(DeviceError, match="map_location='cpu'") as caught:
        loaded(data)
    assert caught.value.argument == "map_location"
    assert loaded(data, map_location="cpu").tolist() == [1, 1]
