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

import json
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.storage.file_fault import FileFault, file_fault
from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_spark.errors import CorruptFile, UnsupportedFormat, printable
from kafkalog_spark.format.atomic_file import DAMAGED_SUFFIX, read_state, replace_file
from kafkalog_spark.format.names import MAX_PARTITIONS, MAX_TOPIC_NAME_LENGTH, DirKind, metrics_name, valid_topic_name
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    read_partition_metadata,
    uuid_from_text,
    uuid_to_text,
)
from kafkalog_spark.log.read.local_log_dir import partition_dirs

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

TOPICS_FILE = "kafkalog.topics.json"
VERSION = 0
_MOST_BYTES = 1 << 30  # a million topics have 100 MB
_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Topic:
    """Entry of the registry. `configs`: overrides by property names, as text; not to be changed in place."""

    name: str
    id: uuid.UUID
    partitions: int
    configs: Mapping[str, str] = field(default_factory=lambda: _NO_CONFIGS)


@dataclass(frozen=True, slots=True)
class RegistryState:
    """Content of the file. `deleted`: ids of topics whose partition directories are to be removed."""

    generation: int
    topics: Mapping[str, Topic]
    deleted: frozenset[uuid.UUID] = frozenset()


def format_registry(state: RegistryState, lines: Mapping[str, str] | None = None) -> bytes:
    """The file's bytes, topics by name. lines: of each topic by name, as `format_topic` makes them."""
    if lines is None:
        lines = {name: format_topic(topic) for name, topic in state.topics.items()}
    topics = ",\n".join([lines[name] for name in sorted(state.topics)])
    deleted = json.dumps(sorted(map(uuid_to_text, state.deleted)))
    head = f'{{"version": {VERSION}, "generation": {state.generation}, "topics": ['
    return f'{head}\n{topics}\n], "deleted": {deleted}}}\n'.encode("ascii")


def format_topic(topic: Topic) -> str:
    facts = {"name": topic.name, "id": uuid_to_text(topic.id), "partitions": topic.partitions}
    return json.dumps({**facts, "configs": dict(topic.configs)})


def parse_registry(data: bytes) -> RegistryState:
    """Parse what `format_registry` writes; CorruptFile for anything else, UnsupportedFormat for a later version."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:  # also UnicodeDecodeError
        raise CorruptFile(f"this is not JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("version"), int):
        raise CorruptFile("expected a JSON object with an integer 'version'")
    if content["version"] != VERSION:
        raise UnsupportedFormat(f"version {content['version']} of {TOPICS_FILE}, only {VERSION} is known")
    try:
        topics = {}
        for entry in content["topics"]:
            topic = _topic(entry)
            if topic.name in topics:
                raise ValueError(f"topic {topic.name!r} is there twice")
            topics[topic.name] = topic
        partitions = sum(topic.partitions for topic in topics.values())
        if partitions > MAX_PARTITIONS:
            raise ValueError(f"the topics have {partitions} partitions, at most {MAX_PARTITIONS} are served")
        if len({topic.id for topic in topics.values()}) != len(topics):
            raise ValueError("two topics have one id")
        generation = content["generation"]
        if type(generation) is not int or generation < 0:
            raise ValueError(f"generation is {generation!r}, expected an integer from 0 on")
        deleted = frozenset(uuid_from_text(text) for text in content["deleted"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFile(f"{type(error).__name__}: {error}") from None
    return RegistryState(generation, topics, deleted)


def _topic(entry: Any) -> Topic:
    name, partitions, configs = entry["name"], entry["partitions"], entry["configs"]
    if not isinstance(name, str) or not valid_topic_name(name):
        raise ValueError(f"{name!r} is no name of a topic")
    if type(partitions) is not int or not 0 < partitions < 2**31:
        raise ValueError(f"topic {name!r} has {partitions!r} partitions")
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in configs.items()):
        raise ValueError(f"topic {name!r} has configs that are no texts")
    return Topic(name, uuid_from_text(entry["id"]), partitions, dict(configs))


def read_registry(log_dir: LogDirectory) -> RegistryState | None:
    """A directory's copy; None if there is none or it may not be read. A damaged one is set aside. Raises
    UnsupportedFormat for a later release's, OSError for a lack of descriptors."""
    path = log_dir.path / TOPICS_FILE
    try:
        with log_dir.guarded():
            try:
                return read_state(path, parse_registry, _MOST_BYTES)
            except PermissionError as error:
                _log.warning("%s cannot be read: %s; topics are taken from elsewhere", path, error.strerror)
    except UnsupportedFormat as error:
        raise error.at(path=str(path), hint="this directory was used by a later release; use that one") from None
    except CorruptFile as error:
        _log.warning("%s", error.at(path=str(path)))
        damaged = path.with_name(path.name + DAMAGED_SUFFIX)
        try:
            path.replace(damaged)
            _log.warning("the damaged file is kept as %s", damaged)
        except OSError as failure:
            _log.warning("the damaged file cannot be renamed: %s", failure)
    return None


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


def check_topic_name(name: str) -> None:
    """Raise BrokerError (INVALID_TOPIC_EXCEPTION) for a name no new topic can have, by Kafka's rules in the words of
    Topic.validate: the one place for a rule about names."""
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        why = f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    elif not valid_topic_name(name):
        why = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise BrokerError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {why}")


# The partition directories of the log directories, and which topics they belong to: decisions at start.
#
# A topic registry that is there is believed. Directories of topics that it does not know come from a real Kafka, or
# the registry was lost: they are taken in by what their partition.metadata says.

KEPT_CONFIGS = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Overrides of a topic whose configuration is not known: nothing of it is deleted until they are set again."""


MOST_MISSING = 1_000
"""Partitions of a topic known from its directories alone, or from its remote segments, that may be missing below one
that is there. The missing ones are created, so a directory `orders-2147483647` is no evidence of all those below it."""


def believed_partitions(numbers: Iterable[int]) -> list[int]:
    """Those of a topic's partition numbers, rising, below which at most MOST_MISSING are missing."""
    return [number for index, number in enumerate(sorted(numbers)) if number - index <= MOST_MISSING]


class PartitionDir(NamedTuple):
    """A live partition directory. topic_id: what partition.metadata says; None when there is none, or a damaged one.
    failure: why it cannot be served, None if nothing is known against it."""

    topic: str
    partition: int
    log_dir: LogDirectory
    path: Path
    topic_id: uuid.UUID | None
    failure: str | None = None


def find_partition_dirs(log_dir: LogDirectory) -> tuple[list[PartitionDir], list[Path]]:
    """The live partition directories, and those that were deleted and wait for their removal. Raises OSError."""
    live: list[PartitionDir] = []
    deleted: list[Path] = []
    for parsed, name in partition_dirs(log_dir.path):
        path = Path(name)
        if parsed.kind is DirKind.DELETE:
            deleted.append(path)
        elif parsed.kind is DirKind.LIVE:
            live.append(_partition_dir(parsed.topic, parsed.partition, log_dir, path))
        elif parsed.kind is not DirKind.METADATA:
            _log.warning("%s is left alone: a -%s directory is not served", path, parsed.kind.value)
    return sorted(live, key=lambda directory: (directory.topic, directory.partition)), deleted


def _partition_dir(topic: str, partition: int, log_dir: LogDirectory, path: Path) -> PartitionDir:
    """Raises OSError if the log directory cannot be read."""
    topic_id = failure = None
    try:
        if path.is_symlink():
            # What lies behind it may be another partition, or files of somebody else, and would be written to.
            failure = f"{path} is a symbolic link to {os.readlink(path)}; add the log directory behind it to log.dirs"
        else:
            topic_id = read_partition_metadata(path / PARTITION_METADATA_FILE)
    except CorruptFile as error:
        _log.warning("%s; the topic's id is taken from elsewhere", error)
    except PermissionError as error:
        failure = f"{path} cannot be read: {error}"
    return PartitionDir(topic, partition, log_dir, path, topic_id, None if failure is None else printable(failure))


@dataclass(frozen=True, slots=True)
class Reconciled:
    """serve: directories to load, with their topic. changed: topics the registry is to take in. deleted: directories of
    topics deleted before the crash. strays, with the reason: they stay, and are not served. missing: without a
    directory."""

    serve: list[tuple[PartitionDir, Topic]]
    changed: dict[str, Topic]
    deleted: list[PartitionDir]
    strays: list[tuple[PartitionDir, str]]
    missing: list[tuple[Topic, int]]


def reconcile(
    directories: Sequence[PartitionDir],
    topics: Mapping[str, Topic],
    deleted_ids: frozenset[uuid.UUID],
    compacted: Iterable[str],
    new_id: Callable[[], uuid.UUID],
    internal: Mapping[str, Mapping[str, str]],
) -> Reconciled:
    """Bring directories and registry together. compacted: topics that a cleaner checkpoint names. internal: the
    overrides of internal topics."""
    all_topics, changed = dict(topics), dict[str, Topic]()
    compacted = frozenset(compacted)
    result = Reconciled([], changed, [], [], [])
    accepted: dict[tuple[str, int], PartitionDir] = {}
    numbers: dict[str, set[int]] = {}
    known_ids: dict[str, uuid.UUID] = {}
    for directory in directories:
        numbers.setdefault(directory.topic, set()).add(directory.partition)
        if directory.topic_id is not None and directory.topic_id not in deleted_ids:
            known_ids.setdefault(directory.topic, directory.topic_id)
    believed = {topic: set(believed_partitions(of_topic)) for topic, of_topic in numbers.items()}
    for directory in directories:
        topic = all_topics.get(directory.topic)
        if directory.topic_id in deleted_ids:
            result.deleted.append(directory)
            continue
        is_beyond = topic is None or directory.partition >= topic.partitions
        if is_beyond and directory.partition not in believed[directory.topic]:
            why = f"more than {MOST_MISSING} partitions of {directory.topic} are missing below it"
            result.strays.append((directory, why))
            continue
        if topic is None:
            configs = {**KEPT_CONFIGS, "cleanup.policy": "compact"} if directory.topic in compacted else KEPT_CONFIGS
            topic_id = known_ids.get(directory.topic) or new_id()
            topic = Topic(directory.topic, topic_id, 0, internal.get(directory.topic, configs))
        elif directory.topic_id not in (None, topic.id):
            result.strays.append((directory, "it belongs to another topic of that name (partition.metadata)"))
            continue
        if directory.partition >= topic.partitions:
            topic = Topic(topic.name, topic.id, directory.partition + 1, topic.configs)
            changed[topic.name] = topic
        all_topics[topic.name] = topic
        key = (directory.topic, directory.partition)
        other = accepted.setdefault(key, directory)
        if other is not directory:
            places = f"it lies in {other.path.parent} and in {directory.path.parent}"
            accepted[key] = other._replace(failure=f"{places}; move one of the two out of the log directories")
    result.serve.extend((directory, all_topics[directory.topic]) for directory in accepted.values())
    result.missing.extend(
        (topic, partition)
        for topic in all_topics.values()
        for partition in range(topic.partitions)
        if (topic.name, partition) not in accepted
    )
    return result
