"""Random partition directories on disk, for hypothesis: `log_plans()` draws a plan, `build` writes it down.

A plan is a small value that prints well and shrinks: which batches lie in which segment, and what has become of the
indexes. Keys, values and timestamps follow from its seed. The .log files are always right; everything around them may
be anything, because it is only a hint.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from kafkalog_spark.format.names import segment_name
from kafkalog_spark.format.producer_snapshot import ProducerEntry, write_producer_snapshot
from kafkalog_spark.format.transaction_index import AbortedTransaction, format_transaction
from kafkalog_spark.log.read.partition_log import OpenHints, PartitionLocation, PartitionLog
from kafkalog_spark.log.write.encoded_batch import split_batches
from kafkalog_spark.log.write.segment_writer import SegmentWriter
from tests.log.helpers import batch_builder, legacy_builder
from tests.log.helpers.batch_builder import ABORT, COMMIT, LEADER_CHANGE, TRANSACTIONAL, V2Record
from tests.log.helpers.legacy_builder import LegacyRecord
from tests.log.helpers.plain_decoder import Batch, decode_batches

TOPIC, PARTITION = "random", 3
NEWEST = 1_700_000_000_000  # ms
SPAN = 10**9  # ms; wide, so that an index of another segment does not agree with this one by accident

INDEX_STATES = ("as written", "deleted", "truncated", "zero-padded", "garbage", "stale", "zeros", "lying")
TAILS = ("none", "torn batch", "zeros", "three bytes")


@dataclass(frozen=True)
class BatchPlan:
    """kind: v2, transaction, empty, commit, abort, leader change, messages (plain ones), wrapper. gap: offsets left out
    before it; holes: and between its records; tail: and behind its last one (v2: lastOffsetDelta is kept)."""

    kind: str
    codec: int = 0
    variant: int = 0
    count: int = 1
    size: int = 10
    gap: int = 0
    holes: bool = False
    tail: int = 0
    append_time: bool = False
    producer: int = 1
    magic: int = 1


@dataclass(frozen=True)
class LogPlan:
    """What to write. states: of offset index, time index and transaction index, segment by segment."""

    seed: int
    base_offset: int
    segments: tuple[tuple[BatchPlan, ...], ...]
    states: tuple[tuple[str, str, str], ...]
    snapshot_state: str
    index_interval: int
    clean_end: bool
    tail: str
    ordered: bool
    start_at: float
    flushed_to: float


def batch_plans(kinds: tuple[str, ...]) -> st.SearchStrategy[BatchPlan]:
    return st.builds(
        BatchPlan,
        kind=st.sampled_from(kinds),
        codec=st.integers(0, 4),
        variant=st.integers(0, 15),
        count=st.sampled_from((1, 1, 2, 3, 7, 40)),
        size=st.sampled_from((0, 10, 10, 150, 2000)),
        gap=st.sampled_from((0, 0, 0, 1, 5)),
        holes=st.booleans(),
        tail=st.sampled_from((0, 0, 0, 2)),
        append_time=st.booleans(),
        producer=st.integers(1, 3),
        magic=st.integers(0, 1),
    )


ALL_KINDS = (
    "v2",
    "v2",
    "transaction",
    "transaction",
    "empty",
    "commit",
    "abort",
    "leader change",
    "messages",
    "wrapper",
)
V2_KINDS = ("v2",)
LEGACY_KINDS = ("messages", "wrapper")
TRANSACTION_KINDS = ("transaction", "transaction", "commit", "abort", "v2")


@st.composite
def log_plans(draw: st.DrawFn, max_batches: int = 8, index_states: tuple[str, ...] = INDEX_STATES) -> LogPlan:
    """index_states: what may have become of the indexes; by default anything."""
    kinds = draw(st.sampled_from((ALL_KINDS, V2_KINDS, LEGACY_KINDS, TRANSACTION_KINDS)))
    segment = st.lists(batch_plans(kinds), min_size=1, max_size=max_batches).map(tuple)
    segments = draw(st.lists(segment, min_size=1, max_size=4).map(tuple))
    if draw(st.booleans()):
        segments += ((),)  # just rolled
    state = st.tuples(*[st.sampled_from(index_states)] * 3)
    return LogPlan(
        seed=draw(st.integers(0, 2**32)),
        base_offset=draw(st.sampled_from((0, 1, 1000, 2**40))),
        segments=segments,
        states=tuple(draw(st.lists(state, min_size=len(segments), max_size=len(segments)))),
        # Not "stale": which offset a snapshot speaks of stands in its name alone, so a copy of another one is believed.
        snapshot_state=draw(st.sampled_from([state for state in INDEX_STATES if state not in ("stale", "lying")])),
        index_interval=draw(st.sampled_from((0, 0, 100, 4096))),
        clean_end=draw(st.booleans()),
        tail=draw(st.sampled_from(TAILS)),
        ordered=draw(st.booleans()),
        start_at=draw(st.sampled_from((0.0, 0.0, 0.3, 1.0))),
        flushed_to=draw(st.sampled_from((-1.0, 0.5, 1.0))),
    )


@dataclass(frozen=True)
class RandomLog:
    """A directory, and what lies in it by the plain decoder. `segments`: (base offset, batches) of each .log."""

    directory: Path
    segments: tuple[tuple[int, tuple[Batch, ...]], ...]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int | None

    @property
    def batches(self) -> list[Batch]:
        return [batch for _, batches in self.segments for batch in batches]

    def open(self) -> PartitionLog:
        return PartitionLog(
            PartitionLocation(TOPIC, PARTITION, str(self.directory)),
            OpenHints(self.recovery_point, self.log_start_offset),
        )


def build(plan: LogPlan, root: Path) -> RandomLog:
    """Write the plan's files to a new directory in `root`."""
    directory = root / f"{TOPIC}-{PARTITION}"
    directory.mkdir()
    writing = _Writing(plan)
    offset = plan.base_offset
    found = []
    snapshots = []
    for number, batch_plans in enumerate(plan.segments):
        base = offset
        last = number == len(plan.segments) - 1
        aborted: list[AbortedTransaction] = []
        if number:
            snapshots.append(_snapshot(directory, base, writing.open))
        with SegmentWriter.create(
            directory, base, index_interval_bytes=plan.index_interval, max_index_size=12 * 8 * 50
        ) as segment:
            for batch_plan in batch_plans:
                data, offset = writing.batch(batch_plan, offset, aborted)
                for encoded in split_batches(data):
                    segment.append(encoded)
            if last and not plan.clean_end:
                segment.abandon()
        if aborted:
            entries = b"".join(map(format_transaction, aborted))
            (directory / f"{segment_name(base)}.txnindex").write_bytes(entries)
        path = directory / f"{segment_name(base)}.log"
        found.append((base, tuple(decode_batches(path.read_bytes()))))
    snapshots.append(_snapshot(directory, offset, writing.open))
    _add_tail(directory / f"{segment_name(found[-1][0])}.log", plan.tail, offset)
    for path in snapshots:
        _spoil(path, plan.snapshot_state, b"", writing.rng)
    _spoil_indexes(directory, [base for base, _ in found], plan, writing.rng)
    span = offset - plan.base_offset
    return RandomLog(
        directory,
        tuple(found),
        plan.base_offset + int(plan.start_at * span),
        offset,
        None if plan.flushed_to < 0 else plan.base_offset + int(plan.flushed_to * span),
    )


class _Writing:
    """State while a log is written: randomness, the clock, open transactions."""

    def __init__(self, plan: LogPlan) -> None:
        self.rng = random.Random(plan.seed)
        self.clock = NEWEST - SPAN
        self.ordered = plan.ordered
        self.open: dict[int, int] = {}

    def timestamp(self) -> int:
        if self.rng.random() < 0.05:
            return -1
        if self.ordered:
            self.clock += self.rng.choice((0, 1, 1000))
            return self.clock
        return NEWEST - self.rng.randrange(SPAN)

    def offsets(self, plan: BatchPlan, offset: int) -> list[int]:
        step = (1, 1, 2, 3) if plan.holes else (1,)
        found = [offset]
        while len(found) < plan.count:
            found.append(found[-1] + self.rng.choice(step))
        return found

    def blob(self, size: int) -> bytes | None:
        if self.rng.random() < 0.15:
            return None
        size = self.rng.randrange(size + 1)
        return (self.rng.randbytes(3) * (size // 3 + 1))[:size] if size < 500 else self.rng.randbytes(size)

    def headers(self) -> tuple[tuple[bytes, bytes | None], ...]:
        if self.rng.random() < 0.6:
            return ()
        names = (b"", b"trace", "gr\u00f6\u00dfe".encode(), b"\xff not UTF-8")
        return tuple((self.rng.choice(names), self.blob(30)) for _ in range(self.rng.choice((1, 1, 2, 6))))

    def batch(self, plan: BatchPlan, offset: int, aborted: list[AbortedTransaction]) -> tuple[bytes, int]:
        """(bytes, next offset). Adds to `aborted` what the broker would write to the transaction index."""
        offset += plan.gap
        if plan.kind in ("commit", "abort", "leader change"):
            kind = {"commit": COMMIT, "abort": ABORT, "leader change": LEADER_CHANGE}[plan.kind]
            if kind == LEADER_CHANGE:
                return batch_builder.control(offset, kind, self.timestamp()), offset + 1
            first = self.open.pop(plan.producer, None)
            if kind == ABORT and first is not None:
                stable = min(self.open.values(), default=offset + 1)
                aborted.append(AbortedTransaction(plan.producer, first, offset, stable))
            return batch_builder.control(offset, kind, self.timestamp(), plan.producer), offset + 1
        if plan.kind == "empty":
            data = batch_builder.batch(
                offset, [], last_offset=offset + plan.tail, max_timestamp=self.timestamp(), producer_id=plan.producer,
                producer_epoch=0, base_sequence=4,
            )  # fmt: skip
            return data, offset + plan.tail + 1
        offsets = self.offsets(plan, offset)
        if plan.kind in ("messages", "wrapper"):
            return self.legacy(plan, offsets), offsets[-1] + 1
        records = [
            V2Record(at, self.timestamp(), self.blob(20), self.blob(plan.size), self.headers()) for at in offsets
        ]
        transactional = plan.kind == "transaction"
        # the cleaner may have taken the records around the ones that are left
        base = offset - min(plan.gap, 1) if plan.holes else offset
        if transactional:
            self.open.setdefault(plan.producer, base)
        data = batch_builder.batch(
            base,
            records,
            codec=plan.codec,
            variant=plan.variant,
            last_offset=offsets[-1] + plan.tail,
            log_append_time=NEWEST - self.rng.randrange(SPAN) if plan.append_time else None,
            attributes=TRANSACTIONAL if transactional else 0,
            producer_id=plan.producer if transactional else -1,
            producer_epoch=0 if transactional else -1,
            base_sequence=0 if transactional else -1,
            leader_epoch=self.rng.randrange(5),
        )
        return data, offsets[-1] + plan.tail + 1

    def legacy(self, plan: BatchPlan, offsets: list[int]) -> bytes:
        records = [LegacyRecord(at, self.blob(20), self.blob(plan.size), self.timestamp()) for at in offsets]
        if plan.kind == "messages":
            append_time = legacy_builder.LOG_APPEND_TIME if plan.append_time and plan.magic == 1 else 0
            return legacy_builder.message_set(plan.magic, records, append_time)
        return legacy_builder.wrapper(
            plan.magic,
            1 + plan.codec % 3,
            records,
            log_append_time=NEWEST - self.rng.randrange(SPAN) if plan.append_time and plan.magic == 1 else None,
            relative_to=offsets[0] - min(plan.gap, 1) if plan.magic == 1 and plan.holes else None,
            xerial=plan.variant % 2 == 0,
        )


def _snapshot(directory: Path, offset: int, open_transactions: dict[int, int]) -> Path:
    path = directory / f"{segment_name(offset)}.snapshot"
    entries = [
        ProducerEntry(producer, 0, 0, offset - 1, 0, NEWEST, 5, open_transactions.get(producer, -1))
        for producer in range(1, 4)
    ]
    write_producer_snapshot(path, entries)
    return path


def _add_tail(path: Path, tail: str, offset: int) -> None:
    """What an interrupted write leaves."""
    if tail == "none":
        return
    whole = batch_builder.batch(offset, [V2Record(offset, NEWEST, b"key", b"value" * 20)])
    with path.open("ab") as file:
        file.write({"torn batch": whole[:-7], "zeros": bytes(500), "three bytes": whole[:3]}[tail])


def _spoil_indexes(directory: Path, bases: list[int], plan: LogPlan, rng: random.Random) -> None:
    for suffix, place in ((".index", 0), (".timeindex", 1), (".txnindex", 2)):
        paths = [directory / f"{segment_name(base)}{suffix}" for base in bases]
        originals = [path.read_bytes() if path.exists() else b"" for path in paths]
        for number, path in enumerate(paths):
            _spoil(path, plan.states[number][place], originals[number - 1], rng)


def _spoil(path: Path, state: str, other: bytes, rng: random.Random) -> None:
    """Do to a file what `state` says; `other`: the content of such a file of another segment."""
    if state == "as written":
        return
    if state == "deleted":
        path.unlink(missing_ok=True)
        return
    data = path.read_bytes() if path.exists() else b""
    if state == "truncated":
        data = data[: rng.randrange(len(data) + 1)]
    elif state == "zero-padded":
        data += bytes(rng.choice((1, 100, 480)))
    elif state == "garbage":
        data = rng.randbytes(rng.choice((len(data), 5, 240)))
    elif state == "stale":
        data = other
    elif state == "lying":
        data = _lies(path, rng)
    else:
        data = bytes(len(data) + 24)
    path.write_bytes(data)


def _lies(path: Path, rng: random.Random) -> bytes:
    """Entries that rise as they should, and are all wrong."""
    size = max(path.with_suffix(".log").stat().st_size, 20)
    relative = sorted(rng.sample(range(1, 300), 8))
    if path.suffix == ".index":
        return b"".join(struct.pack(">ii", *entry) for entry in zip(relative, _rising(size, rng), strict=True))
    if path.suffix == ".timeindex":
        times = sorted(rng.sample(range(NEWEST - SPAN, NEWEST + SPAN), 8))
        return b"".join(struct.pack(">qi", *entry) for entry in zip(times, relative, strict=True))
    return b"".join(format_transaction(AbortedTransaction(rng.randrange(1, 4), 0, last, 0)) for last in relative)


def _rising(below: int, rng: random.Random) -> list[int]:
    return sorted(rng.sample(range(1, below), 8))


# ---- what must be read, told in the plainest way


def rows_of(
    batches: list[Batch], topic: str = TOPIC, partition: int = PARTITION, *, control: bool = False
) -> Iterator[dict[str, object]]:
    """The rows of all batches, as `rows.plain_rows` gives them; of control batches only with `control`."""
    for batch in batches:
        if batch.is_control and not control:
            continue
        for record in batch.records:
            yield {
                "key": record.key,
                "value": record.value,
                "topic": topic,
                "partition": partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "timestampType": record.timestamp_type,
                "headers": list(record.headers),
            }


def marker_of(batch: Batch) -> int | None:
    """ABORT or COMMIT when the batch is such a marker."""
    if not (batch.is_control and batch.is_transactional and batch.records):
        return None
    key = batch.records[0].key
    assert key is not None
    return int.from_bytes(key[2:4], "big")


def aborted_of(batches: list[Batch]) -> list[AbortedTransaction]:
    """In the order of their markers, as a broker writes them to the transaction index."""
    open_since: dict[int, int] = {}
    found = []
    for batch in batches:
        marker = marker_of(batch)
        if marker is None:
            if batch.is_transactional and not batch.is_control:
                open_since.setdefault(batch.producer_id, batch.base_offset)
            continue
        first = open_since.pop(batch.producer_id, None)
        if first is not None and marker == ABORT:
            stable = min(open_since.values(), default=batch.base_offset + 1)
            found.append(AbortedTransaction(batch.producer_id, first, batch.base_offset, stable))
    return found


def committed_batches(batches: list[Batch]) -> list[Batch]:
    """Without those whose producer's next marker says that they were aborted."""
    kept = []
    for at, batch in enumerate(batches):
        fate = None
        if batch.is_transactional and not batch.is_control:
            later = (other for other in batches[at + 1 :] if other.producer_id == batch.producer_id)
            fate = next((marker for marker in map(marker_of, later) if marker is not None), None)
        if fate != ABORT:
            kept.append(batch)
    return kept


def first_unstable_offset(batches: list[Batch]) -> int | None:
    """First offset of the oldest transaction without a marker."""
    open_since: dict[int, int] = {}
    for batch in batches:
        if marker_of(batch) is not None:
            open_since.pop(batch.producer_id, None)
        elif batch.is_transactional and not batch.is_control:
            open_since.setdefault(batch.producer_id, batch.base_offset)
    return min(open_since.values(), default=None)
