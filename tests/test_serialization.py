"""Saving and loading: what survives, what is shared, how a file is replaced, what is refused."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import signal
import struct
import subprocess
import sys
import weakref
import zlib
from collections import Counter, OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tfw
from tfw import nn
from tfw.errors import CheckpointError, DeviceError
from tfw.serialization import load, save
from tfw.serialization.failure import SaveError
from tfw.tensor import Tensor

DTYPES = [
    *(tfw.bool, tfw.uint8, tfw.int8, tfw.int16, tfw.int32, tfw.int64, tfw.float8_e4m3fn),
    *(tfw.float8_e5m2, tfw.float16, tfw.bfloat16, tfw.float32, tfw.float64),
    *(tfw.complex64, tfw.complex128),
]


def saved(obj):
    file = io.BytesIO()
    save(obj, file)
    return file.getvalue()


def loaded(data, **options):
    return load(io.BytesIO(data), **options)


def again(obj):
    return loaded(saved(obj))


def raw(tensor):
    """Return shape, dtype and the exact bits of a tensor or array."""
    array = tensor.numpy(force=True) if isinstance(tensor, Tensor) else tensor
    return array.shape, array.dtype, np.ascontiguousarray(array).tobytes()


def alike(a, b):
    """Return whether two nestings are the same to the last bit, types and order included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (Tensor, np.ndarray, np.generic)):
        return raw(np.asarray(a) if isinstance(a, np.generic) else a) == raw(
            np.asarray(b) if isinstance(b, np.generic) else b
        )
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex):
        return alike(a.real, b.real) and alike(a.imag, b.imag)
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            alike(k, m) and alike(v, w) for (k, v), (m, w) in zip(a.items(), b.items(), strict=True)
        )
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    return a == b


def bits(dtype, n):
    """Return a tensor of arbitrary bit patterns (0 and 1 for bool), NaN among them."""
    random = np.random.default_rng(0).integers(0, 256, n * dtype.itemsize, np.uint8)
    if dtype is tfw.bool:
        random %= 2
    return tfw.from_numpy(random.view(dtype.numpy))


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


# ---- replacing a file


def test_path_like_and_replacement(tmp_path):
    path = tmp_path / "run.tfw"
    save(1, str(path))
    save({"x": 2}, path)
    assert load(str(path)) == {"x": 2}
    assert os.listdir(tmp_path) == ["run.tfw"]


def test_permissions_and_links_stay(tmp_path):
    path, link = tmp_path / "real.tfw", tmp_path / "link.tfw"
    save(1, path)
    os.chmod(path, 0o640)
    link.symlink_to(path)
    save(2, link)
    assert link.is_symlink()
    assert load(path) == 2
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch, error):
    path = tmp_path / "run.tfw"
    save("old", path)

    def fail(descriptor):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((OSError, KeyboardInterrupt)) as caught:
        save("new", path)
    monkeypatch.undo()
    assert load(path) == "old"
    assert os.listdir(tmp_path) == ["run.tfw"]
    if isinstance(error, OSError):
        assert isinstance(caught.value, SaveError)
        assert "no space is left on the device" in str(caught.value)
        assert caught.value.errno == 28


def test_refused_object_leaves_the_old_file(tmp_path):
    path = tmp_path / "run.tfw"
    save("old", path)
    with pytest.raises(CheckpointError):
        save({"x": tfw.ones(2), "y": object()}, path)
    assert load(path) == "old"
    assert os.listdir(tmp_path) == ["run.tfw"]


def test_full_disk():
    with pytest.raises(OSError, match="no space is left"):
        save(tfw.ones(100), "/dev/full")


def test_folder_errors(tmp_path):
    missing = tmp_path / "no" / "x.tfw"
    with pytest.raises(RuntimeError, match="the folder does not exist") as caught:
        save(1, missing)
    assert isinstance(caught.value, OSError)
    assert caught.value.filename == str(missing)
    with pytest.raises(CheckpointError, match="it is a folder"):
        save(1, tmp_path)
    with pytest.raises(FileNotFoundError):
        load(missing)
    if os.geteuid():
        os.chmod(tmp_path, 0o500)
        with pytest.raises(CheckpointError, match="permission denied"):
            save(1, tmp_path / "x.tfw")


def test_killed_while_saving(tmp_path):
    path = tmp_path / "run.tfw"
    save({"x": tfw.zeros(10)}, path)
    program = (
        "import sys, tfw\nfrom tfw.serialization import save\nbig = tfw.ones(4_000_000)\n"
        "print('ready', flush=True)\nwhile True: save({'x': big}, sys.argv[1])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(20):
            assert load(path)["x"].numel() in (10, 4_000_000)  # whole at any time
        process.send_signal(signal.SIGKILL)
    assert load(path)["x"].numel() in (10, 4_000_000)


# ---- what is refused


class Odd:
    pass


class Pair(NamedTuple):
    x: int


def cycle():
    items: list[Any] = [1]
    items.append({"again": items})
    return {"x": items}


@pytest.mark.parametrize(
    ("obj", "where"),
    [
        ({"optimizer": [1, 2, 3, Odd()]}, r"obj\['optimizer'\]\[3\] is a .*Odd"),
        ([len], r"obj\[0\] is a builtins.builtin_function_or_method"),
        ({"p": Pair(1)}, r"obj\['p'\] is a .*Pair"),
        ([np.array([object()])], r"obj\[0\] is a NumPy array of dtype object"),
        ([np.array(["a"])], r"obj\[0\] is a NumPy array of dtype <U1"),
        ([np.arange(3, dtype=">f4")], r"NumPy array of dtype >f4"),
        ({"a": {Odd(): 1}}, r"obj\['a'\] has a key of type Odd"),
        (cycle(), r"obj\['x'\]\[1\]\['again'\] contains itself"),
    ],
)
def test_save_names_what_it_refuses(obj, where):
    with pytest.raises(CheckpointError, match=where) as caught:
        saved(obj)
    assert caught.value.op == "save"


def test_too_deep():
    nested: list = []
    for _ in range(90):
        nested = [nested]
    assert again(nested) == nested
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(CheckpointError, match="nested deeper than 100 levels"):
        saved(nested)


def test_subclass_of_tensor_is_refused():
    class Mask(Tensor):
        pass

    mask = object.__new__(Mask)
    mask.data = tfw.ones(1)
    with pytest.raises(CheckpointError, match=r"obj\['m'\] is a .*Mask"):
        saved({"m": mask})


@pytest.mark.parametrize("f", [3, None, object(), io.StringIO("text")])
def test_no_file(f):
    with pytest.raises(TypeError, match="f is a"):
        save(1, f)
    with pytest.raises(TypeError, match="f is a"):
        load(f)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends within the header's length"),
        (b"PK\x03\x04" + bytes(100), "perhaps a zip archive, as torch.save writes them"),
        (b"\x80\x02}q\x00." + bytes(20), "perhaps a pickle"),
        (b"hello world, this is text", "no checkpoint"),
        (struct.pack("<Q", 1 << 62) + b"{}", "no checkpoint"),
        (struct.pack("<Q", 90_000_000) + b"{}", "cut or no checkpoint"),
        (
            safetensors.numpy.save({"a": np.zeros(2)}),
            "a safetensors file of another program",
        ),
    ],
)
def test_other_files(tmp_path, data, reason):
    path = tmp_path / "x"
    path.write_bytes(data)
    for file in (path, io.BytesIO(data)):
        with pytest.raises(CheckpointError, match=reason):
            load(file)


# ---- forged files: their checksums are right, so only the checks of each field stand in the way


def forge(data, change):
    """Change the header of a file and make its checksum right again."""
    (n,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + n])
    tree = json.loads(header["__metadata__"]["tfw.tree"])
    forged = {"header": header, "tree": tree}
    change(forged)
    metadata = header.get("__metadata__")
    if isinstance(metadata, dict) and "tfw.tree" in metadata:
        metadata["tfw.tree"] = forged.get("text") or json.dumps(forged["tree"])
    return sealed(json.dumps(header, separators=(",", ":")), data[8 + n :])


def sealed(text, rest):
    raw = text.encode("latin-1")
    start = len(b'{"__metadata__":{"tfw.header":"')
    raw = raw[:start] + b"0" * 8 + raw[start + 8 :]
    raw = raw[:start] + b"%08x" % zlib.crc32(raw) + raw[start + 8 :]
    return struct.pack("<Q", len(raw)) + raw + rest


def at(forged):
    return forged["tree"]["obj"]


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
