"""Every byte of some golden batches changed, every length of a last segment: an error with place, or the right rows.

The log under test is made of the first batches of a golden segment, half of them in a closed segment and half in the
last one. What may come out after one byte was changed:

- an error that names topic-partition, file, position and offset;
- exactly the original rows, where no row shows the byte (the leader epoch, and of a v0 wrapper its offset);
- a clean prefix of them, when the change is in the last segment, nothing good follows it and no recovery point says
  that it was flushed: that is what a torn write looks like;
- the known limit of the format: the offsets of a batch moved as a whole to where its neighbours leave room. No CRC
  covers them. There is room above the log's last batch, and where compaction left gaps; otherwise there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import KafkalogError
from tests.golden_data import golden_logs
from tests.log.helpers.damaged_log import log_path, open_log, read_all, write_segments
from tests.log.helpers.plain_decoder import Batch, decode_batches
from tests.log.helpers.random_logs import rows_of

BATCHES = 4
"""Taken of each golden log: the first and the last of a closed segment, the first and the last of the last one."""

SOURCES = {
    "v2 none": "large",
    "v2 gzip": "java-gzip",
    "v2 snappy": "compacted",
    "v2 lz4": "logappend",
    "v2 zstd": "java-zstd",
    "v2 none, large batches": "codec-none",
    "transactions": "transactions",
    "v0": "v0-none",
    "v1": "v1-none",
    "v0 wrappers, gzip": "v0-gzip",
    "v0 wrappers, lz4": "v0-lz4",
    "v1 wrappers, snappy": "v1-snappy",
    "v1 wrappers, gzip, LogAppendTime": "v1-logappend",
    "v1 wrappers after compaction": "v1-compacted",
    "mixed": "mixed",
}
HEAD = 90
"""Bytes from a batch's start on that are all changed in the default run: the header and what the records begin with."""
STRIDE = 41
"""Of the rest, the default run changes every so many bytes; the slow one changes all."""


@dataclass(frozen=True)
class Small:
    """A small log of golden batches, and where they lie: (segment base offset, position in it, batch)."""

    directory: Path
    data: dict[int, bytes]
    places: tuple[tuple[int, int, Batch], ...]
    rows: list[dict[str, Any]]

    @property
    def end(self) -> int:
        return self.places[-1][2].last_offset + 1

    @property
    def last_base(self) -> int:
        return max(self.data)

    def rows_below(self, offset: int) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["offset"] < offset]


def small_log(topic: str, root: Path) -> Small:
    golden_log = golden_logs(topic=topic, crashed=False)[0]
    data = golden_log.segments()[-1 if topic == "transactions" else 0].read_bytes()
    batches = []
    for batch in decode_batches(data):
        batches.append(batch)
        if len(batches) == BATCHES:
            break
    half = BATCHES // 2
    first_base, last_base = batches[0].base_offset, batches[half - 1].last_offset + 1
    cut, end = batches[half].position, batches[-1].position + batches[-1].size
    segments = {first_base: data[:cut], last_base: data[cut:end]}
    directory = write_segments(root, segments)
    places = tuple(
        (first_base, batch.position, batch) if batch.position < cut else (last_base, batch.position - cut, batch)
        for batch in batches
    )
    rows = list(rows_of(batches, "orders", 0))
    small = Small(directory, segments, places, rows)
    assert read_all(directory) == rows
    return small


def masks(at: int, byte: int) -> Iterator[int]:
    """What to xor a byte with: one bit (of a header: each), all bits, and what makes it zero."""
    if at < HEAD:
        yield from (1 << bit for bit in range(8))
    else:
        yield 1 << (at % 8)
    yield 0xFF
    if byte:
        yield byte


def place_is_told(error: KafkalogError) -> bool:
    text = str(error)
    return (
        error.topic_partition is not None
        and error.path is not None
        and error.position is not None
        and error.offset is not None
        and text.startswith(f"{error.topic_partition} {error.path} at byte {error.position} (offset {error.offset}): ")
        and "\n" not in text
    )


def outcome(small: Small, recovery_point: int | None) -> list[dict[str, Any]] | KafkalogError:
    try:
        return read_all(small.directory, recovery_point)
    except KafkalogError as error:
        return error


def verdict(small: Small, number: int, at: int, recovery_point: int | None) -> str:
    """What came of a change at byte `at` of batch `number`, in one word; more words are a complaint."""
    base, _, batch = small.places[number]
    found = outcome(small, recovery_point)
    if isinstance(found, KafkalogError):
        return "error" if place_is_told(found) else f"an error without its place: {found}"
    if found == small.rows:
        return "same"
    if base == small.last_base and recovery_point is None and found == small.rows_below(batch.base_offset):
        return "prefix"
    if at < 8 and moved_to_free_offsets(small, number, found):
        return "moved"
    return f"wrong rows: {len(found)} of {len(small.rows)}"


def moved_to_free_offsets(small: Small, number: int, found: list[dict[str, Any]]) -> bool:
    """Whether `found` are the rows but for the offsets of one batch, shifted to where no other batch is."""
    base, _, batch = small.places[number]
    own = [at for at, row in enumerate(small.rows) if batch.base_offset <= row["offset"] <= batch.last_offset]
    if not own or len(found) != len(small.rows):
        return False
    shift = found[own[0]]["offset"] - small.rows[own[0]]["offset"]
    expected = [row | {"offset": row["offset"] + (shift if at in own else 0)} for at, row in enumerate(small.rows)]
    free_from = max(base, small.places[number - 1][2].last_offset + 1 if number else 0)
    free_until = small.places[number + 1][2].base_offset if number + 1 < len(small.places) else 2**63
    if base < small.last_base:
        free_until = min(free_until, small.last_base)
    if number == len(small.places) - 1:
        assert free_until == 2**63
    else:
        assert free_until - free_from > batch.last_offset - batch.base_offset + 1, "a batch that fills its place"
    return found == expected and free_from <= batch.base_offset + shift <= batch.last_offset + shift < free_until


def mutate(small: Small, recovery_point: int | None, everything: bool) -> dict[tuple[int, int], set[str]]:
    """Verdicts by (batch, byte).

    Not everything: each place of a header in one of the four batches: one bit of it with a recovery point, or all bits
    without.
    """
    verdicts: dict[tuple[int, int], set[str]] = {}
    for number, (base, position, batch) in enumerate(small.places):
        path, data = log_path(small.directory, base), small.data[base]
        for at in range(batch.size):
            if not everything and at >= HEAD and (at - HEAD) % STRIDE:
                continue
            byte = data[position + at]
            turn, flushed = (number + at) % 8, recovery_point is not None
            if not everything and turn != (0 if flushed else 5):
                continue
            for mask in masks(at, byte) if everything else (1 << (at % 8) if flushed else 0xFF,):
                path.write_bytes(data[: position + at] + bytes([byte ^ mask]) + data[position + at + 1 :])
                verdicts.setdefault((number, at), set()).add(verdict(small, number, at, recovery_point))
        path.write_bytes(data)
    return verdicts


def check_mutations(small: Small, everything: bool) -> None:
    for recovery_point in (None, small.end):
        allowed = {"error", "same", "moved"} | ({"prefix"} if recovery_point is None else set())
        for (number, at), words in mutate(small, recovery_point, everything).items():
            base, _, batch = small.places[number]
            assert words <= allowed, (number, at, words)
            if "same" in words:
                leader_epoch = batch.magic == 2 and 12 <= at < 16
                # a v0 wrapper's messages have offsets of their own, and a control batch has no rows
                shown_elsewhere = at < 8 and (batch.magic == 0 or batch.is_control)
                torn = batch.is_control and base == small.last_base and recovery_point is None
                assert leader_epoch or shown_elsewhere or torn, (number, at)


@pytest.mark.parametrize("name", SOURCES)
def test_changed_bytes_of_a_sample_give_no_wrong_row(name: str, tmp_path: Path) -> None:
    check_mutations(small_log(SOURCES[name], tmp_path), everything=False)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SOURCES)
def test_changed_bytes_anywhere_give_no_wrong_row(name: str, tmp_path: Path) -> None:
    check_mutations(small_log(SOURCES[name], tmp_path), everything=True)


def check_truncations(small: Small, lengths: range) -> None:
    """Of the last segment: whole batches are left; with a recovery point behind them, a torn one is damage."""
    base = small.last_base
    path, data = log_path(small.directory, base), small.data[base]
    ends = {position + batch.size: batch.last_offset + 1 for at, position, batch in small.places if at == base}
    ends[0] = base
    for length in lengths:
        path.write_bytes(data[:length])
        whole = max(end for end in ends if end <= length)
        assert read_all(small.directory) == small.rows_below(ends[whole]), length
        found = outcome(small, recovery_point=small.end)
        if length == whole:
            assert found == small.rows_below(ends[whole])
        else:
            assert isinstance(found, KafkalogError)
            assert place_is_told(found)
            assert found.position == whole


@pytest.mark.parametrize("name", SOURCES)
def test_last_segment_cut_at_some_lengths_gives_its_whole_batches(name: str, tmp_path: Path) -> None:
    small = small_log(SOURCES[name], tmp_path)
    size = len(small.data[small.last_base])
    check_truncations(small, range(0, size + 1, max(1, size // 40)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_last_segment_cut_at_every_length_gives_its_whole_batches(name: str, tmp_path: Path) -> None:
    small = small_log(SOURCES[name], tmp_path)
    check_truncations(small, range(len(small.data[small.last_base]) + 1))


@pytest.mark.parametrize("name", SOURCES)
def test_closed_segment_cut_inside_a_batch_is_damage(name: str, tmp_path: Path) -> None:
    """Cut between two batches it cannot be told from one that the cleaner has made shorter."""
    small = small_log(SOURCES[name], tmp_path)
    base, size = min(small.data), len(small.data[min(small.data)])
    borders = {position for at, position, _ in small.places if at == base} | {size}
    for length in range(1, size, max(1, size // 50)):
        log_path(small.directory, base).write_bytes(small.data[base][:length])
        found = outcome(small, None)
        if length in borders:
            continue
        assert isinstance(found, KafkalogError)
        assert place_is_told(found)
        assert found.path == str(log_path(small.directory, base))
        assert found.position in borders | {0}


def test_log_end_of_an_intact_log_follows_its_last_batch(tmp_path: Path) -> None:
    small = small_log(SOURCES["v2 zstd"], tmp_path)
    assert open_log(small.directory).log_end_offset == small.end
