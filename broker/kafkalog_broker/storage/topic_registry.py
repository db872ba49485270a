"""The topics of this broker: names, ids, numbers of partitions, configuration overrides.

A cluster of Apache Kafka keeps this in its controllers' metadata log. Here it is one JSON file, `kafkalog.topics.json`:

    {"version": 0, "generation": 7, "topics": [
    {"name": "orders", "id": "FEjhIyDdTCKRqdTaanlPnA", "partitions": 3, "configs": {"retention.ms": "9"}}
    ], "deleted": ["2xQ5oL1bTPOa0l9pY2YyGA"]}

It is written as a whole, a line per topic, which is made once; what one request changes is one write. Every log
directory that is online gets a copy, and the highest generation is read, so one failed directory forgets no topic.
`deleted` names topics whose directories may still be there: a crash in between must not bring them back.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
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


Outcome = Topic | BrokerError  # outcome for one of several topics that are changed together


class TopicRegistry:
    """Topics by name and by id; `load` comes before anything else. Reading needs no lock and never blocks; a change
    blocks until it is on disk, and raises BrokerError (KAFKA_STORAGE_ERROR) when no log directory takes it: then
    nothing has changed."""

    def __init__(self, dirs: Iterable[LogDirectory]) -> None:
        self._dirs = list(dirs)
        self._guard = threading.Lock()
        self._state = RegistryState(0, {})
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._folded: dict[str, str] = {}  # names as they are in metrics
        self._lines: dict[str, str] = {}
        self.created_generation = 0  # the generation in which topics were last added
        self.was_read = False
        """False after `load` found no file, or none it could read: topics then come from the partition directories."""

    # ---- reading

    @property
    def topics(self) -> Mapping[str, Topic]:
        """By name; a snapshot that later changes do not touch."""
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

    # ---- changing

    def create_all(self, topics: Iterable[Topic]) -> list[Outcome]:
        """New topics in one write: each, or its BrokerError: INVALID_TOPIC_EXCEPTION for a name that cannot be one, or
        that would collide with another's metrics, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS."""
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
        if (other := self._folded.get(metrics_name(name))) is not None:
            raise _collides(name, other)
        if not 0 < partitions < 2**31:
            raise BrokerError(
                ErrorCode.invalid_partitions, f"Number of partitions was set to an invalid value: {partitions}"
            )

    def delete_all(self, names: Iterable[str]) -> list[Outcome]:
        """Forget topics in one write; their ids stay in `deleted` until `forget_deleted`. As `set_all_configs`."""
        with self._guard:
            outcomes = [_outcome(self._known, name) for name in dict.fromkeys(names)]
            gone = [topic for topic in outcomes if isinstance(topic, Topic)]
            self._commit(gone=gone, deleted=self._state.deleted | {topic.id for topic in gone})
        return outcomes

    def delete_if_there(self, topics: Iterable[Topic]) -> None:
        """Undo `create_all`: forget those of these topics that are still registered."""
        with self._guard:
            gone = [known for topic in topics if (known := self._by_id.get(topic.id)) is not None]
            self._commit(gone=gone, deleted=self._state.deleted | {topic.id for topic in gone})

    def forget_deleted(self, ids: Iterable[uuid.UUID]) -> None:
        """Their directories are renamed: nothing can bring these topics back any more."""
        with self._guard:
            self._commit(deleted=self._state.deleted - frozenset(ids))

    def add_all_partitions(self, totals: Mapping[str, int]) -> list[Outcome]:
        """Give topics so many partitions in one write: each as it is now, or UNKNOWN_TOPIC_OR_PARTITION,
        INVALID_PARTITIONS (not more than it has)."""

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
        """Undo `add_all_partitions` for these topics, whose logs could not be made; not for one changed since."""
        with self._guard:
            self._commit(
                replace(known, partitions=total)
                for topic, total in before
                if (known := self._by_id.get(topic.id)) is not None and known.partitions == topic.partitions
            )

    def set_all_configs(self, configs: Mapping[str, Mapping[str, str]]) -> list[Outcome]:
        """Replace all overrides of topics in one write; each topic as it is now, or UNKNOWN_TOPIC_OR_PARTITION."""
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
        """Read the newest copy. Raises UnsupportedFormat for the file of a later release."""
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
            self._state, self.created_generation = newest, newest.generation

    def _commit(
        self, changed: Iterable[Topic] = (), *, gone: Iterable[Topic] = (), deleted: frozenset[uuid.UUID] | None = None
    ) -> None:
        """Write all copies, then let readers see the change; one copy on disk is enough.

        A disk fault takes its directory offline. Raises BrokerError if no copy was written; then nothing has changed.
        """
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
        partitions = sum(topic.partitions for topic in topics.values()) if changed else 0
        if partitions > MAX_PARTITIONS:
            raise BrokerError(
                ErrorCode.invalid_partitions,
                f"the topics would have {partitions} partitions together, at most {MAX_PARTITIONS} are served",
            )
        state = RegistryState(self._state.generation + 1, topics, deleted)
        data = format_registry(state, lines)
        written, failure = 0, None
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
            what = f"no log directory took {TOPICS_FILE}" + (f": {failure}" if failure is not None else "")
            raise BrokerError(ErrorCode.kafka_storage_error, what) from failure
        before = self._state.topics
        if any(topic.name not in before for topic in changed):
            self.created_generation = state.generation
        for topic in changed:
            if (other := before.get(topic.name)) is not None and other.id != topic.id:
                self._by_id.pop(other.id, None)
            self._by_id[topic.id] = topic
            self._folded[metrics_name(topic.name)] = topic.name
        self._lines, self._state = lines, state
        for topic in gone:
            self._by_id.pop(topic.id, None)
            self._folded.pop(metrics_name(topic.name), None)
        if len(self._folded) < len(topics):  # some were taken in with one name there, of which one may be left
            self._folded = {metrics_name(name): name for name in topics}


def _outcome(make: Callable[[_T], Topic], of: _T) -> Outcome:
    try:
        return make(of)
    except BrokerError as error:
        return error


def _exists(name: str) -> BrokerError:
    return BrokerError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")


def _collides(name: str, other: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {other}")
