"""Random histories that are compacted repeatedly, with a kill at every step.

The records after recovery, and those that an offline reader sees at the time of the kill, are compared with a model
that keeps every record."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.read.last_stable_offset import last_stable_offset
from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.log.read.partition_scan import scan_partition
from tests.broker.storage.helpers.cleaned_logs import (
    append,
    append_transactional,
    clean,
    compacted_log,
    end_transaction,
    transient_files,
)
from tests.broker.storage.helpers.stored_logs import NOW, read_all, reopened
from tests.log.helpers import plain_decoder
from tests.log.helpers.rows import plain_rows

KEYS = 8
SETTINGS: dict[str, Any] = {
    "cleanup_policy": ("compact",),
    "segment_bytes": 900,
    "index_interval_bytes": 100,
    "segment_index_bytes": 240,
    "delete_retention_ms": 50,
    "message_timestamp_after_max_ms": 2**62,
}
Row = tuple[int, bytes | None, bytes | None]


@dataclass
class Model:
    """Everything that was ever written. clean_to: how far compaction has come."""

    records: dict[int, tuple[bytes | None, bytes | None]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    end: int = 0
    clean_to: int = 0

    def add(self, base: int, pairs: list[tuple[bytes, bytes | None]]) -> list[int]:
        offsets = list(range(base, base + len(pairs)))
        self.records.update(zip(offsets, pairs, strict=True))
        self.end = base + len(pairs)
        return offsets

    def latest(self, until: int) -> dict[bytes | None, int]:
        """The offset of each key's latest record below `until` that is not aborted."""
        return {
            key: offset
            for offset, (key, _) in sorted(self.records.items())
            if offset < until and offset not in self.aborted
        }

    def check(self, rows: list[Row], clean_to: int, start: int = 0) -> None:
        """`rows`: what a read_committed reader saw from `start` on."""
        offsets = [offset for offset, _, _ in rows]
        assert offsets == sorted(set(offsets))
        for offset, key, value in rows:
            assert self.records[offset] == (key, value)
            assert offset not in self.aborted
        seen = set(offsets)
        # What lies above the clean part is all there, and of the rest the latest of each key; tombstones may be gone.
        for offset in self.records:
            if offset >= max(clean_to, start) and offset not in self.aborted:
                assert offset in seen
        for offset in self.latest(self.end).values():
            if offset >= start and self.records[offset][1] is not None:
                assert offset in seen


def committed(log: Log, start: int) -> list[Row]:
    """What a read_committed consumer makes of the batches from `start` on."""
    until = log.last_stable_offset
    aborted = [one[:2] for one in log.aborted_transactions(start, until)]
    batches = list(plain_decoder.decode_batches(read_all(log, start, up_to=until)))
    hidden: set[int] = set()
    rows = []
    for found in batches:
        hidden |= {producer for producer, first in aborted if first <= found.last_offset}
        if found.is_control:
            if found.records and found.records[0].key == b"\0\0\0\0":
                hidden.discard(found.producer_id)
                aborted = [(p, first) for p, first in aborted if p != found.producer_id or first > found.last_offset]
            continue
        if found.is_transactional and found.producer_id in hidden:
            continue
        rows += [(r.offset, r.key, r.value) for r in found.records if r.offset >= start]
    return rows


def offline(directory: Path) -> list[Row]:
    """What the offline reader makes of a directory as it lies there."""
    log = PartitionLog(PartitionLocation("orders", 0, str(directory)))
    request = ScanRequest(columns=("offset", "key", "value"), read_committed=True)
    found = plain_rows(scan_partition(log, log.log_start_offset, last_stable_offset(log), request))
    return [(row["offset"], row["key"], row["value"]) for row in found]


@contextmanager
def watched(step: Callable[[], None]) -> Iterator[None]:
    """`step` is called before each change that the process makes to files."""
    patches = []
    inside = False
    for name in ("rename", "unlink", "utime", "fsync", "write"):
        real = getattr(os, name)

        def hooked(*arguments, real=real, **named):
            nonlocal inside
            if not inside:
                inside = True
                step()
                inside = False
            return real(*arguments, **named)

        patches.append(mock.patch.object(os, name, hooked))
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def write_some(log: Log, model: Model, chance: random.Random, sequences: dict[int, int]) -> None:
    for _ in range(chance.randrange(5, 25)):
        pairs = [
            (b"key %d" % chance.randrange(KEYS), None if chance.random() < 0.2 else b"%d" % chance.randrange(10**6))
            for _ in range(chance.randrange(1, 5))
        ]
        kind = chance.random()
        now = NOW + model.end
        if kind < 0.5:
            model.add(append(log, *pairs, timestamp=now, codec=chance.choice((0, 0, 1, 2, 3, 4))), pairs)
        elif kind < 0.7:
            producer = chance.choice((1, 2))
            base = append(
                log, *pairs, timestamp=now, producer_id=producer, producer_epoch=0, base_sequence=sequences[producer]
            )
            sequences[producer] += len(pairs)
            model.add(base, pairs)
        else:
            producer = chance.choice((3, 4))
            offsets = []
            for _ in range(chance.randrange(1, 3)):
                base = append_transactional(log, producer, sequences[producer], *pairs, timestamp=now)
                sequences[producer] += len(pairs)
                offsets += model.add(base, pairs)
            end = chance.choice((ControlType.ABORT, ControlType.COMMIT))
            if end == ControlType.ABORT:
                model.aborted.update(offsets)
            model.end = end_transaction(log, producer, end, now) + 1
        if chance.random() < 0.2 and log.local.active.size:
            log.local.roll(now)


def live(log: Log, model: Model, start: int) -> None:
    model.check(committed(log, start), model.clean_to, start)


def run(seed: int, directory: Path, *, rounds: int, every: int = 1) -> int:
    """How many kills it was. Each `every`-th step of a cleaning is one."""
    chance = random.Random(seed)
    model = Model()
    sequences = dict.fromkeys((1, 2, 3, 4), 0)
    log = compacted_log(directory / "live", **SETTINGS)
    place = log.directory
    kills = 0
    for round_ in range(rounds):
        write_some(log, model, chance, sequences)
        now = NOW + model.end + round_ * 40
        if log.local.active.size:
            log.local.roll(now)
        log.flush()
        steps = 0
        copies: list[Path] = []

        def step(round_=round_, copies=copies):
            nonlocal steps
            steps += 1
            if steps % every == 0:
                copy = directory / f"killed-{round_}-{steps}"
                shutil.copytree(place, copy / "orders-0")
                copies.append(copy)

        clean_before = model.clean_to
        with watched(step):
            model.clean_to, _, _ = clean(
                log, now, first_dirty=clean_before, memory=24 * chance.choice((4, 1000)), roll=False,
                io=chance.choice((200, 65536)),
            )  # fmt: skip
        assert transient_files(place) == []
        for start in (0, chance.randrange(model.end), model.clean_to):
            live(log, model, start)
        assert offline(place) == committed(log, 0)
        for copy in copies:
            kills += 1
            model.check(offline(copy / "orders-0"), model.clean_to)
            loaded = reopened(copy, clean=False, recovery_point=chance.randrange(model.end + 1), **SETTINGS)
            assert (loaded.log_start_offset, loaded.log_end_offset) == (0, model.end)
            assert loaded.last_stable_offset == model.end
            assert transient_files(copy / "orders-0") == []
            model.check(committed(loaded, 0), model.clean_to)
            clean(loaded, now, first_dirty=clean_before)  # and it can be cleaned again
            model.check(committed(loaded, 0), model.end)
            loaded.discard()
            shutil.rmtree(copy)
        if chance.random() < 0.3:
            log.close()
            log = reopened(directory / "live", **SETTINGS)
    log.close()
    return kills


@pytest.mark.parametrize("seed", [0, 2])
def test_kill_at_any_step_of_a_cleaning_loses_no_latest_value(seed, tmp_path):
    assert run(seed, tmp_path, rounds=3, every=7) > 10


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 104))
def test_kill_at_every_step_of_cleaning_a_random_history_loses_no_latest_value(seed, tmp_path):
    assert run(seed, tmp_path, rounds=6) > 100
