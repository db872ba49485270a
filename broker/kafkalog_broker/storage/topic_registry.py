"""The topics of this broker, by name and by id.

What one request changes is one write of the file (`topics_file`), in every log directory. Each change is on disk before
it returns. The line of a topic is made once.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.topics_file import (
    TOPICS_FILE,
    RegistryState,
    Topic,
    format_registry,
    format_topic,
    read_registry,
)
from kafkalog_spark.format.atomic_file import replace_file
from kafkalog_spark.format.names import MAX_TOPIC_NAME_LENGTH, metrics_name, valid_topic_name
from kafkalog_spark.format.partition_metadata import uuid_to_text

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

Outcome = Topic | BrokerError
"""Outcome for one of several topics that are changed together."""


class TopicRegistry:
    """Topics by name and by id. Reading needs no lock and never blocks; a change blocks until it is on disk.

    dirs: the log directories (log_dir.open_log_dirs). Call `load` before anything else.
    """

    def __init__(self, dirs: Iterable[LogDirectory]) -> None:
        self._dirs = list(dirs)
        self._guard = threading.Lock()
        self._state = RegistryState(0, {})
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._folded: dict[str, set[str]] = {}
        self._lines: dict[str, str] = {}
        self.created_generation = 0
        """The generation in which topics were last added."""
        self.was_read = False
        """False after `load` found no file, or none it could read: topics then come from the partition directories."""

    # ---- reading

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name; a snapshot that later changes do not touch."""
        return self._state.topics

    @property
    def generation(self) -> int:
        """Another number after any change."""
        return self._state.generation

    @property
    def deleted(self) -> frozenset[uuid.UUID]:
        """Ids of deleted topics whose directories may still be there."""
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

    # ---- changing

    def create_all(self, topics: Iterable[Topic]) -> list[Outcome]:
        """New topics in one write: what became of each, in order, the topic or a BrokerError: INVALID_TOPIC_EXCEPTION
        for a name that cannot be one, or that would collide with another's metrics, TOPIC_ALREADY_EXISTS,
        INVALID_PARTITIONS. Raises BrokerError (KAFKA_STORAGE_ERROR), and then nothing has changed."""
        made: dict[str, Topic] = {}
        ids: set[uuid.UUID] = set()
        folded: dict[str, str] = {}

        def add(topic: Topic) -> Topic:
            self.check_new(topic.name, topic.partitions)
            if topic.name in made:
                raise _exists(topic.name)
            if (other := folded.get(metrics_name(topic.name))) is not None:
                raise _collides(topic.name, other)
            if topic.id in self._by_id or topic.id in ids:
                raise BrokerError(ErrorCode.topic_already_exists, f"topic id {uuid_to_text(topic.id)} is taken")
            made[topic.name] = topic
            ids.add(topic.id)
            folded[metrics_name(topic.name)] = topic.name
            return topic

        with self._guard:
            outcomes = [_outcome(add, topic) for topic in topics]
            self._commit(made.values())
        return outcomes

    def check_new(self, name: str, partitions: int) -> None:
        """Raise what `create_all` would answer for name and number: for CreateTopics with validate_only."""
        check_topic_name(name)
        if name in self._state.topics:
            raise _exists(name)
        others = self._folded.get(metrics_name(name))
        if others:
            raise _collides(name, min(tuple(others)))
        if not 0 < partitions < 2**31:
            raise BrokerError(
                ErrorCode.invalid_partitions, f"Number of partitions was set to an invalid value: {partitions}"
            )

    def delete_all(self, names: Iterable[str]) -> list[Outcome]:
        """Forget topics in one write; their ids stay in `deleted` until `forget_deleted`. The topic there was, or the
        error (UNKNOWN_TOPIC_OR_PARTITION), of each. Raises as create_all."""
        with self._guard:
            outcomes = [_outcome(self._known, name) for name in dict.fromkeys(names)]
            gone = [topic for topic in outcomes if isinstance(topic, Topic)]
            self._commit(gone=gone, deleted=self._state.deleted | {topic.id for topic in gone})
        return outcomes

    def delete_if_there(self, topics: Iterable[Topic]) -> None:
        """Undo `create_all`: forget those of these topics that are still registered. Raises as create_all."""
        with self._guard:
            gone = [known for topic in topics if (known := self._by_id.get(topic.id)) is not None]
            self._commit(gone=gone, deleted=self._state.deleted | {topic.id for topic in gone})

    def forget_deleted(self, ids: Iterable[uuid.UUID]) -> None:
        """Their directories are renamed: nothing can bring these topics back any more."""
        with self._guard:
            self._commit(deleted=self._state.deleted - frozenset(ids))

    def add_all_partitions(self, totals: Mapping[str, int]) -> list[Outcome]:
        """Give topics so many partitions, more than they have, in one write: the topic as it is now, or the error
        (UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS), of each. Raises as create_all."""

        def enlarged(name: str) -> Topic:
            topic, total = self._known(name), totals[name]
            if not topic.partitions < total < 2**31:
                raise BrokerError(
                    ErrorCode.invalid_partitions,
                    f"Topic '{name}' has {topic.partitions} partitions, and can only get more; {total} were asked for",
                )
            return replace(topic, partitions=total)

        return self._replace_all(enlarged, totals)

    def take_partitions_back(self, before: Iterable[tuple[Topic, int]]) -> None:
        """Undo `add_all_partitions`, which returned these topics, when the logs could not be made: they have so many
        partitions again; nothing where a topic is another by now. Raises BrokerError (KAFKA_STORAGE_ERROR)."""
        with self._guard:
            self._commit(
                replace(known, partitions=total)
                for topic, total in before
                if (known := self._by_id.get(topic.id)) is not None and known.partitions == topic.partitions
            )

    def set_all_configs(self, configs: Mapping[str, Mapping[str, str]]) -> list[Outcome]:
        """Replace all overrides of topics, in one write: the topic as it is now, or the error
        (UNKNOWN_TOPIC_OR_PARTITION), of each. Raises as create_all."""
        return self._replace_all(lambda name: replace(self._known(name), configs=dict(configs[name])), configs)

    def take_in(self, topics: Iterable[Topic]) -> None:
        """Add or replace topics as they were found on disk, in one write."""
        with self._guard:
            self._commit(topics)

    def _known(self, name: str) -> Topic:
        topic = self._state.topics.get(name)
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_or_partition, f"topic '{name}' does not exist")
        return topic

    def _replace_all(self, make: Callable[[str], Topic], names: Iterable[str]) -> list[Outcome]:
        with self._guard:
            outcomes = [_outcome(make, name) for name in names]
            self._commit(topic for topic in outcomes if isinstance(topic, Topic))
        return outcomes

    # ---- disk

    def load(self) -> None:
        """Read the newest copy. A damaged one is set aside as `kafkalog.topics.json.damaged` with a warning, and topics
        have to be taken in from the partition directories. Raises UnsupportedFormat for the file of a later release."""
        newest: RegistryState | None = None
        for log_dir in self._dirs:
            if not log_dir.is_online:
                continue
            state = read_registry(log_dir)
            if state is not None and (newest is None or state.generation > newest.generation):
                newest = state
        self.was_read = newest is not None
        if newest is not None:
            self._set(newest)

    def _commit(
        self, changed: Iterable[Topic] = (), *, gone: Iterable[Topic] = (), deleted: frozenset[uuid.UUID] | None = None
    ) -> None:
        """Write all copies, then let readers see it. One copy on disk is enough; what fails goes offline. Nothing is
        written where nothing changes."""
        changed, gone = list(changed), list(gone)
        if deleted is None:
            deleted = self._state.deleted
        if not changed and not gone and deleted == self._state.deleted:
            return
        topics = dict(self._state.topics)
        lines = dict(self._lines)
        for topic in gone:
            del topics[topic.name], lines[topic.name]
        for topic in changed:
            topics[topic.name] = topic
            lines[topic.name] = format_topic(topic)
        state = RegistryState(self._state.generation + 1, topics, deleted)
        data = format_registry(state, lines)
        written = 0
        for log_dir in self._dirs:
            if log_dir.is_online:
                try:
                    replace_file(log_dir.path / TOPICS_FILE, data)
                    written += 1
                except OSError as error:
                    log_dir.fail(error)
        if not written:
            raise BrokerError(ErrorCode.kafka_storage_error, f"no log directory took {TOPICS_FILE}")
        self._lines = lines
        before = self._state.topics
        if any(topic.name not in before for topic in changed):
            self.created_generation = state.generation
        for topic in changed:
            if (other := before.get(topic.name)) is not None and other.id != topic.id:
                self._by_id.pop(other.id, None)
            self._by_id[topic.id] = topic
            self._folded.setdefault(metrics_name(topic.name), set()).add(topic.name)
        self._state = state
        for topic in gone:
            self._by_id.pop(topic.id, None)
            names = self._folded[metrics_name(topic.name)]
            names.discard(topic.name)
            if not names:
                del self._folded[metrics_name(topic.name)]

    def _set(self, state: RegistryState) -> None:
        self._lines = {name: format_topic(topic) for name, topic in state.topics.items()}
        self._by_id = {topic.id: topic for topic in state.topics.values()}
        self._folded = {}
        for name in state.topics:
            self._folded.setdefault(metrics_name(name), set()).add(name)
        self._state = state
        self.created_generation = state.generation


def _outcome(make: Callable[[_T], Topic], of: _T) -> Outcome:
    try:
        return make(of)
    except BrokerError as error:
        return error


def _exists(name: str) -> BrokerError:
    return BrokerError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")


def _collides(name: str, other: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {other}")


def check_topic_name(name: str) -> None:
    """Raise BrokerError (INVALID_TOPIC_EXCEPTION) in the words of Topic.validate for a name no topic can have."""
    if valid_topic_name(name):
        return
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        why = f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    else:
        why = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    raise BrokerError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {why}")
