"""Pure checker: from a history to the anomalies in it, and to counts for a table.

What must hold after any number of kills of the broker's process:

- An acknowledged record is in the log, at the acknowledged offset. A record that was never sent is not.
- An idempotent or transactional record is in a partition at most once, in the order of sending. A plain record may be
  there again, but a record that was sent after the acknowledgement of another one stands behind it.
- A committed transaction is visible whole: its records in every partition, and its consumed offsets. An aborted one is
  not visible at all. One with an unknown end is either.
- A consumer returns, from its start position on, exactly the visible records of the final log, without a hole.
- A committed offset is never below the last acknowledged commit, nor beyond the last requested one.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.histories.history import (
    Ending,
    Entry,
    GroupPartition,
    History,
    Kind,
    OffsetRead,
    Outcome,
    PositionRead,
    ProducerLedger,
    RecordId,
    Session,
    Transaction,
)


class Anomaly(enum.Enum):
    """Class of anomaly, with its text in the table."""

    LOST = "acknowledged record is missing"
    MISPLACED = "acknowledged offset holds another record"
    DUPLICATED = "idempotent or transactional record is there more than once"
    REORDERED = "records of a producer are out of order"
    UNSENT = "record was never sent"
    ABORTED_VISIBLE = "record of an aborted transaction is visible"
    HALF_VISIBLE = "transaction is visible in part"
    COMMITTED_HIDDEN = "committed transaction is not visible"
    OPEN = "transaction never ended"
    PHANTOM = "consumer returned a record that the log does not hold there"
    UNSTABLE = "read_committed consumer returned a record that is not committed"
    SKIPPED = "consumer skipped a visible record"
    REWOUND = "consumer returned offsets out of order"
    OFFSET_BACK = "committed offset is below an acknowledged commit"
    OFFSET_UNASKED = "committed offset is beyond the last requested commit"
    STALLED = "consumer does not reach the end of the log"
    DISAGREEMENT = "broker and files hold different records"
    BROKER_FAULT = "broker responded with an error that kills cannot cause"


class Finding(NamedTuple):
    anomaly: Anomaly
    where: str

    def __str__(self) -> str:
        return f"{self.anomaly.name}: {self.where}"


FAULTS = frozenset(
    {
        "UNKNOWN", "UNKNOWN_SERVER_ERROR", "OFFSET_OUT_OF_RANGE", "CORRUPT_MESSAGE", "INVALID_MSG", "INVALID_RECORD",
        "KAFKA_STORAGE_ERROR", "OUT_OF_ORDER_SEQUENCE_NUMBER", "DUPLICATE_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID",
        "INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING", "INVALID_REQUEST", "UNSUPPORTED_VERSION",
        "_AUTO_OFFSET_RESET",
    }
)  # fmt: skip
"""Errors of a broker that mean a loss of its state or a bug, whatever moment it was killed at. librdkafka reports a
consumer's offset that is out of range as _AUTO_OFFSET_RESET."""


@dataclass(slots=True)
class _Index:
    """The final log by record. places: (partition, slot in the log of the partition) of each copy."""

    log: Mapping[int, Sequence[Entry]]
    places: dict[RecordId, list[tuple[int, int]]]

    @classmethod
    def of(cls, log: Mapping[int, Sequence[Entry]]) -> _Index:
        places: dict[RecordId, list[tuple[int, int]]] = defaultdict(list)
        for partition, entries in log.items():
            for slot, entry in enumerate(entries):
                if entry.record is not None:
                    places[entry.record].append((partition, slot))
        return cls(log, places)

    def copies(self, record: RecordId) -> list[tuple[int, Entry]]:
        """Partition and entry of each copy."""
        return [(partition, self.log[partition][slot]) for partition, slot in self.places.get(record, ())]

    def is_visible(self, record: RecordId) -> bool:
        return any(entry.is_committed for _, entry in self.copies(record))


def find_anomalies(history: History) -> list[Finding]:
    """Return all anomalies of a history, in the order of the checks. Deterministic; reads no file and no clock."""
    index = _Index.of(history.log)
    return [
        *_unsent(history, index),
        *_lost(history, index),
        *_duplicated(history, index),
        *_reordered(history, index),
        *_transactions(history, index),
        *(Finding(Anomaly.OPEN, text) for text in history.open_transactions),
        *_positions(history, index),
        *(found for session in history.sessions for found in _session(session, history.log.get(session.partition, ()))),
        *(found for read in history.offset_reads for found in _offset_read(read)),
        *(Finding(Anomaly.STALLED, text) for text in history.stalled),
        *(Finding(Anomaly.DISAGREEMENT, text) for text in history.disagreements),
        *_broker_faults(history),
    ]


def count_anomalies(findings: Iterable[Finding]) -> Counter[Anomaly]:
    return Counter(finding.anomaly for finding in findings)


# Records of producers.


def _unsent(history: History, index: _Index) -> Iterator[Finding]:
    sent = {RecordId(ledger.name, send.number): send.partition for ledger in history.producers for send in ledger.sends}
    never_sent = {
        RecordId(ledger.name, number)
        for ledger in history.producers
        for number, result in ledger.results.items()
        if result.outcome is Outcome.FAILED
    }
    for partition, entries in index.log.items():
        for entry in entries:
            place = f"partition {partition}, offset {entry.offset}: {entry.record or 'no record of a producer'}"
            if entry.record is None or sent.get(entry.record) != partition:
                yield Finding(Anomaly.UNSENT, place)
            elif entry.record in never_sent:
                yield Finding(Anomaly.UNSENT, f"{place}, of which the producer knows that it was not sent")


def _lost(history: History, index: _Index) -> Iterator[Finding]:
    """Records with an acknowledgement. Of transactions, those in the log count, whether visible or not."""
    for ledger in history.producers:
        for send in ledger.sends:
            result = ledger.result(send.number)
            if result.outcome is not Outcome.ACKNOWLEDGED:
                continue
            record = RecordId(ledger.name, send.number)
            copies = index.copies(record)
            where = f"{record} in partition {send.partition}, acknowledged at offset {result.offset}"
            if not copies:
                yield Finding(Anomaly.LOST, where)
            elif result.offset is not None and all(entry.offset != result.offset for _, entry in copies):
                offsets = ", ".join(str(entry.offset) for _, entry in copies)
                yield Finding(Anomaly.MISPLACED, f"{where}, is at {offsets}")


def _duplicated(history: History, index: _Index) -> Iterator[Finding]:
    for ledger in history.producers_of(Kind.IDEMPOTENT, Kind.TRANSACTIONAL):
        for send in ledger.sends:
            copies = index.copies(RecordId(ledger.name, send.number))
            if len(copies) > 1:
                places = ", ".join(f"{partition}@{entry.offset}" for partition, entry in copies)
                yield Finding(Anomaly.DUPLICATED, f"{ledger.name}#{send.number} at {places}")


def _reordered(history: History, index: _Index) -> Iterator[Finding]:
    for ledger in history.producers:
        by_partition: dict[int, list[int]] = defaultdict(list)
        for send in ledger.sends:
            by_partition[send.partition].append(send.number)
        for partition, numbers in by_partition.items():
            firsts = {
                number: min(entry.offset for _, entry in copies)
                for number in numbers
                if (copies := index.copies(RecordId(ledger.name, number)))
            }
            if ledger.kind is Kind.PLAIN:
                yield from _reordered_after_acknowledgement(ledger, partition, firsts)
            else:
                yield from _reordered_sends(ledger, partition, firsts)


def _reordered_sends(ledger: ProducerLedger, partition: int, firsts: Mapping[int, int]) -> Iterator[Finding]:
    highest = -1
    for number in sorted(firsts):
        if firsts[number] < highest:
            yield Finding(
                Anomaly.REORDERED, f"{ledger.name}#{number} in partition {partition} is before a record sent earlier"
            )
        highest = max(highest, firsts[number])


def _reordered_after_acknowledgement(
    ledger: ProducerLedger, partition: int, firsts: Mapping[int, int]
) -> Iterator[Finding]:
    """A producer without idempotence may write records in another order than they were sent, but not before one that
    was acknowledged earlier."""
    order = {send.number: slot for slot, send in enumerate(ledger.sends)}
    acknowledged = sorted(
        (result.after, firsts[number])
        for number in firsts
        if (result := ledger.result(number)).outcome is Outcome.ACKNOWLEDGED
    )
    highest, taken = -1, 0
    for number in sorted(firsts, key=order.__getitem__):
        while taken < len(acknowledged) and acknowledged[taken][0] <= order[number]:
            highest = max(highest, acknowledged[taken][1])
            taken += 1
        if firsts[number] < highest:
            yield Finding(
                Anomaly.REORDERED,
                f"{ledger.name}#{number} in partition {partition} is before a record acknowledged earlier",
            )


# Transactions.


def _transactions(history: History, index: _Index) -> Iterator[Finding]:
    for ledger in history.producers_of(Kind.TRANSACTIONAL):
        for number, records in _records_by_transaction(ledger).items():
            visible = [record for record in records if index.is_visible(record)]
            where = f"{ledger.name}, transaction {number}: {len(visible)} of {len(records)} records are visible"
            ending = ledger.transactions[number].ending
            if visible and ending is Ending.ABORTED:
                yield Finding(Anomaly.ABORTED_VISIBLE, where)
            elif not visible and records and ending is Ending.COMMITTED:
                yield Finding(Anomaly.COMMITTED_HIDDEN, where)
            elif 0 < len(visible) < len(records):
                yield Finding(Anomaly.HALF_VISIBLE, where)


def _records_by_transaction(ledger: ProducerLedger) -> dict[int, list[RecordId]]:
    """Records that must be visible together: all but those that were never sent."""
    records: dict[int, list[RecordId]] = {number: [] for number in ledger.transactions}
    for send in ledger.sends:
        if send.transaction is not None and ledger.result(send.number).outcome is not Outcome.FAILED:
            records[send.transaction].append(RecordId(ledger.name, send.number))
    return records


def _positions(history: History, index: _Index) -> Iterator[Finding]:
    """Offsets that transactions committed: those of the last visible transaction before the read, and no others."""
    by_name = {ledger.name: ledger for ledger in history.producers}
    of_producer = {name: names for names in history.lineage.values() for name in names}
    visible: dict[str, dict[int, bool | None]] = {
        ledger.name: {
            number: _is_visible(ledger.transactions[number], records, index)
            for number, records in _records_by_transaction(ledger).items()
        }
        for ledger in history.producers_of(Kind.TRANSACTIONAL)
    }
    for read in history.position_reads:
        expected = _expected_offsets(read, of_producer[read.producer], by_name, visible)
        if read.offset in expected:
            continue
        texts = " or ".join("none" if offset is None else str(offset) for offset in sorted(expected, key=str))
        yield Finding(
            _position_anomaly(read, expected),
            f"{read.key}: {read.offset} is committed, expected {texts} ({read.after})",
        )


def _is_visible(transaction: Transaction, records: Sequence[RecordId], index: _Index) -> bool | None:
    """None if only the committed offsets can tell: the end is unknown, and there are no records."""
    if transaction.ending is Ending.COMMITTED:
        return True
    if transaction.ending is Ending.ABORTED:
        return False
    return index.is_visible(records[0]) if records else None


def _expected_offsets(
    read: PositionRead,
    names: Sequence[str],
    by_name: Mapping[str, ProducerLedger],
    visible: Mapping[str, Mapping[int, bool | None]],
) -> set[int | None]:
    expected: set[int | None] = {None}
    if read.after is None:
        return expected
    for name in names:
        for number, transaction in by_name[name].transactions.items():
            offset = transaction.offsets.get(read.key)
            if offset is not None:
                is_visible = visible[name][number]
                if is_visible:
                    expected = {offset}
                elif is_visible is None:
                    expected = expected | {offset}
            if (name, number) == read.after:
                return expected
    return expected


def _position_anomaly(read: PositionRead, expected: set[int | None]) -> Anomaly:
    """A committed offset above the expected one is that of a transaction without visible records."""
    largest = max((offset for offset in expected if offset is not None), default=-1)
    return Anomaly.HALF_VISIBLE if read.offset is not None and read.offset > largest else Anomaly.OFFSET_BACK


# Consumers.


def _session(session: Session, log: Sequence[Entry]) -> Iterator[Finding]:
    """Compare what a consumer returned with the final log."""
    if not session.seen:
        return
    name = f"{session.consumer}, partition {session.partition}"
    entries = {entry.offset: entry for entry in log}
    visible = [entry.offset for entry in log if entry.is_committed or not session.read_committed]
    first = session.seen[0].offset
    if first < session.at_least:
        yield Finding(
            Anomaly.OFFSET_BACK, f"{name} resumed at offset {first}, {session.at_least} was acknowledged as committed"
        )
    yield from _skipped(name, visible, session.at_most, first)
    before = None
    for offset, record in session.seen:
        entry = entries.get(offset)
        if entry is None or entry.record != record:
            yield Finding(Anomaly.PHANTOM, f"{name}, offset {offset}: {record}, the log holds {entry and entry.record}")
        elif session.read_committed and not entry.is_committed:
            yield Finding(Anomaly.UNSTABLE, f"{name}, offset {offset}: {record}")
        if before is not None:
            if offset <= before:
                yield Finding(Anomaly.REWOUND, f"{name}: offset {offset} after {before}")
            else:
                yield from _skipped(name, visible, before + 1, offset)
        before = offset


def _skipped(name: str, visible: Sequence[int], start: int, end: int) -> Iterator[Finding]:
    """Visible offsets in [start, end)."""
    skipped = visible[bisect_left(visible, start) : bisect_left(visible, end)]
    if skipped:
        yield Finding(Anomaly.SKIPPED, f"{name}: {len(skipped)} records from offset {skipped[0]} to {skipped[-1]}")


def _offset_read(read: OffsetRead) -> Iterator[Finding]:
    if read.offset < read.at_least:
        where = f"{read.key}: {read.offset} is committed, {read.at_least} was acknowledged"
        yield Finding(Anomaly.OFFSET_BACK, where)
    elif read.offset > read.at_most:
        where = f"{read.key}: {read.offset} is committed, at most {read.at_most} was requested"
        yield Finding(Anomaly.OFFSET_UNASKED, where)


def _broker_faults(history: History) -> Iterator[Finding]:
    yield from (Finding(Anomaly.BROKER_FAULT, line) for line in history.broker_errors)
    for error, count in sorted(history.errors.items()):
        if error.name in FAULTS:
            yield Finding(Anomaly.BROKER_FAULT, f"{error.client}: {error.name}, {count} times")


# Counts for the table.


class ProducerCounts(NamedTuple):
    """Totals of the producers of one kind. unknown_written: unknown records that are in the log."""

    sent: int
    acknowledged: int
    failed: int
    unknown: int
    unknown_written: int
    repeated: int


def count_producers(history: History, kind: Kind) -> ProducerCounts:
    index = _Index.of(history.log)
    outcomes: Counter[Outcome] = Counter()
    written = repeated = sent = 0
    for ledger in history.producers_of(kind):
        for send in ledger.sends:
            sent += 1
            outcome = ledger.result(send.number).outcome
            outcomes[outcome] += 1
            copies = len(index.places.get(RecordId(ledger.name, send.number), ()))
            written += outcome is Outcome.UNKNOWN and copies > 0
            repeated += max(copies - 1, 0)
    return ProducerCounts(
        sent, outcomes[Outcome.ACKNOWLEDGED], outcomes[Outcome.FAILED], outcomes[Outcome.UNKNOWN], written, repeated
    )


class TransactionCounts(NamedTuple):
    """Totals. unknown_visible: unknown transactions that are visible. with_offsets: those that commit offsets."""

    committed: int
    aborted: int
    unknown: int
    unknown_visible: int
    with_offsets: int


def count_transactions(history: History) -> TransactionCounts:
    index = _Index.of(history.log)
    endings: Counter[Ending] = Counter()
    visible = with_offsets = 0
    for ledger in history.producers_of(Kind.TRANSACTIONAL):
        for number, records in _records_by_transaction(ledger).items():
            transaction = ledger.transactions[number]
            endings[transaction.ending] += 1
            with_offsets += bool(transaction.offsets)
            if transaction.ending is Ending.UNKNOWN and any(map(index.is_visible, records)):
                visible += 1
    return TransactionCounts(
        endings[Ending.COMMITTED], endings[Ending.ABORTED], endings[Ending.UNKNOWN], visible, with_offsets
    )


def group_partitions(history: History) -> set[GroupPartition]:
    """Return the group partitions whose offsets transactions commit."""
    return {
        key
        for ledger in history.producers
        for transaction in ledger.transactions.values()
        for key in transaction.offsets
    }
