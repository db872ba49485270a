"""Checks of the member that commits or fetches offsets of a consumer or streams group (KIP-1251)."""

from __future__ import annotations

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_requests import NO_GENERATION, NO_MEMBER
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup
from kafkalog_broker.groups.modern.stale_epoch import stale_member_epoch
from kafkalog_broker.groups.offset_requests import CommitRequest
from kafkalog_broker.groups.streams.streams_group import StreamsGroup


def check_commit(group: ConsumerGroup | StreamsGroup, request: CommitRequest) -> None:
    """Check an offset commit. An earlier member epoch is accepted for partitions assigned in or before that epoch.

    Raises:
        BrokerError: unknown_member_id, stale_member_epoch, illegal_generation or unsupported_version.
    """
    in_transaction = request.producer is not None
    if request.generation < 0 and not group.members:
        return  # an administrator, or a consumer that assigns partitions to itself
    has_no_member = request.member_id == NO_MEMBER and request.group_instance_id is None
    if in_transaction and request.generation == NO_GENERATION and has_no_member:
        return  # producers before Kafka 2.5 name no member
    member = group.member(request.member_id)
    if not (in_transaction or member.classic is not None or request.supports_group_id_not_found):
        raise BrokerError(
            ErrorCode.unsupported_version,
            f"OffsetCommit version 9 or above must be used by members using the {group.group_type.value} group "
            "protocol",
        )
    try:
        _check_commit_epoch(group, request)
    except BrokerError as error:
        if in_transaction and error.code is ErrorCode.stale_member_epoch:
            raise BrokerError(ErrorCode.illegal_generation, error.what) from None
        raise


def check_fetch(group: ConsumerGroup | StreamsGroup, member_id: str | None, epoch: int) -> None:
    """Check the member that fetches offsets.

    Raises:
        BrokerError: unknown_member_id or stale_member_epoch.
    """
    if member_id is None and epoch < 0:
        return  # an administrator, or a client that does not name its member
    member = group.member(member_id or "")
    if epoch != member.epoch:
        raise stale_member_epoch(
            member, f"The received member epoch {epoch} does not match the expected one {member.epoch}."
        )


def _check_commit_epoch(group: ConsumerGroup | StreamsGroup, request: CommitRequest) -> None:
    member = group.members[request.member_id]
    epoch = request.generation
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        raise stale_member_epoch(
            member, f"Received member epoch {epoch} is newer than current member epoch {member.epoch}."
        )
    for partition in request.partitions:
        # mypy cannot know that the member, which the group itself returned, has the type that its method accepts.
        assignment_epoch = group.assignment_epoch_of(member, partition)  # type: ignore[arg-type]
        if epoch < assignment_epoch:
            raise stale_member_epoch(
                member,
                f"Received member epoch {epoch} is older than assignment epoch {assignment_epoch} of partition "
                f"{partition.partition}.",
            )
