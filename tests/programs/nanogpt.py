"""A small GPT and its training loop, written for PyTorch: tests change its import lines only."""
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

import inspect
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F  # noqa: N812  as everyone writes it

TEXT = "the quick brown fox jumps over the lazy dog. pack my box with five dozen liquor jugs! " * 12


@dataclass
class Config:
    block_size: int = 16
    vocab_size: int = 64
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 32
    dropout: float = 0.0
    bias: bool = True


class LayerNorm(nn.Module):
    """Layer norm whose bias can be left out."""

    def __init__(self, n: int, bias: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.bias = nn.Parameter(torch.zeros(n)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    def __init__(self, c: Config, fused: bool):
        super().__init__()
        self.c_attn = nn.Linear(c.n_embd, 3 * c.n_embd, bias=c.bias)
        self.c_proj = nn.Linear(c.n_embd, c.n_embd, bias=c.bias)
        self.drop = nn.Dropout(c.dropout)
        self.n_head, self.dropout, self.fused = c.n_head, c.dropout, fused
        mask = torch.tril(torch.ones(c.block_size, c.block_size))
        self.register_buffer("mask", mask.view(1, 1, c.block_size, c.block_size), persistent=False)

    def forward(self, x):
        b, n, e = x.size()
        q, k, v = self.c_attn(x).split(e, dim=2)
        q, k, v = (z.view(b, n, self.n_head, e // self.n_head).transpose(1, 2) for z in (q, k, v))
        if self.fused:
            p = self.dropout if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, None, dropout_p=p, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            scores = scores.masked_fill(self.mask[:, :, :n, :n] == 0, float("-inf"))
            y = self.drop(F.softmax(scores, dim=-1)) @ v
        y = y.transpose(1, 2).contiguous().view(b, n, e)
        return self.drop(self.c_proj(y))


class Block(nn.Module):
    def __init__(self, c: Config, fused: bool):
        super().__init__()
        self.ln_1, self.ln_2 = LayerNorm(c.n_embd, c.bias), LayerNorm(c.n_embd, c.bias)
        self.attn = Attention(c, fused)
        self.mlp = nn.Sequential(
            nn.Linear(c.n_embd, 4 * c.n_embd, bias=c.bias),
            nn.GELU(),
            nn.Linear(4 * c.n_embd, c.n_embd, bias=c.bias),
            nn.Dropout(c.dropout),
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.config = c
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(c.vocab_size, c.n_embd),
                "wpe": nn.Embedding(c.block_size, c.n_embd),
                "drop": nn.Dropout(c.dropout),
                # One layer computes attention step by step, the other in one call.
                "h": nn.ModuleList([Block(c, fused=bool(i % 2)) for i in range(c.n_layer)]),
                "ln_f": LayerNorm(c.n_embd, c.bias),
            }
        )
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)
        for name, p in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * c.n_layer))

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def count(self):
        return sum(p.numel() for p in self.parameters()) - self.transformer.wpe.weight.numel()

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        flat = logits.view(-1, logits.size(-1))
        return logits, F.cross_entropy(flat, targets.view(-1), ignore_index=-1)

    def optimizer(self, decay: float, lr: float):
        params = {n: p for n, p in self.named_parameters() if p.requires_grad}
        groups = [
            {"params": [p for p in params.values() if p.dim() >= 2], "weight_decay": decay},
            {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0},
        ]
        extra = {}
        if "fused" in inspect.signature(torch.optim.AdamW).parameters:
            extra["fused"] = False
        return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), **extra)

    @torch.no_grad()
    def generate(self, idx, n, temperature=1.0, top_k=None):
        for _ in range(n):
            cut = (
                idx if idx.size(1) <= self.config.block_size else idx[:, -self.config.block_size :]
            )
            logits, _ = self(cut)
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("inf")
            probs = F.softmax(logits, dim=-1)
            idx = torch.cat((idx, torch.multinomial(probs, num_samples=1)), dim=1)
        return idx


def learning_rate(it, warm_up, total, highest, lowest):
    if it < warm_up:
        return highest * (it + 1) / (warm_up + 1)
    if it > total:
        return lowest
    ratio = (it - warm_up) / (total - warm_up)
    return lowest + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (highest - lowest)


def prepare(c: Config):
    """Return training and validation text as indices, and the characters."""
    chars = sorted(set(TEXT))
    data = torch.tensor([chars.index(ch) for ch in TEXT], dtype=torch.long)
    assert len(chars) <= c.vocab_size
    cut = int(0.9 * len(data))
    return data[:cut], data[cut:], chars


def batch(data, c: Config, step: int, size: int):
    """Return inputs and targets at places that depend on the step alone."""
    places = [(step * 7919 + i * 104729) % (len(data) - c.block_size - 1) for i in range(size)]
    x = torch.stack([data[i : i + c.block_size] for i in places])
    y = torch.stack([data[i + 1 : i + 1 + c.block_size] for i in places])
    return x, y


@torch.no_grad()
def evaluate(model, splits, c: Config):
    model.eval()
    out = {}
    for name, data in splits.items():
        losses = torch.zeros(3)
        for k in range(3):
            _, loss = model(*batch(data, c, 1000 + k, 8))
            losses[k] = loss.item()
        out[name] = losses.mean().item()
    model.train()
    return out


def train(model, steps=30, accumulation=2, clip=1.0, highest=3e-3):
    """Train in place; return each step's loss, each step's gradient norm and the evaluations."""
    c = model.config
    train_data, val_data, _ = prepare(c)
    optimizer = model.optimizer(0.1, highest)
    losses, norms, evaluations = [], [], []
    for it in range(steps):
        lr = learning_rate(it, 5, steps, highest, highest / 10)
        for group in optimizer.param_groups:
            group["lr"] = lr
        if it % 10 == 0:
            evaluations.append(evaluate(model, {"train": train_data, "val": val_data}, c))
        total = 0.0
        for micro in range(accumulation):
            _, loss = model(*batch(train_data, c, it * accumulation + micro, 8))
            loss = loss / accumulation
            total += loss.item()
            loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), clip)))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
    return losses, norms, evaluations
