"""File `kafkalog.topics.json` of the topic registry: formatting, parsing, reading."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.topic import Topic
from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.format.atomic_file import DAMAGED_SUFFIX
from kafkalog_spark.format.names import MAX_PARTITIONS, valid_topic_name
from kafkalog_spark.format.partition_metadata import (
    uuid_from_text,
    uuid_to_text,
)
from kafkalog_spark.format.regular_file import read_state

_log = logging.getLogger(__name__)

TOPICS_FILE = "kafkalog.topics.json"
VERSION = 0
_MAX_BYTES = 1 << 30  # a million topics take about 100 MB


@dataclass(frozen=True, slots=True)
class RegistryState:
    """Content of the file.

    Attributes:
        generation: Number of changes so far.
        topics: Topics by name.
        deleted: IDs of deleted topics whose partition directories may still exist.
    """

    generation: int
    topics: Mapping[str, Topic]
    deleted: frozenset[uuid.UUID] = frozenset()


def format_registry(state: RegistryState, lines: Mapping[str, str] | None = None) -> bytes:
    """Format the file, with the topics sorted by name.

    Args:
        lines: Results of `format_topic` by topic name, to reuse them; by default they are computed.
    """
    if lines is None:
        lines = {name: format_topic(topic) for name, topic in state.topics.items()}
    topics = ",\n".join([lines[name] for name in sorted(state.topics)])
    deleted = json.dumps(sorted(map(uuid_to_text, state.deleted)))
    head = f'{{"version": {VERSION}, "generation": {state.generation}, "topics": ['
    return f'{head}\n{topics}\n], "deleted": {deleted}}}\n'.encode("ascii")


def format_topic(topic: Topic) -> str:
    """Format one topic's line."""
    fields = {"name": topic.name, "id": uuid_to_text(topic.id), "partitions": topic.partitions}
    return json.dumps({**fields, "configs": dict(topic.configs)})


def parse_registry(data: bytes) -> RegistryState:
    """Parse the file. Raises CorruptFile, or UnsupportedFormat for a later version."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:  # also UnicodeDecodeError
        raise CorruptFile(f"the file is not JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("version"), int):
        raise CorruptFile("expected a JSON object with an integer 'version'")
    if content["version"] != VERSION:
        raise UnsupportedFormat(f"{TOPICS_FILE} has version {content['version']}, only {VERSION} is supported")
    try:
        topics = {}
        for entry in content["topics"]:
            topic = _topic(entry)
            if topic.name in topics:
                raise ValueError(f"topic {topic.name!r} occurs twice")
            topics[topic.name] = topic
        partitions = sum(topic.partitions for topic in topics.values())
        if partitions > MAX_PARTITIONS:
            raise ValueError(f"the topics have {partitions} partitions in total, the limit is {MAX_PARTITIONS}")
        if len({topic.id for topic in topics.values()}) != len(topics):
            raise ValueError("two topics have the same ID")
        generation = content["generation"]
        if type(generation) is not int or generation < 0:
            raise ValueError(f"generation is {generation!r}, expected an integer of at least 0")
        deleted = frozenset(uuid_from_text(text) for text in content["deleted"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFile(f"{type(error).__name__}: {error}") from None
    return RegistryState(generation, topics, deleted)


def _topic(entry: Any) -> Topic:
    name, partitions, configs = entry["name"], entry["partitions"], entry["configs"]
    if not isinstance(name, str) or not valid_topic_name(name):
        raise ValueError(f"{name!r} is not a valid topic name")
    if type(partitions) is not int or not 0 < partitions < 2**31:
        raise ValueError(f"topic {name!r} has {partitions!r} partitions, expected 1 to 2147483647")
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in configs.items()):
        raise ValueError(f"topic {name!r} has configs that are not strings")
    return Topic(name, uuid_from_text(entry["id"]), partitions, dict(configs))


def read_registry(log_dir: LogDirectory) -> RegistryState | None:
    """Read a log directory's copy; None if it is missing, unreadable or damaged. A damaged file is renamed.

    Raises:
        UnsupportedFormat: If a later release wrote the file.
        OSError: If the process is out of file descriptors.
    """
    path = log_dir.path / TOPICS_FILE
    try:
        with log_dir.guarded():
            try:
                return read_state(path, parse_registry, _MAX_BYTES)
            except PermissionError as error:
                _log.warning("%s cannot be read: %s; using another copy or the directories", path, error.strerror)
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
