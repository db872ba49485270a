"""Scratch buffer of decompressed batches: it keeps its content while it grows and releases memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafkalog_spark.log.codecs.scratch import Scratch

MEBI = 1 << 20


@pytest.mark.parametrize("most", [0, 40 * MEBI, 1 << 40])
def test_scratch_buffer_keeps_its_content_while_it_grows(most: int) -> None:
    scratch = Scratch(16, most)
    at, pieces = 0, [b"a" * 10, b"b" * 100, b"c" * MEBI, b"d" * (9 * MEBI), b"e" * (40 * MEBI), b"f"]
    for piece in pieces:
        scratch.room(at, len(piece))[:] = piece
        at += len(piece)
    assert bytes(scratch.view[:at]) == b"".join(pieces)
    array = scratch.read_only()
    assert array[:at].tobytes() == b"".join(pieces)
    assert not array.flags.writeable
    scratch.shrink(MEBI)
    assert scratch.data.size == MEBI


def test_large_scratch_buffer_is_allocated_once() -> None:
    """Copied to a larger one it would take twice the memory for a moment."""
    scratch = Scratch(expected_size=64 * MEBI)
    scratch.room(0, 9 * MEBI)
    data = scratch.data
    for size in range(10, 65):
        scratch.room(0, size * MEBI)
    assert scratch.data is data


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_reserved_scratch_space_takes_no_memory_until_written() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    scratch = Scratch(expected_size=256 * MEBI)
    before = resident()
    scratch.room(0, 8 * MEBI)[:] = bytes(8 * MEBI)
    scratch.room(8 * MEBI, 1)[:] = b"x"
    assert scratch.data.size == 256 * MEBI
    assert resident() - before < 64 * MEBI
    scratch.shrink(MEBI)
