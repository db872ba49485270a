"""Acknowledgements of ShareFetch and ShareAcknowledge: read from requests, checked and carried out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_broker.broker import Broker
from kafkalog_broker.config.log_config import internal_topic_configs
from kafkalog_broker.coordinator.coordinator_log import CoordinatorLog
from kafkalog_broker.coordinator.runtime import Scheduler
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_context import ShareGroupSettings, share_group_settings
from kafkalog_broker.groups.modern.group_records import SharedTopic
from kafkalog_broker.protocol.api_registry import Request
from kafkalog_broker.runtime.fair_scheduling import TimeSlice, run_in_slices
from kafkalog_broker.share.in_flight_batch import AcknowledgeType
from kafkalog_broker.share.share_coordinator import ShareCoordinator
from kafkalog_broker.share.share_partition import Acknowledgement
from kafkalog_broker.share.share_partition_manager import SharePartitionManager
from kafkalog_broker.share.share_sessions import Partition
from kafkalog_broker.share.state_records import NO_START_OFFSET, SharePartitionKey, share_partition
from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.format.names import SHARE_STATE_TOPIC

FIRST_RENEWING_VERSION = 2
LONGEST_MEMBER_ID = 36
BATCHES_A_STEP = 500
"""Acknowledgements that are checked in half a millisecond."""


def check_member_id(member_id: str | None) -> None:
    """Raises BrokerError invalid_request."""
    if not member_id or len(member_id) > LONGEST_MEMBER_ID:
        raise BrokerError(ErrorCode.invalid_request, "Invalid member id in the request.")


class AckOutcome(NamedTuple):
    """Outcome of the acknowledgements of a partition."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None


async def acknowledge_all(request: Request, broker: Broker, turn: TimeSlice) -> Mapping[Partition, AckOutcome]:
    """By partition, of those that the request names acknowledgements of, or, for ShareAcknowledge, names at all."""
    asked = request.entity
    may_renew = request.version >= FIRST_RENEWING_VERSION
    is_renewing = may_renew and asked.is_renew_ack
    result: dict[Partition, AckOutcome] = {}
    written: set[int] = set()
    for topic in asked.topics:
        known = broker.topics.by_id(topic.topic_id)
        for partition in topic.partitions:
            if turn.over:
                await turn.next()
            key = share_partition(asked.group_id, topic.topic_id, partition.partition_index)
            try:
                if known is None:
                    raise BrokerError(ErrorCode.unknown_topic_id)
                batches = await run_in_slices(checked(partition.acknowledgement_batches, may_renew, is_renewing), turn)
                code = topic_refusal(request, known.name)
                if code is not ErrorCode.none:
                    raise BrokerError(code)
                if not 0 <= key.partition < known.partitions:
                    raise BrokerError(ErrorCode.unknown_topic_or_partition)
                if batches:
                    broker.share_partitions.acknowledge(key, asked.member_id, batches)
                    written.add(broker.share_coordinator.partition_for(key))
                result[key.topic_id, key.partition] = AckOutcome()
            except BrokerError as error:
                message = None if error.what == error.code.name else error.what
                result[key.topic_id, key.partition] = AckOutcome(error.code, message)
    for index in written:
        await broker.flush_if_due(broker.share_state_topic.log(index))
    return result


def topic_refusal(request: Request, name: str) -> ErrorCode:
    """`none` where the sender may read the topic."""
    return request.refused(name)


def checked(batches: Sequence[Any], may_renew: bool, is_renewing: bool) -> Generator[None, None, list[Acknowledgement]]:
    """Step by step. Raises BrokerError invalid_request (KafkaApis.validateAcknowledgementBatches).

    A batch may begin where the one before ends, so one offset may be named any number of times, in batches of its own.
    To renew it a second time changes nothing: that is left out. Whatever else is said of it twice is refused later. So
    what is left is no longer than some three times the records in flight, or is refused when it comes to that.
    """
    highest = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    found, end = list[Acknowledgement](), -1
    for at, batch in enumerate(batches, 1):
        if not at % BATCHES_A_STEP:
            yield
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        kinds = set(types)
        if (
            first > last
            or first < end
            or not kinds
            or (len(types) > 1 and last - first != len(types) - 1)
            or min(kinds) < 0
            or max(kinds) > highest
            or (AcknowledgeType.RENEW in kinds and not is_renewing)
        ):
            raise BrokerError(ErrorCode.invalid_request)
        end = last
        said = Acknowledgement(first, last, types)
        if AcknowledgeType.RENEW not in kinds or not found or said != found[-1]:
            found.append(said)
    return found


# Changes of share groups that both coordinators take part in: begun in the group, carried out in the share
# partitions' state, finished in the group. What is left half done by a crash is done again when it is asked for
# again.

_log = logging.getLogger(__name__)

Offsets = Mapping[UUID, Mapping[int, int]]
"""Topic id to partition to start offset."""


async def ensure_state_topic(broker: Broker) -> None:
    """Raises BrokerError."""
    if SHARE_STATE_TOPIC not in broker.topics:
        partitions = broker.config.share_coordinator_state_topic_num_partitions
        configs = internal_topic_configs(broker.config)[SHARE_STATE_TOPIC]
        await broker.ensure_topic(SHARE_STATE_TOPIC, partitions, configs)


async def initialize(broker: Broker, group_id: str, state_epoch: int, topics: Mapping[UUID, SharedTopic]) -> None:
    """Begin the state of share partitions that members subscribe to, and let the group know."""
    turn = TimeSlice()
    try:
        try:
            await ensure_state_topic(broker)
            for topic_id, info in topics.items():
                async for index in turn.spread(info.partitions):
                    key = SharePartitionKey(group_id, topic_id, index)
                    broker.share_coordinator.initialize(key, state_epoch, NO_START_OFFSET)
        except BrokerError as error:
            _log.warning("share group %.200r: the state of its partitions cannot be begun: %s", group_id, error)
            broker.groups.share_groups(group_id).set_not_initialized(group_id, topics)
        else:
            broker.groups.share_groups(group_id).set_initialized(group_id, topics)
    except BrokerError as error:  # it is begun again after group.share.initialize.retry.interval.ms
        _log.warning("share group %.200r: which partitions have state cannot be written: %s", group_id, error)


async def alter_offsets(
    broker: Broker, group_id: str, wanted: Offsets, turn: TimeSlice
) -> dict[tuple[UUID | None, int], BrokerError]:
    """Errors of the partitions that could not be set. Raises BrokerError."""
    await ensure_state_topic(broker)
    share_groups = broker.groups.share_groups(group_id)
    share_groups.check_type(group_id)
    infos = {
        topic_id: SharedTopic(topic.name, tuple(sorted(offsets)))
        for topic_id, offsets in wanted.items()
        if (topic := broker.topics.by_id(topic_id)) is not None
    }
    epoch = share_groups.begin_altering(group_id, infos)
    broker.share_partitions.forget_group(group_id)
    failed: dict[tuple[UUID | None, int], BrokerError] = {}
    for topic_id, offsets in wanted.items():
        async for index, offset in turn.spread(offsets.items()):
            try:
                broker.share_coordinator.initialize(SharePartitionKey(group_id, topic_id, index), epoch, offset)
            except BrokerError as error:
                failed[topic_id, index] = error
    if not failed and infos:
        share_groups.set_initialized(group_id, infos)
    return failed


async def delete_offsets(
    broker: Broker, group_id: str, topics: Mapping[UUID, str], turn: TimeSlice
) -> dict[UUID, BrokerError | None]:
    """Outcome of each topic that had state. Raises BrokerError."""
    share_groups = broker.groups.share_groups(group_id)
    found = share_groups.begin_deleting(group_id, list(topics))
    broker.share_partitions.forget_group(group_id)
    outcomes = await _delete_state(broker, group_id, found, turn)
    gone = [topic for topic, outcome in outcomes.items() if outcome is None]
    if gone:
        share_groups.set_deleted(group_id, gone)
    return outcomes


async def delete_group(broker: Broker, group_id: str) -> None:
    """Raises BrokerError: group_id_not_found, non_empty_group, and those of the share coordinator."""
    share_groups = broker.groups.share_groups(group_id)
    found = share_groups.all_with_state(group_id)
    broker.share_partitions.forget_group(group_id)
    for outcome in (await _delete_state(broker, group_id, found, TimeSlice())).values():
        if outcome is not None:
            raise outcome
    share_groups.delete(group_id)


async def _delete_state(
    broker: Broker, group_id: str, topics: Mapping[UUID, SharedTopic], turn: TimeSlice
) -> dict[UUID, BrokerError | None]:
    outcomes: dict[UUID, BrokerError | None] = {}
    for topic_id, info in topics.items():
        outcomes[topic_id] = None
        async for index in turn.spread(info.partitions):
            try:
                broker.share_coordinator.delete(SharePartitionKey(group_id, topic_id, index))
            except BrokerError as error:
                outcomes[topic_id] = error
    return outcomes


# The parts of a broker that serve share groups, put together.


class ShareParts:
    """Gives a broker `share_state_topic`, `share_coordinator` and `share_partitions`."""

    def __init__(self, broker: Broker, scheduler: Scheduler) -> None:
        self._broker = broker
        self._initializing: set[asyncio.Task[None]] = set()
        config, clock = broker.config, broker.clock
        broker.share_state_topic = state = CoordinatorLog(
            SHARE_STATE_TOPIC, broker.topics, broker.log, clock, config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_load_buffer_size,
        )  # fmt: skip
        broker.share_coordinator = ShareCoordinator(config, clock, state, self._partitions_of)
        broker.share_partitions = SharePartitionManager(
            config.group_share_max_share_sessions, broker.share_coordinator, self._log_of, self.settings_of, clock,
            scheduler, broker.workers.run_blocking,
        )  # fmt: skip
        broker.share_coordinator.runtime.begin_loading(state.owned())

    def stop(self) -> None:
        for task in self._initializing:
            task.cancel()
        self._broker.share_coordinator.runtime.stop()

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """Present settings of a share group."""
        return share_group_settings(self._broker.config, self._broker.dynamic_configs.of_group(group_id))

    def _partitions_of(self, topic_id: UUID) -> int | None:
        topic = self._broker.topics.by_id(topic_id)
        return None if topic is None else topic.partitions

    def _log_of(self, topic_id: UUID, partition: int) -> Log:
        topic = self._broker.topics.by_id(topic_id)
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_id, f"there is no topic with id {topic_id}")
        return self._broker.log(topic.name, partition)

    def initialize(self, group_id: str, epoch: int, topics: Mapping[UUID, SharedTopic]) -> None:
        task = asyncio.create_task(initialize(self._broker, group_id, epoch, topics))
        self._initializing.add(task)
        task.add_done_callback(self._initializing.discard)
