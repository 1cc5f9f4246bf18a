"""A GPT in training: what one step does, and everything that a checkpoint holds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy.typing as npt
from corpus import Corpus, decode, encode
from gpt_options import OptionError, Settings

import tfw
from tfw import Tensor, nn, optim
from tfw.models.gpt import GPT, GPTConfig

FORMAT = "train_gpt 1"


def learning_rate_factor(step: int, settings: Settings) -> float:
    """Return the share of the highest rate at `step`: linear warm-up, then a cosine to 0.1."""
    if step < settings.warmup:
        return (step + 1) / settings.warmup
    done = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    return 0.1 + 0.45 * (1.0 + math.cos(math.pi * min(1.0, done)))


class Run:
    """A model in training: everything that a checkpoint holds, and how to advance it."""

    def __init__(self, settings: Settings, config: GPTConfig, corpus: Corpus) -> None:
        self.settings = settings
        self.corpus = corpus
        self.step = 0
        self.validated_step = -1
        self.validation_loss = math.nan
        tfw.manual_seed(settings.seed)
        self.model = GPT(config).to(settings.device)
        self.optimizer = optim.AdamW(
            self.model.decay_groups(settings.weight_decay), lr=settings.lr, betas=(0.9, 0.95)
        )
        self.schedule = optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: learning_rate_factor(step, settings)
        )

    def advance(self) -> Tensor:
        """Make one optimiser step and return its mean loss (), still on the device."""
        settings = self.settings
        total = tfw.zeros((), device=settings.device)
        self.optimizer.zero_grad()
        for part in range(settings.accumulate):
            inputs, targets = self.corpus.batch(
                (settings.seed, self.step, part), settings.batch_size, settings.block_size
            )
            _, loss = self.model(self._put(inputs), self._put(targets))
            loss = loss / settings.accumulate
            loss.backward()
            total = total + loss.detach()
        nn.utils.clip_grad_norm_(self.model.parameters(), settings.grad_clip)
        self.optimizer.step()
        self.schedule.step()
        self.step += 1
        return total

    def validate(self, stop: Callable[[], bool]) -> bool:
        """Measure the mean loss on the validation text; return False if `stop()` cut it short."""
        settings = self.settings
        total = 0.0
        self.model.eval()
        with tfw.no_grad():
            for inputs, targets in self.corpus.validation_batches(
                settings.eval_batches, settings.batch_size, settings.block_size
            ):
                if stop():
                    break
                _, loss = self.model(self._put(inputs), self._put(targets))
                total += loss.item()
        self.model.train()
        if stop():
            return False
        self.validated_step = self.step
        self.validation_loss = total / settings.eval_batches
        return True

    def sample(self, n_characters: int) -> str:
        """Return text that the model writes after a line break."""
        tfw.manual_seed(self.settings.seed)
        self.model.eval()
        start = self._put(encode("\n")[None].astype("int64"))
        symbols = self.model.generate(start, n_characters, temperature=0.8, top_k=40)
        self.model.train()
        return decode(symbols[0, 1:].cpu().numpy())

    def state(self) -> dict[str, Any]:
        """Return everything needed to go on from here."""
        return {
            "format": FORMAT,
            "settings": dataclasses.asdict(self.settings),
            "corpus": self.corpus.fingerprint,
            "step": self.step,
            "validated_step": self.validated_step,
            "validation_loss": self.validation_loss,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "random": tfw.get_rng_state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from `state`, as `state()` returned it."""
        if state["corpus"] != self.corpus.fingerprint:
            raise OptionError("--resume: the training text is not the one of the checkpoint")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.step = state["step"]
        self.validated_step = state["validated_step"]
        self.validation_loss = state["validation_loss"]
        tfw.set_rng_state(state["random"])

    def _put(self, array: npt.NDArray[Any]) -> Tensor:
        return tfw.from_numpy(array).to(self.settings.device)
