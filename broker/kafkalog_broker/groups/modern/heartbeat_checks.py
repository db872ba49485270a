"""Which heartbeats are refused, with Kafka's codes and words (GroupCoordinatorService, GroupMetadataManager)."""

from __future__ import annotations

from collections.abc import Collection

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.heartbeat_messages import NOT_SAID, ConsumerHeartbeat
from kafkalog_broker.groups.modern.reconciliation import Reported
from kafkalog_broker.groups.modern.values import LEAVING, LEAVING_STATIC, ConsumerMember, Owned


def check_request(request: ConsumerHeartbeat, assignors: Collection[str]) -> None:
    """Raises BrokerError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR. Whatever the group is."""
    epoch = request.member_epoch
    if request.needs_member_id or epoch > 0 or epoch == LEAVING:
        _check_not_empty(request.member_id, "MemberId")
    _check_not_empty(request.group_id, "GroupId")
    _check_not_empty(request.instance_id, "InstanceId")
    _check_not_empty(request.rack_id, "RackId")
    if epoch == 0:
        if request.rebalance_timeout_ms == NOT_SAID:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.topics is None and request.regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == LEAVING_STATIC and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_STATIC:
        raise _invalid("MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in assignors:
        raise BrokerError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_not_empty(text: str | None, what: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{what} can't be empty.")


def _invalid(what: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_request, what)


def check_epoch(member: ConsumerMember, epoch: int, reported: Reported | None) -> None:
    """Raises BrokerError (FENCED_MEMBER_EPOCH). The epoch before is taken from who has nothing but what it was
    assigned: the answer with its next epoch was lost."""
    if epoch in (0, member.epoch):
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _is_part(reported, member.assigned):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    raise BrokerError(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_part(reported: Reported | None, assigned: Owned) -> bool:
    if reported is None:
        return False
    return all(
        partition in assigned.get(topic, {}) for topic, partitions in reported.items() for partition in partitions
    )


def check_released(owner: ConsumerMember, member_id: str, instance_id: str) -> None:
    """Raises BrokerError (UNRELEASED_INSTANCE_ID) while the member that has the instance id has not left."""
    if owner.epoch != LEAVING_STATIC:
        raise BrokerError(
            ErrorCode.unreleased_instance_id,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {owner.member_id} member.",
        )


def check_static(owner: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """The static member. Raises BrokerError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if owner is None:
        raise BrokerError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
    if owner.member_id != member_id:
        raise BrokerError(
            ErrorCode.fenced_instance_id,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {owner.member_id}.",
        )
    return owner
