"""What a cubin says of itself: registers, stack frame, spills, traps; read from the ELF file.

Formats: the ELF-64 specification; NVIDIA's `.nv.info` section as `cuobjdump -elf` prints it (a
format byte, an attribute byte, then a 16-bit value or a 16-bit size and that many bytes); an
instruction of sm_70 and later is 16 bytes, its opcode the low 12 bits, as `nvdisasm -hex` shows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_SIZED: Final = 4  # the format whose value is preceded by its size
_FRAME_SIZE: Final = 0x11
_REGISTERS: Final = 0x2F

_STORE_LOCAL, _LOAD_LOCAL, _BREAKPOINT = 0x387, 0x983, 0x95C


@dataclass(frozen=True, slots=True)
class CubinFacts:
    """Facts of the machine code.

    Attributes:
        registers: per thread.
        stack_bytes: largest stack frame per thread, of the kernel or a function it calls.
        spills: instructions that load or store local memory.
        traps: instructions that stop the program (BPT.TRAP).
        instructions: length of the code.

    """

    registers: int
    stack_bytes: int
    spills: int
    traps: int
    instructions: int


def read_facts(cubin: bytes) -> CubinFacts:
    """Return the facts of a cubin that holds one kernel. ValueError if it is no cubin."""
    registers = stack = spills = traps = instructions = 0
    for name, content in _sections(cubin):
        if name == ".nv.info" or name.startswith(".nv.info."):
            for attribute, value in _info(content):
                if attribute == _REGISTERS:
                    registers = max(registers, value)
                elif attribute == _FRAME_SIZE:
                    stack = max(stack, value)
        elif name.startswith(".text."):
            opcodes = [low & 0xFFF for low, _ in struct.iter_unpack("<QQ", content)]
            instructions += len(opcodes)
            spills += opcodes.count(_STORE_LOCAL) + opcodes.count(_LOAD_LOCAL)
            traps += opcodes.count(_BREAKPOINT)
    return CubinFacts(registers, stack, spills, traps, instructions)


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of each section."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    entry_size, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [
        struct.unpack_from(
            "<IIQQQQ", elf, table + entry_size * i
        )  # name type flags addr offset size
        for i in range(count)
    ]
    names = headers[names_at][4]
    for name, kind, _, _, offset, size in headers:
        end = elf.index(b"\0", names + name)
        without_content = kind == 8  # SHT_NOBITS
        content = b"" if without_content else elf[offset : offset + size]
        yield elf[names + name : end].decode(), content


def _info(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield (attribute, value) of the entries that give a number for a function."""
    at = 0
    while at + 4 <= len(content):
        form, attribute, size = struct.unpack_from("<BBH", content, at)
        at += 4
        if form != _SIZED:
            continue
        if size == 8:
            yield attribute, struct.unpack_from("<II", content, at)[1]
        at += size
