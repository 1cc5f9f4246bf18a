"""A decoder-only transformer in the manner of GPT-2, small enough to read in one sitting.

Sources: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019): layer
normalisation before each sublayer, residual projections initialised smaller with depth; Press and
Wolf, "Using the Output Embedding to Improve Language Models" (2017): one matrix for the token
embedding and the output head.

In the shape comments B is the batch, T the positions, C `n_embd`, H `n_head`, D = C / H and
V `vocab_size`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tfw
from tfw import Tensor, nn
from tfw.nn import functional as F  # noqa: N812 - the name that every PyTorch reader expects


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a `GPT`.

    Errors: ValueError if a size is not positive, `n_embd` is not a multiple of `n_head`, or
    `dropout` is outside [0, 1).
    """

    vocab_size: int
    block_size: int = 128
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128
    dropout: float = 0.0
    bias: bool = True

    def __post_init__(self) -> None:
        for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd"):
            if getattr(self, name) < 1:
                raise ValueError(f"GPTConfig: {name}={getattr(self, name)} must be at least 1")
        if self.n_embd % self.n_head:
            raise ValueError(
                f"GPTConfig: n_embd={self.n_embd} is not a multiple of n_head={self.n_head}"
            )
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"GPTConfig: dropout={self.dropout} is outside 0 <= dropout < 1")


class CausalSelfAttention(nn.Module):
    """Multi-head attention in which a position sees itself and what came before it.

    Parameters: `qkv` (3C, C) and `proj` (C, C), each with a bias if the configuration says so.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.proj_dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attended values, of the same shape as `x`."""
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=2)  # each (B, T, C)
        q = q.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)  # (B, H, T, D)
        k = k.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)  # (B, H, T, D)
        v = v.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)  # (B, H, T, D)
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )  # (B, H, T, D)
        y = y.transpose(1, 2).reshape(b, t, c)  # (B, T, C)
        return self.proj_dropout(self.proj(y))  # (B, T, C)


class MLP(nn.Module):
    """Two linear layers with a GELU between them, four times as wide inside.

    Parameters: `up` (4C, C) and `proj` (C, 4C), each with a bias if the configuration says so.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the transformed positions, of the same shape as `x`."""
        hidden = F.gelu(self.up(x))  # (B, T, 4C)
        return self.dropout(self.proj(hidden))  # (B, T, C)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.attention = CausalSelfAttention(config)
        self.norm_2 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        """Return the residual stream after both sublayers, of the same shape as `x`."""
        x = x + self.attention(self.norm_1(x))  # (B, T, C)
        return x + self.mlp(self.norm_2(x))  # (B, T, C)


class GPT(nn.Module):
    """Token and position embeddings, `n_layer` blocks, a norm, and a head tied to the embedding.

    Example:
        model = GPT(GPTConfig(vocab_size=96))
        logits, loss = model(idx, targets)

    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.position_embedding = nn.Embedding(config.block_size, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.norm = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.head.weight = self.token_embedding.weight

        self.apply(_init_weights)
        # Each block adds two terms to the residual stream; the scale keeps its variance near
        # one whatever the depth.
        residual_std = 0.02 / math.sqrt(2 * config.n_layer)
        for name, parameter in self.named_parameters():
            if name.endswith("proj.weight"):
                nn.init.normal_(parameter, mean=0.0, std=residual_std)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the logits of each position's next token and, given targets, the mean loss.

        Shapes: `idx` and `targets` (B, T) of int64 with T <= `block_size`; logits (B, T, V); the
        loss () is the mean cross-entropy in nats.

        Errors: ValueError if T exceeds `block_size`.
        """
        _, t = idx.shape
        if t > self.config.block_size:
            raise ValueError(
                f"GPT: {t} positions exceed the model's block_size={self.config.block_size}"
            )
        positions = tfw.arange(t, device=idx.device)  # (T,)
        x = self.token_embedding(idx) + self.position_embedding(positions)  # (B, T, C)
        x = self.dropout(x)  # (B, T, C)
        for block in self.blocks:
            x = block(x)  # (B, T, C)
        logits = self.head(self.norm(x))  # (B, T, V)
        if targets is None:
            return logits, None
        loss = F.cross_entropy(logits.view(-1, self.config.vocab_size), targets.view(-1))  # ()
        return logits, loss

    def decay_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Return optimiser groups: matrices decay, biases and norm scales do not.

        Example:
            optimizer = tfw.optim.AdamW(model.decay_groups(0.1), lr=1e-3)

        """
        parameters = [p for p in self.parameters() if p.requires_grad]
        return [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]

    @tfw.no_grad()
    def generate(
        self, idx: Tensor, max_new_tokens: int, temperature: float = 1.0, top_k: int | None = None
    ) -> Tensor:
        """Extend `idx` (B, T) by sampled tokens, each from the last `block_size` before it.

        `temperature` below 1 sharpens the distribution; `top_k` keeps only the k likeliest tokens.
        Runs in the mode that the model is in: call `eval()` first to sample without dropout.

        Errors: ValueError if `temperature` is not positive or `top_k` is less than 1.
        """
        if temperature <= 0.0:
            raise ValueError(f"generate: temperature={temperature} must be positive")
        if top_k is not None and top_k < 1:
            raise ValueError(f"generate: top_k={top_k} must be at least 1")
        for _ in range(max_new_tokens):
            logits, _ = self(idx[:, -self.config.block_size :])
            logits = logits[:, -1] / temperature  # (B, V)
            if top_k is not None and top_k < self.config.vocab_size:
                least = tfw.topk(logits, top_k, dim=-1).values[:, -1:]  # (B, 1)
                logits = logits.masked_fill(logits < least, -math.inf)  # (B, V)
            next_idx = tfw.multinomial(F.softmax(logits, dim=-1), num_samples=1)  # (B, 1)
            idx = tfw.cat((idx, next_idx), dim=1)  # (B, T + 1)
        return idx


def _init_weights(module: nn.Module) -> None:
    """Draw weights from N(0, 0.02), zero the biases (GPT-2); norms keep their ones and zeros."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, mean=0.0, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
