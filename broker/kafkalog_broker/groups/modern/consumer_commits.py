"""Whether a member of a consumer group may commit or fetch offsets (ConsumerGroup.validateOffsetCommit, KIP-1251)."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.messages import NO_GENERATION, NO_MEMBER
from kafkalog_broker.groups.modern.consumer_group import ConsumerGroup
from kafkalog_broker.groups.modern.values import ConsumerMember

FIRST_VERSION = 9
"""Of OffsetCommit, for members with the consumer protocol."""


def check_commit(
    group: ConsumerGroup, member_id: str, epoch: int, partitions: Iterable[tuple[UUID | None, int]], version: int
) -> None:
    """Raises BrokerError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION, UNSUPPORTED_VERSION. An epoch
    before the member's is taken for partitions that it has had since then."""
    if epoch < 0 and not group.members:
        return  # an administrator, or a consumer that assigns itself
    member = group.member(member_id)
    if member.classic is None and version < FIRST_VERSION:
        raise BrokerError(
            ErrorCode.unsupported_version,
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
        )
    _check_epoch(member, epoch, partitions)


def check_transactional_commit(
    group: ConsumerGroup, member_id: str, epoch: int, instance_id: str | None,
    partitions: Iterable[tuple[UUID | None, int]],
) -> None:  # fmt: skip
    """Raises BrokerError: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION. Producers before Kafka 2.5 name no member."""
    names_nobody = epoch == NO_GENERATION and member_id == NO_MEMBER and instance_id is None
    if names_nobody or (epoch < 0 and not group.members):
        return
    try:
        _check_epoch(group.member(member_id), epoch, partitions)
    except BrokerError as error:
        if error.code is not ErrorCode.stale_member_epoch:
            raise
        raise BrokerError(ErrorCode.illegal_generation, error.what) from None


def _check_epoch(member: ConsumerMember, epoch: int, partitions: Iterable[tuple[UUID | None, int]]) -> None:
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        raise _stale(member, f"Received member epoch {epoch} is newer than current member epoch {member.epoch}.")
    for topic_id, partition in partitions:
        since = None if topic_id is None else member.epoch_of(topic_id, partition)
        if since is None:
            raise _stale(member, f"Partition {partition} of {topic_id} is not assigned or pending revocation.")
        if epoch < since:
            raise _stale(
                member,
                f"Received member epoch {epoch} is older than assignment epoch {since} of partition {partition}.",
            )


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raises BrokerError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION."""
    if member_id is None and epoch < 0:
        return  # an administrator, or a client that does not say who it is
    member = group.member(member_id or "")
    if epoch != member.epoch:
        raise _stale(member, f"The received member epoch {epoch} does not match the expected one {member.epoch}.")


def _stale(member: ConsumerMember, what: str) -> BrokerError:
    code = ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation
    return BrokerError(code, what)
