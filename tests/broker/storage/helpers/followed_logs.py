"""A leader log with a random history, and follower logs that copy it without a network."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from kafkalog_broker.storage.append.fetched_batches import parse_fetched_batches
from kafkalog_broker.storage.partition.follower import Follower
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.timestamp_lookup import max_timestamp_offset, offset_for_timestamp
from kafkalog_spark.format.layout import ControlType
from tests.broker.storage.helpers.cleaned_logs import append, append_transactional, end_transaction
from tests.broker.storage.helpers.stored_logs import NOW, log_bytes, new_log, read_all

SMALL: dict[str, Any] = {
    "segment_bytes": 1500,
    "index_interval_bytes": 200,
    "segment_index_bytes": 240,
    "message_timestamp_after_max_ms": 2**62,
}
"""Several segments, and index entries, from a few batches on."""


class Leader:
    """A log with random plain batches, idempotent producers, transactions and new leader epochs."""

    def __init__(self, directory: Path, chance: random.Random, epoch: int = 0) -> None:
        self.log = new_log(directory, **SMALL)
        self.chance = chance
        self.epoch = epoch

    def write(self, batches: int) -> None:
        for _ in range(batches):
            self._write_one()

    def _write_one(self) -> None:
        chance, log = self.chance, self.log
        count = chance.randint(1, 4)
        pairs = [(b"key %d" % chance.randrange(9), b"%d" % chance.randrange(10**6)) for _ in range(count)]
        now = NOW + chance.randrange(10**6)  # in no order, as producers' clocks are
        kind = chance.random()
        if kind < 0.4:
            append(log, *pairs, timestamp=now, codec=chance.choice((0, 0, 1, 2, 3, 4)))
        elif kind < 0.6:
            producer = chance.choice((1, 2))
            append(
                log, *pairs, timestamp=now, producer_id=producer, producer_epoch=0, base_sequence=self._next(producer)
            )
        elif kind < 0.8:
            producer = chance.choice((3, 4))
            append_transactional(log, producer, self._next(producer), *pairs, timestamp=now)
        elif kind < 0.95:
            end_transaction(log, chance.choice((3, 4)), chance.choice((ControlType.ABORT, ControlType.COMMIT)), now)
        else:
            self.epoch += chance.randint(1, 3)
            log.epochs.assign(self.epoch, log.log_end_offset)  # as a broker that is elected
        if chance.random() < 0.1 and log.local.active.size:
            log.local.roll(now)

    def _next(self, producer_id: int) -> int:
        known = {one.id: one.last_sequence for one in self.log.producer_state.producers()}
        return known.get(producer_id, -1) + 1


def copy(leader: Log, follower: Follower, log: Log, *, max_bytes: int = 1 << 20, up_to: int | None = None) -> None:
    """Fetch and append until the follower has what the leader has, below `up_to`."""
    end = leader.log_end_offset if up_to is None else up_to
    while log.log_end_offset < end:
        found = leader.read_range(log.log_end_offset, max_bytes, up_to=end, at_least_one=True)
        follower.append(parse_fetched_batches(memoryview(b"".join(found.chunks))), NOW)
        follower.update_high_watermark(leader.high_watermark)
        follower.update_log_start_offset(leader.log_start_offset)


def new_follower(directory: Path, **config: Any) -> tuple[Log, Follower]:
    log = new_log(directory, **{**SMALL, **config})
    return log, Follower(log)


def epochs_below(log: Log, end: int) -> list[object]:
    """One that begins at `end` has no record yet: a crash may have left it or not."""
    return [entry for entry in log.epochs.entries if entry.start_offset < end]


def assert_same(log: Log, leader: Log, end: int | None = None) -> None:
    """`log` holds what `leader` has below `end`, a batch's beginning, and says the same of it."""
    end = leader.log_end_offset if end is None else end
    assert read_all(log) == read_all(leader, up_to=end)
    assert log_bytes(log) == read_all(leader, up_to=end)
    assert log.log_end_offset == end
    assert epochs_below(log, end) == epochs_below(leader, end)
    for offset in range(0, end, 7):
        assert log.epochs.epoch_for_offset(offset) == leader.epochs.epoch_for_offset(offset)
    for up_to in {end, end // 2}:
        found = [entry[:2] for entry in log.aborted_transactions(0, up_to)]
        assert found == [one[:2] for one in leader.aborted_transactions(0, up_to) if one.last_offset < end]


def assert_lookups_agree(log: Log, other: Log) -> None:
    """Assert that timestamp lookups in both logs agree, even with different indexes."""
    for timestamp in range(NOW, NOW + 10**6, 50_000):
        assert offset_for_timestamp(log, timestamp) == offset_for_timestamp(other, timestamp)
    assert max_timestamp_offset(log) == max_timestamp_offset(other)
    for mine, theirs in zip(log.segments, other.segments, strict=False):
        if (mine.base_offset, mine.next_offset) == (theirs.base_offset, theirs.next_offset):
            assert mine.max_timestamp[0] == theirs.max_timestamp[0]


@contextmanager
def before_each_change(step: Callable[[], None]) -> Iterator[None]:
    """Call `step` before each change that the process makes to files."""
    patches = []
    inside = False
    for name in ("pwrite", "ftruncate", "truncate", "rename", "unlink", "replace"):
        real = getattr(os, name)

        def hooked(*arguments: Any, real: Any = real, **named: Any) -> Any:
            nonlocal inside
            if not inside:
                inside = True
                try:
                    step()
                finally:
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
