"""One log, a cleaner for it without threads, and the contents of its segments read by the plain decoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_broker.storage.compaction.cleanable import LogFacts, cleanable
from kafkalog_broker.storage.compaction.cleaner import Cleaner
from kafkalog_broker.storage.compaction.cleaning_host import CleaningHost
from kafkalog_broker.storage.compaction.cleaning_request import CleanerStatistics, CleaningRequest
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment, publish, withdraw
from kafkalog_broker.storage.partition.local_log import SegmentsReplaced
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_spark.format.layout import ControlType
from tests.broker.storage.helpers.stored_logs import NOW, log_config, new_log
from tests.log.helpers import plain_decoder
from tests.log.helpers.batch_builder import TRANSACTIONAL, V2Record, batch

DAY_MS = 24 * 3600 * 1000

COMPACTED = {"cleanup_policy": ("compact",), "message_timestamp_after_max_ms": 2**62}
ACCEPT_ALL = log_config(message_timestamp_after_max_ms=2**62)


def compacted_log(directory: Path, **config) -> Log:
    return new_log(directory, **{**COMPACTED, "segment_index_bytes": 1200, **config})


def append(log: Log, *pairs: tuple[bytes | None, bytes | None], timestamp=NOW, **fields) -> int:
    """Append one batch of (key, value); its base offset."""
    records = [V2Record(i, timestamp + i, key, value) for i, (key, value) in enumerate(pairs)]
    sent = batch(0, records, **{"leader_epoch": -1, **fields})
    return log.append(validate_batch(sent, ACCEPT_ALL, timestamp), timestamp).base_offset


def append_transactional(log: Log, producer_id: int, sequence: int, *pairs, timestamp=NOW, **fields) -> int:
    return append(
        log, *pairs, timestamp=timestamp, attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0,
        base_sequence=sequence, **fields,
    )  # fmt: skip


def end_transaction(log: Log, producer_id: int, control_type: ControlType, timestamp=NOW) -> int:
    return log.append_control(control_type, producer_id, 0, 0, timestamp).base_offset


class Host(CleaningHost):
    """Runs everything in its own thread. `swaps`: base offsets of what was replaced, group by group."""

    def __init__(self, log: Log, now_ms: int, *, check: Callable[[], None] = lambda: None) -> None:
        self.log = log
        self.now_ms = now_ms
        self._check = check
        self.throttled = 0
        self.swaps: list[list[int]] = []

    def check_not_aborted(self):
        self._check()

    def throttle(self, size):
        self.throttled += size

    def producers(self):
        return self.log.producer_state.producers()

    def replace(self, cleaned, old):
        self.swaps.append([segment.base_offset for segment in old])
        replace_segments(self.log, old, cleaned, self.now_ms)


def replace_segments(log: Log, old: Sequence[LogSegment], cleaned: Sequence[CleanedSegment], now_ms: int) -> list[Path]:
    """What a cleaner does with finished segments; the files of the old ones."""
    publish(cleaned)
    try:
        new, renamed = log.local.begin_replace(old, cleaned, now_ms)
    except SegmentsReplaced:
        withdraw(cleaned)
        raise
    log.local.finish_replace(new, cleaned)
    return renamed


def request(log: Log, now_ms=NOW, first_dirty: int | None = None) -> CleaningRequest:
    """Return the cleaning request for the cleanable part of a log."""
    segments = log.segments
    facts = LogFacts(segments, log.log_start_offset, log.log_end_offset, log.last_stable_offset, first_dirty)
    part = cleanable(facts, log.config, now_ms)
    return CleaningRequest(
        directory=log.directory, segments=segments, config=log.config,
        first_dirty_offset=part.first_dirty_offset, first_uncleanable_offset=part.first_uncleanable_offset,
        now_ms=now_ms,
    )  # fmt: skip


def clean(
    log: Log, now_ms=NOW, *, first_dirty: int | None = None, memory=1 << 20, load_factor=0.9, io=1 << 16, roll=True
) -> tuple[int, CleanerStatistics, Host]:
    """Roll, flush and clean: (offset up to which it is clean, statistics, host)."""
    if roll and log.local.active.size:
        log.local.roll(now_ms)
    log.flush()
    host = Host(log, now_ms)
    end, statistics = Cleaner(request(log, now_ms, first_dirty), host, memory, load_factor, io).clean()
    return end, statistics, host


def batches_of(log: Log) -> list[plain_decoder.Batch]:
    """All batches of the closed segments."""
    return [found for segment in log.segments[:-1] for found in plain_decoder.decode_log(segment.log_path)]


def records_of(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of the records in the closed segments, without markers."""
    return [
        (record.offset, record.key, record.value)
        for found in batches_of(log)
        if not found.is_control
        for record in found.records
    ]


def transient_files(directory: Path) -> list[str]:
    """Files that an unfinished swap would leave."""
    return sorted(path.name for path in directory.iterdir() if path.name.endswith((".cleaned", ".swap")))
