"""Report of a repair: records kept and lost, as values, JSON and text."""

from __future__ import annotations

import codecs
import datetime
from dataclasses import asdict, dataclass, field
from typing import Any

KEY_BYTES = 200
"""Bytes of a key that a report shows. A key can be a megabyte long, and a report lists up to 100 for each loss."""
_SHOWN_KEYS = 10  # keys in a line of the report; its JSON has all


@dataclass(frozen=True, slots=True)
class Loss:
    """Bytes [position, position + size) of a .log file that are not in the repaired log.

    Attributes:
        why: What is wrong with the bytes.
        first_offset: Offset after the last kept batch before the bytes.
        next_offset: Base offset of the first kept batch after them; None if none follows in the segment.
            Compaction may already have removed some of the offsets in between.
        timestamp_before: Max timestamp of the kept batch before them, in ms; None without one.
        timestamp_after: Max timestamp of the kept batch after them, in ms; None without one.
        keys: Up to 100 different keys of records in these bytes, by `key_text`. They are unproven, because the batch
            is damaged.
        keys_read: Number of records whose key could be read.
    """

    path: str
    position: int
    size: int
    why: str
    first_offset: int
    next_offset: int | None
    timestamp_before: int | None
    timestamp_after: int | None = None
    keys: tuple[str, ...] = ()
    keys_read: int = 0


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """Bytes [position, position + size) of another copy's .log that are in the repaired log.

    They have the offsets [first_offset, next_offset), which the primary copy lacks.
    """

    path: str
    position: int
    size: int
    first_offset: int
    next_offset: int


@dataclass(slots=True)
class PartitionReport:
    """Report of a partition.

    Attributes:
        batches: Number of kept batches.
        bytes_before: Bytes of the source's .log files.
        bytes_kept: Bytes of the repaired .log files.
        epochs_rewritten: Number of batches that got another leader epoch, because theirs did not fit their neighbours.
        losses: Lost bytes.
        taken: Bytes that come from other copies.
        open_transactions: First offset by producer id of the transactions without a marker at the end of the log. In a
            damaged log, the marker may be lost.
        notes: Other changes.
        unread: Files whose records may be lost, and why.
        error: Why the partition could not be read at all; else None.
    """

    topic: str
    partition: int
    directory: str
    log_start_offset: int = 0
    log_end_offset: int = 0
    batches: int = 0
    bytes_before: int = 0
    bytes_kept: int = 0
    epochs_rewritten: int = 0
    losses: list[Loss] = field(default_factory=list)
    taken: list[CopiedRange] = field(default_factory=list)
    open_transactions: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    error: str | None = None

    @property
    def is_whole(self) -> bool:
        """True if all records were kept with the leader epochs that they had."""
        return not self.losses and not self.epochs_rewritten and not self.unread and self.error is None


@dataclass(slots=True)
class RepairReport:
    """Reports of all partitions, by topic and number."""

    destination: str
    partitions: list[PartitionReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return all(partition.is_whole for partition in self.partitions)

    @property
    def bytes_lost(self) -> int:
        return sum(loss.size for partition in self.partitions for loss in partition.losses)

    def as_json(self) -> dict[str, Any]:
        """The values that `kafkalog-repair --json` prints."""
        partitions = [asdict(partition) | {"is_whole": partition.is_whole} for partition in self.partitions]
        return {
            "destination": self.destination,
            "is_whole": self.is_whole,
            "bytes_lost": self.bytes_lost,
            "notes": self.notes,
            "partitions": partitions,
        }

    def lines(self) -> list[str]:
        """Return the lines that `kafkalog-repair` prints: all changes and losses, then a summary."""
        lines = [f"note: {note}" for note in self.notes]
        for partition in self.partitions:
            name = f"{partition.topic}-{partition.partition}"
            if partition.error is not None:
                lines.append(f"lost: {name}: {partition.error}")
            lines += [f"lost: {name}: {text}" for text in partition.unread]
            lines += [
                f"taken: {name} {taken.path} from byte {taken.position}, {taken.size} bytes: offsets "
                f"{taken.first_offset} to {taken.next_offset - 1}, which are missing or damaged in the primary copy"
                for taken in partition.taken
            ]
            lines += [_loss_line(name, loss) for loss in partition.losses]
            if partition.epochs_rewritten:
                batches_changed = _counted(partition.epochs_rewritten, "batch", "batches")
                lines.append(f"changed: {name}: the leader epoch of {batches_changed}")
            if partition.losses:
                lines += [
                    f"note: {name}: the transaction of producer id {producer} from offset {first} on has no marker, "
                    "which may be lost"
                    for producer, first in sorted(partition.open_transactions.items())
                ]
            lines += [f"note: {name}: {note}" for note in partition.notes]
        kept = sum(partition.bytes_kept for partition in self.partitions)
        batches = sum(partition.batches for partition in self.partitions)
        losses = sum(len(partition.losses) for partition in self.partitions)
        lines.append(
            f"{_counted(len(self.partitions), 'partition')}, {_counted(batches, 'batch', 'batches')}, "
            f"{kept / 1e6:.1f} MB kept, {self.bytes_lost / 1e6:.3f} MB lost in {_counted(losses, 'place')}: "
            f"{self.destination}"
        )
        return lines


def _counted(count: int, singular: str, plural: str | None = None) -> str:
    """Return the count and the noun: `1 place` or `2 places`."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def _loss_line(name: str, loss: Loss) -> str:
    range_end = "on" if loss.next_offset is None else f"to {loss.next_offset - 1}"
    offsets = "no offset" if loss.next_offset == loss.first_offset else f"offsets {loss.first_offset} {range_end}"
    times = ""
    match loss.timestamp_before, loss.timestamp_after:
        case int(before), int(after):
            times = f", between {_iso_time(before)} and {_iso_time(after)}"
        case int(before), None:
            times = f", after {_iso_time(before)}"
        case None, int(after):
            times = f", before {_iso_time(after)}"
    keys = ""
    if loss.keys:
        more = len(loss.keys) - _SHOWN_KEYS
        keys = f"; keys that can still be read there: {', '.join(loss.keys[:_SHOWN_KEYS])}"
        keys += f" and {more} more" if more > 0 else ""
    return f"lost: {name} {loss.path} at byte {loss.position}, {loss.size} bytes: {offsets}{times}: {loss.why}{keys}"


def key_text(key: bytes) -> str:
    """Return a key for the report: at most KEY_BYTES bytes as text, or as hex if it is not printable UTF-8."""
    shown, rest = key[:KEY_BYTES], "..." if len(key) > KEY_BYTES else ""
    try:
        # With final=False, an incomplete character at the end is dropped.
        text = codecs.getincrementaldecoder("utf-8")().decode(shown, final=not rest)
    except UnicodeDecodeError:
        return f"0x{shown.hex()}{rest}"
    return f"{text}{rest}" if text.isprintable() else f"0x{shown.hex()}{rest}"


def _iso_time(ms: int) -> str:
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
