"""Look-ups by leader epoch in a log, for clients and followers that compare their logs with it (KIP-320, KIP-595)."""

from __future__ import annotations

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.storage.partition.leader_epochs import EpochEndOffset
from kafkalog_broker.storage.partition.log import Log


def check_leader_epoch(log: Log, epoch: int) -> None:
    """Check the current leader epoch in a client's request; -1 means that the client does not know it.

    Raises:
        BrokerError: fenced_leader_epoch, unknown_leader_epoch.
    """
    current = log.leader_epoch
    if epoch in (-1, current):
        return
    code = ErrorCode.fenced_leader_epoch if epoch < current else ErrorCode.unknown_leader_epoch
    raise log.partition_error(code, f"the request has leader epoch {epoch}, the current one is {current}")


def end_offset_for_epoch(log: Log, epoch: int) -> EpochEndOffset:
    """Return the result of OffsetForLeaderEpoch; see `LeaderEpochs.end_offset_for`."""
    return log.epochs.end_offset_for(epoch, log.log_end_offset)


def diverging_epoch(log: Log, offset: int, last_epoch: int) -> EpochEndOffset | None:
    """Find where a follower's log diverges from this one (Kafka: `Partition.readRecords`, KIP-595).

    Args:
        log: The leader's log.
        offset: The follower's fetch offset.
        last_epoch: Leader epoch of the follower's batch before `offset`.

    Returns:
        The last epoch that both logs can share, with its end offset here; None if nothing shows that the logs diverge.

    Raises:
        BrokerError: offset_out_of_range, also if `last_epoch` is unknown.
    """
    log.check_online()
    known = end_offset_for_epoch(log, last_epoch)
    epoch, end = known
    if min(epoch, end) < 0:
        message = f"offset {offset} follows a batch of leader epoch {last_epoch}, which is unknown here"
        raise log.partition_error(ErrorCode.offset_out_of_range, message, offset)
    if offset < log.log_start_offset:
        message = f"offset {offset} is below the log start offset, {log.log_start_offset}"
        raise log.partition_error(ErrorCode.offset_out_of_range, message, offset)
    return known if epoch < last_epoch or end < offset else None
