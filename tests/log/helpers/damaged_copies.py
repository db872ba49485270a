"""Log directories of brokers with one partition (damaged_log), of batches of five records that may be damaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, format_leader_epochs
from tests.log.helpers.batch_builder import batch
from tests.log.helpers.damaged_log import PARTITION, TOPIC, patched, records, write_segments


def data(first: int, epoch: int = 0, size: int = 10) -> bytes:
    """A batch of the offsets [first, first + 5)."""
    return batch(first, records(first, 5, size), leader_epoch=epoch)


def broken(whole: bytes) -> bytes:
    """With a last batch whose CRC no longer matches."""
    return patched(whole, len(whole) - 3, b"!")


def broker(
    root: Path,
    segments: Mapping[int, bytes],
    epochs: Sequence[tuple[int, int]] = ((0, 0),),
    *,
    recovery_point: int | None = None,
) -> Path:
    """The log directory with these .log files by base offset, leader epochs (epoch, start) and recovery point."""
    directory = write_segments(root, dict(segments))
    (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(format_leader_epochs(epochs))
    if recovery_point is not None:
        text = f"0\n1\n{TOPIC} {PARTITION} {recovery_point}\n"
        (root / "recovery-point-offset-checkpoint").write_text(text)
    return root
