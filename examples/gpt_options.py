"""Options of train_gpt.py: one table that makes the parser, the help and the resume check."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn


class OptionError(ValueError):
    """An option that cannot be used; the message is one line for the user."""


def _option(default: object, meaning: str, *, free: bool = False) -> Any:
    return dataclasses.field(default=default, metadata={"help": meaning, "free": free})


@dataclass(frozen=True)
class Settings:
    """What a run is made of.

    A resumed run takes all of it from its checkpoint. Those marked `free` may be given anew;
    the others decide the numbers that come out, so they must stay as they were.
    """

    n_layer: int = _option(3, "transformer blocks")
    n_head: int = _option(3, "attention heads")
    n_embd: int = _option(96, "width of the residual stream, a multiple of --n-head")
    block_size: int = _option(64, "characters that the model sees at once")
    dropout: float = _option(0.0, "share of activations dropped in training, 0 <= p < 1")
    batch_size: int = _option(32, "sequences per micro-batch")
    accumulate: int = _option(1, "micro-batches per step, whose gradients are averaged")
    steps: int = _option(1000, "optimiser steps in all")
    lr: float = _option(3e-3, "highest learning rate; the cosine ends at a tenth of it")
    warmup: int = _option(50, "steps over which the learning rate rises from 0")
    weight_decay: float = _option(0.1, "AdamW's decay of matrices")
    grad_clip: float = _option(1.0, "largest norm of all gradients together")
    seed: int = _option(1, "seed of weights, data order, dropout and sample")
    data: str = _option("", "text file or directory; default: the standard library's source")
    eval_interval: int = _option(
        200, "steps between validations, each with a checkpoint", free=True
    )
    eval_batches: int = _option(20, "micro-batches per validation", free=True)
    sample: int = _option(400, "characters to write at the end", free=True)
    device: str = _option("cpu", "cpu, cuda or cuda:N", free=True)
    out: str = _option("out/gpt", "directory of the checkpoint", free=True)

    def check(self) -> None:
        """Raise OptionError for the first value that cannot be used."""
        for name in ("batch_size", "accumulate", "steps", "eval_interval", "eval_batches"):
            if getattr(self, name) < 1:
                raise OptionError(f"{flag(name)} {getattr(self, name)}: must be at least 1")
        for name in ("warmup", "sample", "seed", "weight_decay"):
            if getattr(self, name) < 0:
                raise OptionError(f"{flag(name)} {getattr(self, name)}: must not be negative")
        for name in ("lr", "grad_clip"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise OptionError(f"{flag(name)} {getattr(self, name)}: must be positive")


def flag(name: str) -> str:
    """Return the option that sets the field `name`."""
    return "--" + name.replace("_", "-")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # argparse would print the whole usage first and bury the one line that matters.
        raise OptionError(message)


def parse(arguments: Sequence[str] | None = None) -> tuple[dict[str, Any], bool]:
    """Return the settings named on the command line, and whether to resume."""
    parser = _Parser(
        description="Train a character-level GPT on Python source text.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    for field in dataclasses.fields(Settings):
        default: Any = field.default
        shown = "" if default == "" else f" (default: {default})"
        parser.add_argument(
            flag(field.name),
            type=type(default),
            metavar={int: "N", float: "X", str: "TEXT"}[type(default)],
            help=field.metadata["help"] + shown,
        )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on from the checkpoint in --out, with the settings it was made with",
    )
    given = vars(parser.parse_args(arguments))
    return given, bool(given.pop("resume", False))


def resumed(saved: Mapping[str, Any], given: Mapping[str, Any]) -> Settings:
    """Return the settings of a resumed run.

    Errors: OptionError if `given` differs from `saved` in something that decides the numbers.
    """
    for field in dataclasses.fields(Settings):
        name = field.name
        if name in given and not field.metadata["free"] and given[name] != saved[name]:
            raise OptionError(
                f"--resume: the checkpoint was made with {flag(name)} {saved[name]}, "
                f"not {given[name]}; leave {flag(name)} out to go on with it"
            )
    return Settings(**{**saved, **given})
