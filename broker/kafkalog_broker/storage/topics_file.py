"""The file that keeps the topics of this broker: names, ids, numbers of partitions, configuration overrides.

A cluster of Apache Kafka keeps this in its controllers' metadata log. Here it is one JSON file, `kafkalog.topics.json`:

    {"version": 0, "generation": 7, "topics": [
    {"name": "orders", "id": "FEjhIyDdTCKRqdTaanlPnA", "partitions": 3, "configs": {"retention.ms": "9"}}
    ], "deleted": ["2xQ5oL1bTPOa0l9pY2YyGA"]}

It is written as a whole, a line per topic. Every log directory that is online gets a copy, and the highest generation
is read, so one failed directory forgets no topic. `deleted` names topics whose directories may still be there: a crash
in between must not bring them back.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from kafkalog_broker.storage.log_directory import LogDirectory, LogDirError
from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.format.atomic_file import read_whole
from kafkalog_spark.format.names import DirKind, valid_topic_name
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    read_partition_metadata,
    uuid_from_text,
    uuid_to_text,
)
from kafkalog_spark.log.read.discovery import partition_dirs

_log = logging.getLogger(__name__)

TOPICS_FILE = "kafkalog.topics.json"
VERSION = 0
_MOST_BYTES = 1 << 30
"""A million topics have 100 MB."""
_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Topic:
    """Entry of the topic registry. `configs`: the overrides by Kafka's property names, as text; not to be changed in
    place."""

    name: str
    id: uuid.UUID
    partitions: int
    configs: Mapping[str, str] = field(default_factory=lambda: _NO_CONFIGS)


@dataclass(frozen=True, slots=True)
class RegistryState:
    """Everything the file holds. `deleted`: ids of topics whose partition directories are to be removed."""

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
    """A topic as JSON, in one line."""
    facts = {"name": topic.name, "id": uuid_to_text(topic.id), "partitions": topic.partitions}
    return json.dumps({**facts, "configs": dict(topic.configs)})


def parse_registry(data: bytes) -> RegistryState:
    """Parse a file's bytes; raises CorruptFile for anything but what `format_registry` writes, UnsupportedFormat for
    a version of a later release."""
    try:
        content = json.loads(data)
    except ValueError as error:  # also UnicodeDecodeError
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
    """A directory's copy; None when there is none, or none that can be read: a damaged one is set aside. Raises
    UnsupportedFormat for the file of a later release."""
    path = log_dir.path / TOPICS_FILE
    try:
        return parse_registry(read_whole(path, _MOST_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        log_dir.fail(error)
    except UnsupportedFormat as error:
        raise error.at(path=str(path), hint="this directory was used by a later release; use that one") from None
    except CorruptFile as error:
        _log.warning("%s", error.at(path=str(path)))
        damaged = path.with_name(path.name + ".damaged")
        try:
            path.replace(damaged)
            _log.warning("the damaged file is kept as %s", damaged)
        except OSError as failure:
            _log.warning("the damaged file cannot be renamed: %s", failure)
    return None


# The partition directories of the log directories, and which topics they belong to: decisions at start.
#
# A topic registry that is there is believed. Directories of topics that it does not know come from a real Kafka, or
# the registry was lost: they are taken in by what their partition.metadata says.

KEPT_CONFIGS = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Overrides of a topic whose configuration is not known: nothing of it is deleted until they are set again."""


class PartitionDir(NamedTuple):
    """A live partition directory. topic_id: what partition.metadata says; None when there is none, or a damaged one."""

    topic: str
    partition: int
    log_dir: LogDirectory
    path: Path
    topic_id: uuid.UUID | None


class FoundDirs(NamedTuple):
    """`live`, and the directories of deleted partitions that wait for their removal."""

    live: list[PartitionDir]
    deleted: list[Path]


def find_partition_dirs(log_dir: LogDirectory) -> FoundDirs:
    """The partition directories in a log directory. Raises OSError."""
    live: list[PartitionDir] = []
    deleted: list[Path] = []
    for parsed, name in partition_dirs(log_dir.path):
        path = Path(name)
        if parsed.kind is DirKind.DELETE:
            deleted.append(path)
        elif parsed.kind is DirKind.LIVE:
            live.append(PartitionDir(parsed.topic, parsed.partition, log_dir, path, _topic_id(path)))
        elif parsed.kind is not DirKind.METADATA:
            _log.warning("%s is left alone: a -%s directory is not served", path, parsed.kind.value)
    return FoundDirs(sorted(live, key=lambda directory: (directory.topic, directory.partition)), deleted)


def _topic_id(path: Path) -> uuid.UUID | None:
    try:
        metadata = read_partition_metadata(path / PARTITION_METADATA_FILE)
    except CorruptFile as error:
        _log.warning("%s; the topic's id is taken from elsewhere", error)
        return None
    return None if metadata is None else metadata.topic_id


@dataclass(frozen=True, slots=True)
class Reconciled:
    """serve: the directories to load, with their topic. changed: topics the registry is to take in. deleted: those of
    topics that were deleted before the crash. strays: directories of another topic of that name, which stay as they
    are. missing: (topic, partition) without a directory."""

    serve: list[tuple[PartitionDir, Topic]]
    changed: dict[str, Topic]
    deleted: list[PartitionDir]
    strays: list[PartitionDir]
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
    overrides of internal topics (config.internal_topics).

    Raises LogDirError when a partition lies in two log directories.
    """
    all_topics, changed = dict(topics), dict[str, Topic]()
    compacted = frozenset(compacted)
    result = Reconciled([], changed, [], [], [])
    accepted: dict[tuple[str, int], PartitionDir] = {}
    for directory in directories:
        topic = all_topics.get(directory.topic)
        if directory.topic_id in deleted_ids:
            result.deleted.append(directory)
            continue
        if topic is None:
            configs = {**KEPT_CONFIGS, "cleanup.policy": "compact"} if directory.topic in compacted else KEPT_CONFIGS
            topic = Topic(directory.topic, directory.topic_id or new_id(), 0, internal.get(directory.topic, configs))
        elif directory.topic_id not in (None, topic.id):
            result.strays.append(directory)
            continue
        if directory.partition >= topic.partitions:
            topic = Topic(topic.name, topic.id, directory.partition + 1, topic.configs)
            changed[topic.name] = topic
        all_topics[topic.name] = topic
        other = accepted.setdefault((directory.topic, directory.partition), directory)
        if other is not directory:
            raise LogDirError(
                f"partition {directory.topic}-{directory.partition} also lies in {other.path.parent}",
                path=str(directory.path),
                hint="move one of the two out of the log directories",
            )
    result.serve.extend((directory, all_topics[directory.topic]) for directory in accepted.values())
    result.missing.extend(
        (topic, partition)
        for topic in all_topics.values()
        for partition in range(topic.partitions)
        if (topic.name, partition) not in accepted
    )
    return result
