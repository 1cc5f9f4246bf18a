"""Nothing above the backend takes a payload for an array: everything runs on one that is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_device import TABLE, FakeArray, FakeBackend, fake_device
from harness.calls import (
    OP_NAMES,
    as_dtype,
    call,
    differentiable,
    flat_tensors,
    map_tensors,
    rng_of,
    samples,
    tensors,
    writes,
)
from harness.compare import layout_of

import tfw
from tfw import nn, optim
from tfw.errors import DeviceError, NoKernelError, VersionError
from tfw.models.gpt import GPT, GPTConfig
from tfw.registry import OPS
from tfw.runtime.backend import for_device
from tfw.tensor import Tensor, new_tensor


@pytest.fixture
def fake() -> Iterator[FakeBackend]:
    with fake_device() as backend:
        yield backend


def moved(x: Tensor) -> Tensor:
    """Return a copy on the fake device with the same strides."""
    kind = x._kind
    spec = kind.backend.spec(x._a)._replace(device=tfw.device("cuda"))
    backend = for_device(spec.device)
    payload = backend.empty(spec)
    backend.copy(payload, backend.from_host(np.array(x._a), spec.device))
    return new_tensor(payload, backend.kind(payload))


def host(x: Tensor) -> Any:
    return x.detach().cpu().numpy()


def close(found: Tensor, wanted: Tensor) -> None:
    assert found.device == tfw.device("cuda")
    assert isinstance(found._a, FakeArray)
    np.testing.assert_allclose(host(found), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)


# Random numbers, which a device draws from its own Philox kernel; copies between devices.
WITHOUT = ("dropout_at", "uniform_at", "normal_at", "integers_at", "to_device")


@pytest.mark.parametrize("name", [n for n in OP_NAMES if n not in WITHOUT])
def test_every_op(name: str, fake: FakeBackend) -> None:
    op = OPS[name]
    for case in samples(op):
        if name == "attention_stats" and case.args[op.attr_positions[2]]:
            continue
        if name == "attention_grad" and case.args[op.attr_positions[2]]:
            continue
        typed = as_dtype(case, tfw.float32)
        args, there = tensors(typed), map_tensors(tensors(typed), moved)
        leaves = [x for x in flat_tensors(args) if x.is_floating_point() and not writes(op)]
        twins = [y for y in flat_tensors(there) if y.is_floating_point() and not writes(op)]
        for x in (*leaves, *twins):
            x.requires_grad_()
        wanted, found = call(op, args), call(op, there)
        if writes(op):
            wanted, found = args, there
        pairs = list(zip(flat_tensors(found), flat_tensors(wanted), strict=True))
        for y, t in pairs:
            close(y, t)
            assert op.data_dependent or layout_of(y) == layout_of(t)
        if not op.differentiable or not differentiable(op):
            continue
        tracked = [(y, t) for y, t in pairs if t.requires_grad and not writes(op)]
        if not tracked:
            continue
        rng = rng_of(op)
        seeds = [tfw.tensor(rng.standard_normal(t.shape).astype(np.float32)) for _, t in tracked]
        theirs = tfw.autograd.grad([t for _, t in tracked], leaves, seeds, allow_unused=True)
        ours = tfw.autograd.grad(
            [y for y, _ in tracked], twins, [s.to("cuda") for s in seeds], allow_unused=True
        )
        for g, h in zip(ours, theirs, strict=True):
            assert (g is None) == (h is None)
            if g is not None:
                assert h is not None
                close(g, h)


def test_a_primitive_without_kernel_raises(fake: FakeBackend, monkeypatch: Any) -> None:
    monkeypatch.delitem(TABLE, "tanh")
    with pytest.raises(NoKernelError, match="tanh"):
        tfw.tanh(tfw.ones(2, device="cuda"))


def test_composed_ops_run_their_bodies(fake: FakeBackend) -> None:
    fake.calls.clear()
    y = nn.functional.softmax(tfw.zeros(2, 4, device="cuda"), 1)
    assert host(y).tolist() == [[0.25] * 4] * 2
    assert {"exp", "amax", "sum", "div"} <= set(fake.calls)
    assert "softmax_along" not in fake.calls


def test_views_and_inplace(fake: FakeBackend) -> None:
    results = []
    for where in ("cpu", "cuda"):
        x = tfw.arange(12, dtype=tfw.float32, device=where).reshape(3, 4).requires_grad_()
        y = x * 1
        y[1:, ::2].mul_(3)
        y.t()[0] += x[:, 1]
        y[tfw.tensor([0, 2], device=where), 3] = -1.0
        y[y > 20] = 0.5
        (y * y).sum().backward()
        assert x.grad is not None
        results.append((y.detach().cpu().tolist(), x.grad.cpu().tolist(), y._version))
        assert y.t()._base is y
        z = tfw.exp(x * 1)
        z.add_(1)
        with pytest.raises(VersionError):
            z.sum().backward()
    assert results[0] == results[1]


def test_printing_and_numbers(fake: FakeBackend) -> None:
    x = tfw.tensor([[1.5, 2.0], [3.0, 4.0]], device="cuda")
    assert repr(x) == "tensor([[1.5000, 2.0000],\n        [3.0000, 4.0000]], device='cuda')"
    assert x[0, 1].item() == 2.0
    assert x.tolist() == [[1.5, 2.0], [3.0, 4.0]]
    assert bool((x > 1).all())
    assert x.is_cuda
    assert x.to("meta").shape == (2, 2)
    with pytest.raises(DeviceError):
        x.add(tfw.ones(2, 2))
    assert (x + tfw.tensor(1.0)).tolist() == [[2.5, 3.0], [4.0, 5.0]]


def test_a_model_trains_as_on_the_cpu(fake: FakeBackend) -> None:
    config = GPTConfig(vocab_size=11, block_size=8, n_layer=1, n_head=2, n_embd=8, dropout=0.0)
    tfw.manual_seed(0)
    here = GPT(config)
    there = GPT(config)
    there.load_state_dict(here.state_dict())
    there.to("cuda")
    tokens = tfw.randint(0, 11, (2, 9))
    losses = []
    for model, where in ((here, "cpu"), (there, "cuda")):
        optimizer = optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
        x, target = tokens[:, :-1].to(where), tokens[:, 1:].contiguous().to(where)
        for _ in range(3):
            _, loss = model(x, target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    np.testing.assert_allclose(losses[3:], losses[:3], rtol=1e-4)
    assert losses[2] < losses[0]
    for p, q in zip(here.parameters(), there.parameters(), strict=True):
        np.testing.assert_allclose(host(q), p.detach().numpy(), rtol=1e-3, atol=1e-5)


def test_layers_and_sgd(fake: FakeBackend) -> None:
    tfw.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 3))
    twin = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 3))
    twin.load_state_dict(model.state_dict())
    twin.to("cuda")
    x, t = tfw.randn(6, 4), tfw.tensor([0, 1, 2, 0, 1, 2])
    for m, data, target in ((model, x, t), (twin, x.to("cuda"), t.to("cuda"))):
        optimizer = optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            nn.CrossEntropyLoss()(m(data), target).backward()
            optimizer.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(host(q), p.detach().numpy(), rtol=1e-4, atol=1e-6)
