"""What tensors print as: the text that PyTorch 2.13 prints, with its name replaced."""

from __future__ import annotations

import pytest

import tfw
from tfw import nn, printing
from tfw.errors import ValueRangeError
from tfw.tensor import Tensor

# Where PyTorch breaks a line because "torch.float64" is longer than "tfw.float64", tfw need not: no
# case here is that close to the width.
CASES = [
    (
        "tfw.tensor([1.5, -2.25, 3.0])",
        "tensor([ 1.5000, -2.2500,  3.0000])",
    ),
    (
        "tfw.tensor([1.0, 2.0, 30.0])",
        "tensor([ 1.,  2., 30.])",
    ),
    (
        "tfw.tensor([0.0, -0.0])",
        "tensor([0., -0.])",
    ),
    (
        "tfw.tensor(3.25)",
        "tensor(3.2500)",
    ),
    (
        "tfw.tensor(-7)",
        "tensor(-7)",
    ),
    (
        "tfw.tensor(True)",
        "tensor(True)",
    ),
    (
        "tfw.tensor([])",
        "tensor([])",
    ),
    (
        'tfw.tensor([float("nan"), float("inf"), -float("inf"), 1.0])',
        "tensor([nan, inf, -inf, 1.])",
    ),
    (
        'tfw.tensor([float("nan"), 1.5])',
        "tensor([   nan, 1.5000])",
    ),
    (
        'tfw.tensor([float("inf"), -float("inf")])',
        "tensor([inf, -inf])",
    ),
    (
        "tfw.tensor([1e-5, 1.0])",
        "tensor([1.0000e-05, 1.0000e+00])",
    ),
    (
        "tfw.tensor([1e8, 1.0])",
        "tensor([1.0000e+08, 1.0000e+00])",
    ),
    (
        "tfw.tensor([100000000.0])",
        "tensor([100000000.])",
    ),
    (
        "tfw.tensor([100000001.0, 200000000.0], dtype=tfw.float64)",
        "tensor([1.0000e+08, 2.0000e+08], dtype=tfw.float64)",
    ),
    (
        "tfw.tensor([999.5, 1.0])",
        "tensor([999.5000,   1.0000])",
    ),
    (
        "tfw.tensor([1001.0, 1.0])",
        "tensor([1.0010e+03, 1.0000e+00])",
    ),
    (
        "tfw.tensor([0.0001, 0.001])",
        "tensor([1.0000e-04, 1.0000e-03])",
    ),
    (
        'tfw.tensor([1e-10, 1e10, 0.0, float("nan")])',
        "tensor([1.0000e-10, 1.0000e+10, 0.0000e+00,        nan])",
    ),
    (
        "tfw.tensor([[1, -20], [300, 4]])",
        ("tensor([[  1, -20],\n        [300,   4]])"),
    ),
    (
        "tfw.tensor([[1, 2], [3, 4]], dtype=tfw.int32)",
        ("tensor([[1, 2],\n        [3, 4]], dtype=tfw.int32)"),
    ),
    (
        "tfw.tensor([[True, False], [False, True]])",
        ("tensor([[ True, False],\n        [False,  True]])"),
    ),
    (
        "tfw.tensor([1, 2, 255], dtype=tfw.uint8)",
        "tensor([  1,   2, 255], dtype=tfw.uint8)",
    ),
    (
        "tfw.tensor([0.1, 0.2], dtype=tfw.float64)",
        "tensor([0.1000, 0.2000], dtype=tfw.float64)",
    ),
    (
        "tfw.tensor([0.1, 1000.5], dtype=tfw.float16)",
        "tensor([9.9976e-02, 1.0005e+03], dtype=tfw.float16)",
    ),
    (
        "tfw.tensor([0.1, 3.0], dtype=tfw.bfloat16)",
        "tensor([0.1001, 3.0000], dtype=tfw.bfloat16)",
    ),
    (
        "tfw.tensor([0.5, 448.0, -3.0], dtype=tfw.float8_e4m3fn)",
        "tensor([  0.5000, 448.0000,  -3.0000], dtype=tfw.float8_e4m3fn)",
    ),
    (
        "tfw.tensor([1 + 2j, -1.5 - 0.25j])",
        "tensor([ 1.0000+2.0000j, -1.5000-0.2500j])",
    ),
    (
        "tfw.tensor([1e-6 + 1j, 1e6 - 2j])",
        "tensor([1.0000e-06+1.j, 1.0000e+06-2.j])",
    ),
    (
        'tfw.tensor([complex(0.0, float("nan")), complex(float("inf"), -1.0)])',
        "tensor([0.+nanj, inf-1.j])",
    ),
    (
        "tfw.tensor(1 - 1j, dtype=tfw.complex128)",
        "tensor(1.-1.j, dtype=tfw.complex128)",
    ),
    (
        "tfw.zeros(0, 3)",
        "tensor([], size=(0, 3))",
    ),
    (
        "tfw.zeros(2, 0, 3, dtype=tfw.int64)",
        "tensor([], size=(2, 0, 3), dtype=tfw.int64)",
    ),
    (
        "tfw.zeros(0, dtype=tfw.bool)",
        "tensor([], dtype=tfw.bool)",
    ),
    (
        "tfw.arange(40)",
        (
            "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
            "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35,\n"
            "        36, 37, 38, 39])"
        ),
    ),
    (
        "tfw.arange(40.0)",
        (
            "tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,\n"
            "        14., 15., 16., 17., 18., 19., 20., 21., 22., 23., 24., 25., 26., 27.,\n"
            "        28., 29., 30., 31., 32., 33., 34., 35., 36., 37., 38., 39.])"
        ),
    ),
    (
        "tfw.arange(24).reshape(2, 3, 4)",
        (
            "tensor([[[ 0,  1,  2,  3],\n"
            "         [ 4,  5,  6,  7],\n"
            "         [ 8,  9, 10, 11]],\n"
            "\n"
            "        [[12, 13, 14, 15],\n"
            "         [16, 17, 18, 19],\n"
            "         [20, 21, 22, 23]]])"
        ),
    ),
    (
        "tfw.arange(16.0).reshape(2, 1, 2, 4) / 3",
        (
            "tensor([[[[0.0000, 0.3333, 0.6667, 1.0000],\n"
            "          [1.3333, 1.6667, 2.0000, 2.3333]]],\n"
            "\n"
            "\n"
            "        [[[2.6667, 3.0000, 3.3333, 3.6667],\n"
            "          [4.0000, 4.3333, 4.6667, 5.0000]]]])"
        ),
    ),
    (
        "tfw.arange(1001)",
        "tensor([   0,    1,    2,  ...,  998,  999, 1000])",
    ),
    (
        "tfw.arange(1000)[-3:]",
        "tensor([997, 998, 999])",
    ),
    (
        "tfw.arange(2000.0).reshape(1000, 2)",
        (
            "tensor([[0.0000e+00, 1.0000e+00],\n"
            "        [2.0000e+00, 3.0000e+00],\n"
            "        [4.0000e+00, 5.0000e+00],\n"
            "        ...,\n"
            "        [1.9940e+03, 1.9950e+03],\n"
            "        [1.9960e+03, 1.9970e+03],\n"
            "        [1.9980e+03, 1.9990e+03]])"
        ),
    ),
    (
        "tfw.arange(10000).reshape(100, 100)",
        (
            "tensor([[   0,    1,    2,  ...,   97,   98,   99],\n"
            "        [ 100,  101,  102,  ...,  197,  198,  199],\n"
            "        [ 200,  201,  202,  ...,  297,  298,  299],\n"
            "        ...,\n"
            "        [9700, 9701, 9702,  ..., 9797, 9798, 9799],\n"
            "        [9800, 9801, 9802,  ..., 9897, 9898, 9899],\n"
            "        [9900, 9901, 9902,  ..., 9997, 9998, 9999]])"
        ),
    ),
    (
        "tfw.arange(8000.0).reshape(20, 20, 20) / 7",
        (
            "tensor([[[0.0000e+00, 1.4286e-01, 2.8571e-01,  ..., 2.4286e+00,\n"
            "          2.5714e+00, 2.7143e+00],\n"
            "         [2.8571e+00, 3.0000e+00, 3.1429e+00,  ..., 5.2857e+00,\n"
            "          5.4286e+00, 5.5714e+00],\n"
            "         [5.7143e+00, 5.8571e+00, 6.0000e+00,  ..., 8.1429e+00,\n"
            "          8.2857e+00, 8.4286e+00],\n"
            "         ...,\n"
            "         [4.8571e+01, 4.8714e+01, 4.8857e+01,  ..., 5.1000e+01,\n"
            "          5.1143e+01, 5.1286e+01],\n"
            "         [5.1429e+01, 5.1571e+01, 5.1714e+01,  ..., 5.3857e+01,\n"
            "          5.4000e+01, 5.4143e+01],\n"
            "         [5.4286e+01, 5.4429e+01, 5.4571e+01,  ..., 5.6714e+01,\n"
            "          5.6857e+01, 5.7000e+01]],\n"
            "\n"
            "        [[5.7143e+01, 5.7286e+01, 5.7429e+01,  ..., 5.9571e+01,\n"
            "          5.9714e+01, 5.9857e+01],\n"
            "         [6.0000e+01, 6.0143e+01, 6.0286e+01,  ..., 6.2429e+01,\n"
            "          6.2571e+01, 6.2714e+01],\n"
            "         [6.2857e+01, 6.3000e+01, 6.3143e+01,  ..., 6.5286e+01,\n"
            "          6.5429e+01, 6.5571e+01],\n"
            "         ...,\n"
            "         [1.0571e+02, 1.0586e+02, 1.0600e+02,  ..., 1.0814e+02,\n"
            "          1.0829e+02, 1.0843e+02],\n"
            "         [1.0857e+02, 1.0871e+02, 1.0886e+02,  ..., 1.1100e+02,\n"
            "          1.1114e+02, 1.1129e+02],\n"
            "         [1.1143e+02, 1.1157e+02, 1.1171e+02,  ..., 1.1386e+02,\n"
            "          1.1400e+02, 1.1414e+02]],\n"
            "\n"
            "        [[1.1429e+02, 1.1443e+02, 1.1457e+02,  ..., 1.1671e+02,\n"
            "          1.1686e+02, 1.1700e+02],\n"
            "         [1.1714e+02, 1.1729e+02, 1.1743e+02,  ..., 1.1957e+02,\n"
            "          1.1971e+02, 1.1986e+02],\n"
            "         [1.2000e+02, 1.2014e+02, 1.2029e+02,  ..., 1.2243e+02,\n"
            "          1.2257e+02, 1.2271e+02],\n"
            "         ...,\n"
            "         [1.6286e+02, 1.6300e+02, 1.6314e+02,  ..., 1.6529e+02,\n"
            "          1.6543e+02, 1.6557e+02],\n"
            "         [1.6571e+02, 1.6586e+02, 1.6600e+02,  ..., 1.6814e+02,\n"
            "          1.6829e+02, 1.6843e+02],\n"
            "         [1.6857e+02, 1.6871e+02, 1.6886e+02,  ..., 1.7100e+02,\n"
            "          1.7114e+02, 1.7129e+02]],\n"
            "\n"
            "        ...,\n"
            "\n"
            "        [[9.7143e+02, 9.7157e+02, 9.7171e+02,  ..., 9.7386e+02,\n"
            "          9.7400e+02, 9.7414e+02],\n"
            "         [9.7429e+02, 9.7443e+02, 9.7457e+02,  ..., 9.7671e+02,\n"
            "          9.7686e+02, 9.7700e+02],\n"
            "         [9.7714e+02, 9.7729e+02, 9.7743e+02,  ..., 9.7957e+02,\n"
            "          9.7971e+02, 9.7986e+02],\n"
            "         ...,\n"
            "         [1.0200e+03, 1.0201e+03, 1.0203e+03,  ..., 1.0224e+03,\n"
            "          1.0226e+03, 1.0227e+03],\n"
            "         [1.0229e+03, 1.0230e+03, 1.0231e+03,  ..., 1.0253e+03,\n"
            "          1.0254e+03, 1.0256e+03],\n"
            "         [1.0257e+03, 1.0259e+03, 1.0260e+03,  ..., 1.0281e+03,\n"
            "          1.0283e+03, 1.0284e+03]],\n"
            "\n"
            "        [[1.0286e+03, 1.0287e+03, 1.0289e+03,  ..., 1.0310e+03,\n"
            "          1.0311e+03, 1.0313e+03],\n"
            "         [1.0314e+03, 1.0316e+03, 1.0317e+03,  ..., 1.0339e+03,\n"
            "          1.0340e+03, 1.0341e+03],\n"
            "         [1.0343e+03, 1.0344e+03, 1.0346e+03,  ..., 1.0367e+03,\n"
            "          1.0369e+03, 1.0370e+03],\n"
            "         ...,\n"
            "         [1.0771e+03, 1.0773e+03, 1.0774e+03,  ..., 1.0796e+03,\n"
            "          1.0797e+03, 1.0799e+03],\n"
            "         [1.0800e+03, 1.0801e+03, 1.0803e+03,  ..., 1.0824e+03,\n"
            "          1.0826e+03, 1.0827e+03],\n"
            "         [1.0829e+03, 1.0830e+03, 1.0831e+03,  ..., 1.0853e+03,\n"
            "          1.0854e+03, 1.0856e+03]],\n"
            "\n"
            "        [[1.0857e+03, 1.0859e+03, 1.0860e+03,  ..., 1.0881e+03,\n"
            "          1.0883e+03, 1.0884e+03],\n"
            "         [1.0886e+03, 1.0887e+03, 1.0889e+03,  ..., 1.0910e+03,\n"
            "          1.0911e+03, 1.0913e+03],\n"
            "         [1.0914e+03, 1.0916e+03, 1.0917e+03,  ..., 1.0939e+03,\n"
            "          1.0940e+03, 1.0941e+03],\n"
            "         ...,\n"
            "         [1.1343e+03, 1.1344e+03, 1.1346e+03,  ..., 1.1367e+03,\n"
            "          1.1369e+03, 1.1370e+03],\n"
            "         [1.1371e+03, 1.1373e+03, 1.1374e+03,  ..., 1.1396e+03,\n"
            "          1.1397e+03, 1.1399e+03],\n"
            "         [1.1400e+03, 1.1401e+03, 1.1403e+03,  ..., 1.1424e+03,\n"
            "          1.1426e+03, 1.1427e+03]]])"
        ),
    ),
    (
        "tfw.arange(1200).reshape(2, 600).t()",
        (
            "tensor([[   0,  600],\n"
            "        [   1,  601],\n"
            "        [   2,  602],\n"
            "        ...,\n"
            "        [ 597, 1197],\n"
            "        [ 598, 1198],\n"
            "        [ 599, 1199]])"
        ),
    ),
    (
        "tfw.ones(2, 30, dtype=tfw.int8)",
        (
            "tensor([[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,\n"
            "         1, 1, 1, 1, 1, 1],\n"
            "        [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,\n"
            "         1, 1, 1, 1, 1, 1]], dtype=tfw.int8)"
        ),
    ),
    (
        "tfw.ones(3, requires_grad=True)",
        "tensor([1., 1., 1.], requires_grad=True)",
    ),
    (
        "tfw.ones(2, 2, requires_grad=True) + 1",
        ("tensor([[2., 2.],\n        [2., 2.]], grad_fn=<AddBackward0>)"),
    ),
    (
        "tfw.ones(2, dtype=tfw.float64, requires_grad=True) * 2",
        "tensor([2., 2.], dtype=tfw.float64, grad_fn=<MulBackward0>)",
    ),
    (
        "tfw.arange(60.0).reshape(3, 20).requires_grad_()",
        (
            "tensor([[ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,\n"
            "         14., 15., 16., 17., 18., 19.],\n"
            "        [20., 21., 22., 23., 24., 25., 26., 27., 28., 29., 30., 31., 32., 33.,\n"
            "         34., 35., 36., 37., 38., 39.],\n"
            "        [40., 41., 42., 43., 44., 45., 46., 47., 48., 49., 50., 51., 52., 53.,\n"
            "         54., 55., 56., 57., 58., 59.]], requires_grad=True)"
        ),
    ),
    (
        'tfw.empty(2, 3, device="meta")',
        "tensor(..., device='meta', size=(2, 3))",
    ),
    (
        'tfw.empty(2, dtype=tfw.int64, device="meta")',
        "tensor(..., device='meta', size=(2,), dtype=tfw.int64)",
    ),
    (
        "tfw.arange(6).reshape(2, 3).t()",
        ("tensor([[0, 3],\n        [1, 4],\n        [2, 5]])"),
    ),
    (
        "tfw.ones(1, 3).expand(2, 3)",
        ("tensor([[1., 1., 1.],\n        [1., 1., 1.]])"),
    ),
]

OPTION_CASES = [
    (
        {"precision": 2},
        "tfw.tensor([1.23456, 100.5])",
        "tensor([  1.23, 100.50])",
    ),
    (
        {"precision": 0},
        "tfw.tensor([1.23456, 100.5])",
        "tensor([  1, 100])",
    ),
    (
        {"profile": "short"},
        "tfw.arange(1100.0).reshape(10, 110) / 3",
        (
            "tensor([[0.00e+00, 3.33e-01,  ..., 3.60e+01, 3.63e+01],\n"
            "        [3.67e+01, 3.70e+01,  ..., 7.27e+01, 7.30e+01],\n"
            "        ...,\n"
            "        [2.93e+02, 2.94e+02,  ..., 3.29e+02, 3.30e+02],\n"
            "        [3.30e+02, 3.30e+02,  ..., 3.66e+02, 3.66e+02]])"
        ),
    ),
    (
        {"profile": "full", "linewidth": 40},
        "tfw.arange(30)",
        (
            "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,\n"
            "         8,  9, 10, 11, 12, 13, 14, 15,\n"
            "        16, 17, 18, 19, 20, 21, 22, 23,\n"
            "        24, 25, 26, 27, 28, 29])"
        ),
    ),
    (
        {"threshold": 5, "edgeitems": 1},
        "tfw.arange(8).reshape(2, 4)",
        ("tensor([[0,  ..., 3],\n        [4,  ..., 7]])"),
    ),
    (
        {"threshold": 5, "edgeitems": 0},
        "tfw.arange(8).reshape(2, 4)",
        "tensor([...], size=(2, 4))",
    ),
    (
        {"sci_mode": True},
        "tfw.tensor([1.5, 20.0])",
        "tensor([1.5000e+00, 2.0000e+01])",
    ),
    (
        {"sci_mode": False},
        "tfw.tensor([1e-7, 1e9])",
        "tensor([         0.0000, 1000000000.0000])",
    ),
    (
        {"linewidth": 20},
        "tfw.tensor([1.5, 2.5, 3.5], dtype=tfw.float64)",
        ("tensor([1.5000,\n        2.5000,\n        3.5000],\n       dtype=tfw.float64)"),
    ),
]


@pytest.fixture(autouse=True)
def _default_options():
    yield
    printing.set_printoptions(profile="default")


@pytest.mark.parametrize(("expression", "expected"), CASES, ids=[c[0] for c in CASES])
def test_as_pytorch(expression, expected):
    assert repr(eval(expression)) == expected


@pytest.mark.parametrize(("options", "expression", "expected"), OPTION_CASES)
def test_options_as_pytorch(options, expression, expected):
    printing.set_printoptions(**options)
    assert repr(eval(expression)) == expected


def test_parameter():
    assert repr(nn.Parameter(tfw.ones(2))) == (
        "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    )


def test_subclass_prints_under_its_name():
    class Mask(Tensor):
        pass

    mask = object.__new__(Mask)
    mask.data = tfw.tensor([True])
    assert repr(mask) == "Mask([True])"


def test_default_dtype_decides_what_is_told():
    tfw.set_default_dtype(tfw.float64)
    try:
        assert repr(tfw.tensor([1.5])) == "tensor([1.5000])"
        assert repr(tfw.ones(1, dtype=tfw.float32)) == "tensor([1.], dtype=tfw.float32)"
        assert repr(tfw.tensor([1j])) == "tensor([0.+1.j])"
    finally:
        tfw.set_default_dtype(tfw.float32)


def test_only_shown_values_are_read(monkeypatch):
    big = tfw.zeros(1000, 1000)
    backend = big._kind.backend
    read = []

    def to_host(payload):
        read.append(payload.size)
        return payload

    monkeypatch.setattr(backend, "to_host", to_host)
    repr(big)
    assert read == [36]


def test_printoptions_come_back():
    before = printing.get_printoptions()
    with printing.printoptions(precision=1, sci_mode=True):
        assert repr(tfw.tensor([0.25])) == "tensor([2.5e-01])"
    assert printing.get_printoptions() == before


@pytest.mark.parametrize(
    ("options", "field"), [({"profile": "huge"}, "profile"), ({"edgeitems": -1}, "edgeitems")]
)
def test_bad_options(options, field):
    before = printing.get_printoptions()
    with pytest.raises(ValueRangeError, match="set_printoptions") as caught:
        printing.set_printoptions(**options)
    assert caught.value.argument == field
    assert printing.get_printoptions() == before


def test_str_and_format():
    assert str(tfw.tensor([1])) == "tensor([1])"
    assert f"{tfw.tensor(2.5):.3f}" == "2.500"
