"""Text for the character-level example: files into symbols, symbols into batches."""

from __future__ import annotations

import sysconfig
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

#: Every symbol the model knows, by its number: the newline and the 95 printable ASCII characters.
ALPHABET = "\n" + "".join(map(chr, range(0x20, 0x7F)))
VOCAB_SIZE = len(ALPHABET)

_TEXT_SUFFIXES = frozenset({".py", ".txt", ".md", ".rst"})

#: Parts of the standard library that are not library code: tests, demonstrations and tables.
_SKIPPED_DIRECTORIES = frozenset(
    {
        "__pycache__", "config", "dist-packages", "encodings", "ensurepip", "idlelib", "lib2to3",
        "pydoc_data", "site-packages", "test", "tests", "turtledemo",
    }
)  # fmt: skip

_VALIDATION_SHARE = 20  # one file in twenty

_SYMBOL_OF_BYTE = np.full(256, ALPHABET.index("?"), dtype=np.uint8)
for _number, _character in enumerate(ALPHABET):
    _SYMBOL_OF_BYTE[ord(_character)] = _number
_SYMBOL_OF_BYTE[ord("\f")] = ALPHABET.index("\n")

Symbols = npt.NDArray[np.uint8]


class CorpusError(ValueError):
    """The text cannot be used; the message says why."""


def encode(text: str) -> Symbols:
    """Return the symbols of `text`; tabs become spaces and unknown characters question marks."""
    unified = text.replace("\r\n", "\n").expandtabs(4)
    return _SYMBOL_OF_BYTE[np.frombuffer(unified.encode("ascii", "replace"), dtype=np.uint8)]


def decode(symbols: npt.ArrayLike) -> str:
    """Return the text of `symbols`."""
    return "".join(ALPHABET[number] for number in np.asarray(symbols).tolist())


@dataclass(frozen=True)
class Corpus:
    """Symbols to train on and to validate with, from different files."""

    train: Symbols
    validation: Symbols
    n_files: int

    @property
    def fingerprint(self) -> int:
        """A checksum by which a resumed run knows that its text is the same."""
        return zlib.crc32(self.validation.tobytes(), zlib.crc32(self.train.tobytes()))

    def batch(
        self, key: tuple[int, ...], batch_size: int, block_size: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return inputs and targets (batch_size, block_size) drawn by `key` alone.

        The same key always gives the same batch, so a resumed run needs no state of the data.
        """
        offsets = np.random.default_rng(key).integers(
            0, len(self.train) - block_size, size=batch_size
        )
        return _windows(self.train, offsets, block_size)

    def validation_batches(
        self, n_batches: int, batch_size: int, block_size: int
    ) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Return batches spread evenly over the validation text, always the same ones."""
        last = len(self.validation) - block_size - 1
        offsets = np.linspace(0, last, n_batches * batch_size).astype(np.int64)
        return [
            _windows(self.validation, part, block_size) for part in np.split(offsets, n_batches)
        ]


def load_corpus(path: Path | None, block_size: int) -> Corpus:
    """Read the standard library's source, or the file or directory at `path`.

    One file in twenty is for validation, those with the lowest checksums of their names: a choice
    that looks random and is the same everywhere. A lone file gives its last twentieth.

    Errors: CorpusError if nothing can be read or a part is shorter than one block.
    """
    root = Path(sysconfig.get_path("stdlib")) if path is None else path
    suffixes = frozenset({".py"}) if path is None else _TEXT_SUFFIXES
    if not root.exists():
        raise CorpusError(f"no such file or directory: {root}")
    if root.is_file():
        text = encode(_read(root))
        cut = len(text) - len(text) // _VALIDATION_SHARE
        corpus = Corpus(train=text[:cut], validation=text[cut:], n_files=1)
    else:
        corpus = _split_by_file(root, suffixes)
    shortest = min(len(corpus.train), len(corpus.validation))
    if shortest < block_size + 2:
        raise CorpusError(
            f"{root}: training and validation text need more than {block_size + 1} characters "
            f"each (one block), but one has {shortest}"
        )
    return corpus


def _split_by_file(root: Path, suffixes: frozenset[str]) -> Corpus:
    names = sorted(
        name.as_posix()
        for name in (path.relative_to(root) for path in root.rglob("*") if path.is_file())
        if name.suffix in suffixes and not _SKIPPED_DIRECTORIES.intersection(name.parts[:-1])
    )
    if len(names) < 2:
        raise CorpusError(
            f"{root}: needs at least two text files ({', '.join(sorted(suffixes))}), one to "
            f"train on and one to validate with; found {len(names)}"
        )
    by_checksum = sorted(names, key=lambda name: (zlib.crc32(name.encode()), name))
    held_out = set(by_checksum[: max(1, len(names) // _VALIDATION_SHARE)])
    parts: dict[bool, list[Symbols]] = {True: [], False: []}
    for name in names:
        parts[name in held_out].append(encode(_read(root / name)))
    return Corpus(
        train=np.concatenate(parts[False]),
        validation=np.concatenate(parts[True]),
        n_files=len(names),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}") from error


def _windows(
    text: Symbols, offsets: npt.NDArray[np.int64], block_size: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Cut (len(offsets), block_size) inputs out of `text`, and targets one symbol further on."""
    rows = text[offsets[:, None] + np.arange(block_size + 1)].astype(np.int64)
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])
