"""Topics of this broker: names, IDs, numbers of partitions, configuration overrides.

A Kafka cluster keeps these in the controllers' metadata log. Here they are one JSON file, `kafkalog.topics.json`:

    {"version": 0, "generation": 7, "topics": [
    {"name": "orders", "id": "FEjhIyDdTCKRqdTaanlPnA", "partitions": 3, "configs": {"retention.ms": "9"}}
    ], "deleted": ["2xQ5oL1bTPOa0l9pY2YyGA"]}

Each change rewrites the whole file; all changes of one request are one write. Every online log directory gets a copy,
and a start reads the copy with the highest generation, so no topic is lost with a failed directory. `deleted` lists the
IDs of deleted topics whose directories may still exist, so that a start after a crash does not register them again.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.file_fault import FileFault, file_fault
from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.topic import Topic, check_topic_name
from kafkalog_broker.storage.topic_registry_file import (
    TOPICS_FILE,
    RegistryState,
    format_registry,
    format_topic,
    read_registry,
)
from kafkalog_spark.format.atomic_file import replace_file
from kafkalog_spark.format.names import MAX_PARTITIONS, metrics_name
from kafkalog_spark.format.partition_metadata import (
    uuid_to_text,
)

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

Outcome = Topic | BrokerError
"""Result for one of several topics that are changed together."""


class TopicRegistry:
    """Topics by name and by ID. Call `load` first.

    Reads need no lock and never block. A change blocks until it is on disk. It raises BrokerError KAFKA_STORAGE_ERROR
    if no log directory can be written; nothing has changed then.

    Attributes:
        created_generation: Generation in which topics were last added.
        was_read: False if `load` found no readable file. The topics are then registered from partition directories.
    """

    def __init__(self, dirs: Iterable[LogDirectory]) -> None:
        self._dirs = list(dirs)
        self._guard = threading.Lock()
        self._state = RegistryState(0, {})
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._folded: dict[str, str] = {}  # name in metrics -> name
        self._lines: dict[str, str] = {}
        self.created_generation = 0
        self.was_read = False

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Topics by name; a snapshot that later changes do not modify."""
        return self._state.topics

    @property
    def generation(self) -> int:
        return self._state.generation

    @property
    def deleted(self) -> frozenset[uuid.UUID]:
        return self._state.deleted

    def get(self, name: str) -> Topic | None:
        return self._state.topics.get(name)

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def __contains__(self, name: object) -> bool:
        return name in self._state.topics

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._state.topics.values()))

    def __len__(self) -> int:
        return len(self._state.topics)

    def create_all(self, topics: Iterable[Topic]) -> list[Outcome]:
        """Add topics in one write.

        Returns:
            Each topic, or its BrokerError: INVALID_TOPIC_EXCEPTION for an invalid name or one that collides in metrics,
            TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS.
        """
        created: dict[str, Topic] = {}
        ids: set[uuid.UUID] = set()
        folded: dict[str, str] = {}

        def add(topic: Topic) -> Topic:
            self.check_new(topic.name, topic.partitions)
            if topic.name in created:
                raise _topic_exists_error(topic.name)
            if (other := folded.get(metrics_name(topic.name))) is not None:
                raise _name_collision_error(topic.name, other)
            if topic.id in self._by_id or topic.id in ids:
                raise BrokerError(ErrorCode.topic_already_exists, f"topic ID {uuid_to_text(topic.id)} is in use")
            created[topic.name] = topic
            ids.add(topic.id)
            folded[metrics_name(topic.name)] = topic.name
            return topic

        with self._guard:
            outcomes = [_outcome(add, topic) for topic in topics]
            self._commit(created.values())
        return outcomes

    def check_new(self, name: str, partitions: int) -> None:
        """Check a new topic's name and number of partitions, for CreateTopics with validate_only.

        Raises:
            BrokerError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS or INVALID_PARTITIONS, as `create_all` returns.
        """
        check_topic_name(name)
        if name in self._state.topics:
            raise _topic_exists_error(name)
        if (other := self._folded.get(metrics_name(name))) is not None:
            raise _name_collision_error(name, other)
        if not 0 < partitions < 2**31:
            raise BrokerError(
                ErrorCode.invalid_partitions, f"Number of partitions was set to an invalid value: {partitions}"
            )

    def delete_all(self, names: Iterable[str]) -> list[Outcome]:
        """Delete topics in one write; their IDs stay in `deleted` until `forget_deleted`.

        Returns:
            Each deleted topic, or BrokerError UNKNOWN_TOPIC_OR_PARTITION.
        """
        with self._guard:
            outcomes = [_outcome(self._require_topic, name) for name in dict.fromkeys(names)]
            removed = [topic for topic in outcomes if isinstance(topic, Topic)]
            self._commit(removed=removed, deleted=self._state.deleted | {topic.id for topic in removed})
        return outcomes

    def delete_registered(self, topics: Iterable[Topic]) -> None:
        """Undo `create_all`: delete those of these topics that are still registered."""
        with self._guard:
            removed = [known for topic in topics if (known := self._by_id.get(topic.id)) is not None]
            self._commit(removed=removed, deleted=self._state.deleted | {topic.id for topic in removed})

    def forget_deleted(self, ids: Iterable[uuid.UUID]) -> None:
        """Remove IDs from `deleted`. The topics' directories must be renamed, so that no start loads them."""
        with self._guard:
            self._commit(deleted=self._state.deleted - frozenset(ids))

    def add_all_partitions(self, totals: Mapping[str, int]) -> list[Outcome]:
        """Enlarge topics to these numbers of partitions in one write.

        Returns:
            Each changed topic, or its BrokerError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS if it has as many
            already.
        """

        def enlarged(name: str) -> Topic:
            topic = self._require_topic(name)
            total = totals[name]
            if not topic.partitions < total < 2**31:
                raise BrokerError(
                    ErrorCode.invalid_partitions,
                    f"Topic '{name}' has {topic.partitions} partitions, the requested number {total} must be larger",
                )
            return replace(topic, partitions=total)

        return self._replace_all(enlarged, totals)

    def undo_add_partitions(self, before: Iterable[tuple[Topic, int]]) -> None:
        """Undo `add_all_partitions` for topics whose logs could not be created, unless they were changed since.

        Args:
            before: Topics as added, with their previous number of partitions.
        """
        with self._guard:
            self._commit(
                replace(known, partitions=total)
                for topic, total in before
                if (known := self._by_id.get(topic.id)) is not None and known.partitions == topic.partitions
            )

    def set_all_configs(self, configs: Mapping[str, Mapping[str, str]]) -> list[Outcome]:
        """Replace all overrides of topics in one write.

        Returns:
            Each changed topic, or BrokerError UNKNOWN_TOPIC_OR_PARTITION.
        """
        return self._replace_all(lambda name: replace(self._require_topic(name), configs=dict(configs[name])), configs)

    def register_found(self, topics: Iterable[Topic]) -> None:
        """Add or replace topics found on disk, in one write."""
        with self._guard:
            self._commit(topics)

    def _require_topic(self, name: str) -> Topic:
        topic = self._state.topics.get(name)
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, f"topic '{name}' does not exist")
        return topic

    def _replace_all(self, make: Callable[[str], Topic], names: Iterable[str]) -> list[Outcome]:
        with self._guard:
            outcomes = [_outcome(make, name) for name in names]
            self._commit(topic for topic in outcomes if isinstance(topic, Topic))
        return outcomes

    def load(self) -> None:
        """Read the copy with the highest generation. Raises UnsupportedFormat for a file of a later release."""
        newest: RegistryState | None = None
        for log_dir in self._dirs:
            if not log_dir.is_online:
                continue
            state = read_registry(log_dir)
            if state is not None and (newest is None or state.generation > newest.generation):
                newest = state
        self.was_read = newest is not None
        if newest is not None:
            self._lines = {name: format_topic(topic) for name, topic in newest.topics.items()}
            self._by_id = {topic.id: topic for topic in newest.topics.values()}
            self._folded = {metrics_name(name): name for name in newest.topics}
            self._state = newest
            self.created_generation = newest.generation

    def _commit(
        self,
        changed: Iterable[Topic] = (),
        *,
        removed: Iterable[Topic] = (),
        deleted: frozenset[uuid.UUID] | None = None,
    ) -> None:
        """Write all copies, then publish the change to readers. One copy on disk is enough.

        A disk fault takes its directory offline.

        Raises:
            BrokerError: INVALID_PARTITIONS if the topics would have more than MAX_PARTITIONS partitions;
                KAFKA_STORAGE_ERROR if no copy was written. In both cases nothing has changed.
        """
        changed = list(changed)
        removed = list(removed)
        if deleted is None:
            deleted = self._state.deleted
        if not changed and not removed and deleted == self._state.deleted:
            return
        topics = dict(self._state.topics)
        lines = dict(self._lines)
        for topic in removed:
            del topics[topic.name], lines[topic.name]
        for topic in changed:
            topics[topic.name] = topic
            lines[topic.name] = format_topic(topic)
        partitions = sum(topic.partitions for topic in topics.values()) if changed else 0
        if partitions > MAX_PARTITIONS:
            raise BrokerError(
                ErrorCode.invalid_partitions,
                f"the topics would have {partitions} partitions in total, the limit is {MAX_PARTITIONS}",
            )
        state = RegistryState(self._state.generation + 1, topics, deleted)
        self._write_copies(format_registry(state, lines))
        self._publish(state, lines, changed, removed)

    def _write_copies(self, data: bytes) -> None:
        """Write a copy to each online log directory. A disk fault takes its directory offline.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR if no copy was written.
        """
        written = 0
        failure = None
        for log_dir in self._dirs:
            if log_dir.is_online:
                try:
                    replace_file(log_dir.path / TOPICS_FILE, data)
                    written += 1
                except OSError as error:
                    failure = error
                    if file_fault(error) is FileFault.NONE:
                        _log.warning("%s was not written to %s: %r", TOPICS_FILE, log_dir.path, error)
                    else:
                        log_dir.fail(error)
        if not written:
            message = f"{TOPICS_FILE} was not written to any log directory"
            message += f": {failure}" if failure is not None else ""
            raise BrokerError(ErrorCode.kafka_storage_error, message) from failure

    def _publish(
        self, state: RegistryState, lines: dict[str, str], changed: Sequence[Topic], removed: Sequence[Topic]
    ) -> None:
        """Replace the state that readers see, and update the indexes over it."""
        previous = self._state.topics
        if any(topic.name not in previous for topic in changed):
            self.created_generation = state.generation
        for topic in changed:
            if (other := previous.get(topic.name)) is not None and other.id != topic.id:
                self._by_id.pop(other.id, None)
            self._by_id[topic.id] = topic
            self._folded[metrics_name(topic.name)] = topic.name
        self._lines = lines
        self._state = state
        for topic in removed:
            self._by_id.pop(topic.id, None)
            self._folded.pop(metrics_name(topic.name), None)
        if len(self._folded) < len(state.topics):  # topics found on disk may collide in metrics; one of them may remain
            self._folded = {metrics_name(name): name for name in state.topics}


def _outcome(change: Callable[[_T], Topic], argument: _T) -> Outcome:
    try:
        return change(argument)
    except BrokerError as error:
        return error


def _topic_exists_error(name: str) -> BrokerError:
    return BrokerError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")


def _name_collision_error(name: str, other: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {other}")
