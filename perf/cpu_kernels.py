"""Time the CPU kernels beside PyTorch's on the shapes of the GPT and MLP training steps.

    python perf/cpu_kernels.py [--threads 2] [--torch-python /path/to/python]

PyTorch runs in another interpreter, if one with torch is named or this one has it; without it the
table has one column. Both sides take turns, case by case, and each time is the best of several
rounds, so that other load on the machine hits both alike. With --threads 1 times are CPU time,
which other load changes least.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOKENS, WIDTH, HEADS, VOCAB, BATCH, CONTEXT = 2048, 128, 4, 96, 16, 128
ROUNDS, ROUND_SECONDS = 7, 0.03


def best_us(run: Callable[[], object], clock: Callable[[], float]) -> float:
    """Best time per call over the rounds, in microseconds."""
    run()
    start = time.perf_counter()
    run()
    n = max(1, int(ROUND_SECONDS / (time.perf_counter() - start)))
    best = float("inf")
    for _ in range(ROUNDS):
        start = clock()
        for _ in range(n):
            run()
        best = min(best, (clock() - start) / n)
    return best * 1e6


def tfw_cases(n_threads: int) -> dict[str, Callable[[], object]]:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import numpy as np

    from tfw.runtime.cpu import (
        activations,
        elementwise,
        embedding,
        losses,
        norm,
        optim,
        philox,
        random,
        softmax,
        special,
        threads,
    )
    from tfw.runtime.cpu.attention import AttentionRule, attention, attention_grad

    threads.set_num_threads(n_threads)
    rng = np.random.default_rng(0)

    def f(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    scores, small = f(BATCH * HEADS * CONTEXT, CONTEXT), f(4, 8)
    y = softmax.softmax(scores)
    hidden, x, w = f(TOKENS, 4 * WIDTH), f(TOKENS, WIDTH), f(WIDTH)
    _, mean, rstd = norm.layer_norm(x, 1, w, w)
    logits, targets = f(TOKENS, VOCAB), rng.integers(0, VOCAB, TOKENS)
    loss, lse = losses.cross_entropy(logits, targets)
    q, k, v = (
        part.reshape(BATCH, CONTEXT, HEADS, -1).transpose(0, 2, 1, 3)
        for part in np.split(f(BATCH, CONTEXT, 3 * WIDTH), 3, axis=-1)
    )
    rule = AttentionRule(causal=True)
    out, out_lse = attention(q, k, v, rule)
    mlp = [f(512, 784), f(512), f(512, 512), f(512), f(10, 512), f(10)]
    mlp_grads, mlp_m = [f(*p.shape) for p in mlp], [f(*p.shape) for p in mlp]
    mlp_v = [np.abs(f(*p.shape)) for p in mlp]
    steps = [5] * len(mlp)
    out_like = np.empty_like(hidden)
    return {
        "softmax (4, 8)": lambda: softmax.softmax(small),
        "softmax (8192, 128)": lambda: softmax.softmax(scores),
        "softmax gradient": lambda: softmax.softmax_grad(scores, y),
        "log_softmax (8192, 128)": lambda: softmax.log_softmax(scores),
        "erf (2048, 512)": lambda: special.erf(hidden),
        "gelu (2048, 512)": lambda: activations.gelu(hidden),
        "gelu gradient": lambda: activations.gelu_grad(hidden, hidden),
        "gelu and slope": lambda: activations.gelu_and_slope(hidden),
        "gelu tanh (2048, 512)": lambda: activations.gelu(hidden, "tanh"),
        "gelu tanh gradient": lambda: activations.gelu_grad(hidden, hidden, "tanh"),
        "layer_norm (2048, 128)": lambda: norm.layer_norm(x, 1, w, w),
        "layer_norm gradient": lambda: norm.layer_norm_grad(x, x, mean, rstd, w, 1),
        "cross_entropy (2048, 96)": lambda: losses.cross_entropy(logits, targets),
        "cross_entropy gradient": lambda: losses.cross_entropy_grad(loss, logits, targets, lse),
        "embedding gradient": lambda: embedding.embedding_grad(x, targets, VOCAB),
        "attention (16, 4, 128, 32)": lambda: attention(q, k, v, rule),
        "attention gradient": lambda: attention_grad(out, q, k, v, out, out_lse, rule),
        "sgd momentum (0.67 M)": lambda: optim.sgd_step(
            mlp, mlp_grads, mlp_m, lr=1e-6, momentum=0.9
        ),
        "adamw (0.67 M)": lambda: optim.adam_step(
            mlp, mlp_grads, mlp_m, mlp_v, [], steps, lr=1e-6, weight_decay=0.01, decoupled=True
        ),
        "uniform (2^20)": lambda: random.uniform(1, 0, 1 << 20),
        "normal (2^20)": lambda: random.normal(1, 0, 1 << 20),
        "dropout mask (2^20)": lambda: philox.keep_mask(1, 0, 1 << 20, 0.1),
        "add (2048, 512)": lambda: elementwise.threaded_ufunc(np.add, (hidden, hidden), out_like),
    }


def torch_cases(n_threads: int) -> dict[str, Callable[[], object]]:
    import torch
    from torch.nn import functional

    torch.set_num_threads(n_threads)
    torch.manual_seed(0)
    f, aten = torch.randn, torch.ops.aten
    scores, small = f(BATCH * HEADS * CONTEXT, CONTEXT), f(4, 8)
    y = scores.softmax(-1)
    hidden, x, w = f(TOKENS, 4 * WIDTH), f(TOKENS, WIDTH), f(WIDTH)
    _, mean, rstd = aten.native_layer_norm(x, (WIDTH,), w, w, 1e-5)
    logits, targets = f(TOKENS, VOCAB), torch.randint(0, VOCAB, (TOKENS,))
    tracked = f(TOKENS, VOCAB, requires_grad=True)
    loss = functional.cross_entropy(tracked, targets)
    q, k, v = (
        part.view(BATCH, CONTEXT, HEADS, -1).transpose(1, 2).detach().requires_grad_()
        for part in f(BATCH, CONTEXT, 3 * WIDTH).split(WIDTH, -1)
    )
    attend = functional.scaled_dot_product_attention
    out = attend(q, k, v, is_causal=True)
    upstream = torch.randn_like(out)

    def optimizer(kind: Any, **options: Any) -> Callable[[], object]:
        sizes = [(512, 784), (512,), (512, 512), (512,), (10, 512), (10,)]
        parameters = [f(*size, requires_grad=True) for size in sizes]
        for p in parameters:
            p.grad = torch.randn_like(p)
        return kind(parameters, lr=1e-6, **options).step

    def no_grad(run: Callable[[], object]) -> Callable[[], object]:
        return torch.no_grad()(run)

    ln_mask = [True, True, True]
    gelu_grad = aten.gelu_backward
    mask, out_like = torch.empty(1 << 20), torch.empty_like(hidden)
    return {
        "softmax (4, 8)": lambda: small.softmax(-1),
        "softmax (8192, 128)": lambda: scores.softmax(-1),
        "softmax gradient": lambda: aten._softmax_backward_data(scores, y, -1, y.dtype),
        "log_softmax (8192, 128)": lambda: scores.log_softmax(-1),
        "erf (2048, 512)": lambda: hidden.erf(),
        "gelu (2048, 512)": lambda: functional.gelu(hidden),
        "gelu gradient": lambda: gelu_grad(hidden, hidden),
        "gelu and slope": lambda: (functional.gelu(hidden), gelu_grad(hidden, hidden)),
        "gelu tanh (2048, 512)": lambda: functional.gelu(hidden, approximate="tanh"),
        "gelu tanh gradient": lambda: gelu_grad(hidden, hidden, approximate="tanh"),
        "layer_norm (2048, 128)": lambda: functional.layer_norm(x, (WIDTH,), w, w),
        "layer_norm gradient": lambda: aten.native_layer_norm_backward(
            x, x, (WIDTH,), mean, rstd, w, w, ln_mask
        ),
        "cross_entropy (2048, 96)": lambda: functional.cross_entropy(logits, targets),
        "cross_entropy gradient": lambda: torch.autograd.grad(loss, tracked, retain_graph=True),
        "embedding gradient": lambda: aten.embedding_dense_backward(x, targets, VOCAB, -1, False),
        "attention (16, 4, 128, 32)": no_grad(lambda: attend(q, k, v, is_causal=True)),
        "attention gradient": lambda: torch.autograd.grad(
            out, (q, k, v), upstream, retain_graph=True
        ),
        "sgd momentum (0.67 M)": optimizer(torch.optim.SGD, momentum=0.9),
        "adamw (0.67 M)": optimizer(torch.optim.AdamW),
        "uniform (2^20)": lambda: torch.rand(1 << 20),
        "normal (2^20)": lambda: torch.randn(1 << 20),
        "dropout mask (2^20)": lambda: mask.bernoulli_(0.9),
        "add (2048, 512)": lambda: torch.add(hidden, hidden, out=out_like),
    }


def serve(cases: dict[str, Callable[[], object]], n_threads: int) -> None:
    """Answer each case name on standard input with its time on standard output."""
    clock = time.process_time if n_threads == 1 else time.perf_counter
    for line in sys.stdin:
        print(json.dumps(best_us(cases[json.loads(line)], clock)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--serve-torch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_torch:
        serve(torch_cases(options.threads), options.threads)
        return
    cases = tfw_cases(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    has_torch = not subprocess.run(
        [options.torch_python, "-c", "import torch"], check=False, capture_output=True
    ).returncode
    command = [options.torch_python, __file__, "--serve-torch", "--threads", str(options.threads)]
    unit = "CPU us" if options.threads == 1 else "us"
    print(f"{'case':28s} {'tfw ' + unit:>12s} {'torch ' + unit:>12s} {'ratio':>6s}")
    torch = None
    if has_torch:
        pipe = subprocess.PIPE
        torch = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    for name, run in cases.items():
        ours = best_us(run, clock)
        if torch is None or torch.stdin is None or torch.stdout is None:
            print(f"{name:28s} {ours:12.1f} {'-':>12s} {'-':>6s}")
            continue
        torch.stdin.write(json.dumps(name) + "\n")
        torch.stdin.flush()
        theirs = float(json.loads(torch.stdout.readline()))
        print(f"{name:28s} {ours:12.1f} {theirs:12.1f} {ours / theirs:6.2f}")
    if torch is not None and torch.stdin is not None:
        torch.stdin.close()
        torch.wait()


if __name__ == "__main__":
    main()
