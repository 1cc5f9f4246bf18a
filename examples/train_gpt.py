"""Train a character-level GPT on the source text of the Python standard library.

    python examples/train_gpt.py                  a few minutes on two CPU cores
    python examples/train_gpt.py --resume         go on after Ctrl-C as if never stopped
    python examples/train_gpt.py --help           all options

How it works: docs/training.md.
"""

from __future__ import annotations

import math
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from corpus import VOCAB_SIZE, CorpusError, load_corpus
from gpt_options import OptionError, Settings, flag, parse, resumed
from gpt_run import FORMAT, Run
from live_line import LiveLine, count, duration

import tfw
from tfw import Tensor
from tfw.models.gpt import GPTConfig

#: Losses are read in groups: on a GPU every reading waits for the device.
LOG_INTERVAL = 10


class RunError(RuntimeError):
    """The run cannot go on; the message says why and what is kept."""


class Interrupt:
    """Turns Ctrl-C into a request that the loop answers between two steps.

    A second Ctrl-C stops at once, except while a checkpoint is being written.
    """

    def __init__(self) -> None:
        self.requested = False
        self._shielded = False
        self._previous = signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested and not self._shielded:
            raise KeyboardInterrupt
        self.requested = True

    @contextmanager
    def shielded(self) -> Generator[None]:
        """Let nothing interrupt the body."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False

    def release(self) -> None:
        """Give Ctrl-C back its usual meaning."""
        signal.signal(signal.SIGINT, self._previous)


class Trainer:
    """Runs the loop: steps, live line, validation, checkpoints, and the ways it may end."""

    def __init__(self, run: Run, path: Path, line: LiveLine, interrupt: Interrupt) -> None:
        self.run = run
        self.path = path
        self.line = line
        self.interrupt = interrupt
        self._replaces_other_run = run.step == 0 and path.exists()
        self._saved_step = run.step if run.step else -1
        self._pending: list[Tensor] = []
        self._step_s = 0.0
        self._validation_s = 0.0
        self._last_read = time.monotonic()

    def train(self) -> bool:
        """Train to the end; False if Ctrl-C stopped it, with a checkpoint saved."""
        run, settings = self.run, self.run.settings
        while not self.interrupt.requested:
            due = run.step % settings.eval_interval == 0 or run.step == settings.steps
            if due and run.validated_step != run.step and not self._validate():
                break
            if run.step == settings.steps:
                return True
            self._pending.append(run.advance())
            if run.step % LOG_INTERVAL == 0 or run.step == settings.steps:
                self._read_losses()
        self._read_losses()
        if run.step > 0:
            self._save()
        return False

    def _validate(self) -> bool:
        self._read_losses()
        started = time.monotonic()
        self.line.update(f"step {self.run.step}: validating ...")
        if not self.run.validate(lambda: self.interrupt.requested):
            return False
        self.line.note(
            f"step {self.run.step:5}  "
            f"validation loss {self.run.validation_loss:.4f} nats/character",
            strong=True,
        )
        if self.run.step > 0:
            self._save()
        self._last_read = time.monotonic()
        self._validation_s = self._last_read - started
        return True

    def _read_losses(self) -> None:
        """Fetch the losses that have not been looked at, and refuse to go on from a NaN."""
        if not self._pending:
            return
        run, settings = self.run, self.run.settings
        first = run.step - len(self._pending)
        losses = [loss.item() for loss in self._pending]
        for offset, loss in enumerate(losses):
            if not math.isfinite(loss):
                raise RunError(
                    f"the loss became {loss} at step {first + offset}; {self._kept()}\n"
                    f"  a lower --lr or --grad-clip may help; TFW_ANOMALY=1 finds the operation"
                )
        now = time.monotonic()
        step_s = (now - self._last_read) / len(losses)
        self._last_read = now
        # A mean over the last few readings: steady to the eye, yet it follows a busy machine.
        self._step_s = 0.7 * self._step_s + 0.3 * step_s if self._step_s else step_s
        self._pending.clear()
        tokens = settings.batch_size * settings.block_size * settings.accumulate
        steps_left = settings.steps - run.step
        seconds_left = (
            steps_left * self._step_s + steps_left // settings.eval_interval * self._validation_s
        )
        self.line.update(
            f"step {run.step:5}/{settings.steps}  loss {losses[-1]:.4f}  "
            f"{count(tokens / self._step_s)} tokens/s  ETA {duration(seconds_left)}"
        )

    def _save(self) -> None:
        if self._saved_step == self.run.step:
            return
        with self.interrupt.shielded():
            if self._replaces_other_run:
                previous = self.path.with_name("previous.tfw")
                os.replace(self.path, previous)
                self.line.note(f"an earlier run's checkpoint is now {previous}")
                self._replaces_other_run = False
            tfw.save(self.run.state(), self.path)
        self._saved_step = self.run.step

    def _kept(self) -> str:
        if self._saved_step < 0:
            return "no checkpoint of this run was saved yet"
        return f"{self.path} keeps step {self._saved_step}"


def prepare(arguments: Sequence[str] | None) -> tuple[Run, Path, bool]:
    """Return the run that the command line asks for, its checkpoint's path, and if it is resumed.

    Errors: OptionError or CorpusError with one line for the user.
    """
    given, resume = parse(arguments)
    path = Path(given.get("out", Settings.out)) / "checkpoint.tfw"
    state = _read_checkpoint(path) if resume else None
    settings = Settings(**given) if state is None else resumed(state["settings"], given)
    settings.check()
    try:
        config = GPTConfig(
            vocab_size=VOCAB_SIZE,
            block_size=settings.block_size,
            n_layer=settings.n_layer,
            n_head=settings.n_head,
            n_embd=settings.n_embd,
            dropout=settings.dropout,
        )
    except ValueError as error:
        raise OptionError(str(error).removeprefix("GPTConfig: ")) from None
    _check_device(settings.device)
    _check_writable(path.parent)
    corpus = load_corpus(Path(settings.data) if settings.data else None, settings.block_size)
    run = Run(settings, config, corpus)
    if state is not None:
        run.load(state)
    return run, path, resume


def _read_checkpoint(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise OptionError(f"--resume: there is no checkpoint at {path}")
    try:
        state = tfw.load(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise OptionError(f"--resume: {path} cannot be read: {_first_line(error)}") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise OptionError(f"--resume: {path} is not a checkpoint of this program")
    return state


def _check_device(name: str) -> None:
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise OptionError(f"--device {name}: choose cpu, cuda or cuda:N")
    try:
        tfw.zeros((1,), device=name)
    except (RuntimeError, ValueError, NotImplementedError, AssertionError) as error:
        raise OptionError(f"--device {name}: not available: {_first_line(error)}") from error


def _check_writable(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise OptionError(f"--out {directory}: cannot be written: {error.strerror}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _resume_command(settings: Settings) -> str:
    python = min(sys.executable, os.path.relpath(sys.executable), key=len)
    command = [python, sys.argv[0], "--resume"]
    if settings.out != Settings.out:
        command += [flag("out"), settings.out]
    return shlex.join(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code: 0, 1 failed, 2 wrong options, 130 stopped."""
    started = time.monotonic()
    line = LiveLine()
    interrupt = Interrupt()
    try:
        run, path, resume = prepare(arguments)
        settings = run.settings
        n_parameters = sum(p.numel() for p in run.model.parameters())
        line.note(
            f"{'resuming at step ' + str(run.step) if resume else 'training'}: "
            f"{count(n_parameters)} parameters on {settings.device}, "
            f"{count(len(run.corpus.train))} characters from {run.corpus.n_files} files, "
            f"{count(len(run.corpus.validation))} to validate"
        )
        trainer = Trainer(run, path, line, interrupt)
        if not trainer.train():
            if run.step == 0:
                line.note("stopped before the first step; nothing saved")
            else:
                line.note(f"stopped at step {run.step} of {settings.steps}; saved {path}")
                line.note(f"go on with:  {_resume_command(settings)}")
            return 130
        interrupt.release()
        if settings.sample:
            line.note(f"\n{run.sample(settings.sample)}\n")
        line.note(
            f"validation loss {run.validation_loss:.4f} nats/character after {run.step} steps, "
            f"{duration(time.monotonic() - started)}; saved {path}",
            strong=True,
        )
    except (OptionError, CorpusError) as error:
        line.clear()
        print(f"train_gpt: {error}", file=sys.stderr)
        return 2
    except (RunError, OSError) as error:
        line.clear()
        print(f"train_gpt: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        line.clear()
        print("train_gpt: stopped at once; what was saved before is kept", file=sys.stderr)
        return 130
    finally:
        interrupt.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
