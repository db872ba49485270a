"""The quotas on disk.

Kafka keeps them in its controllers' metadata log. Here it is one JSON file, `kafkalog.client-quotas.json`:

    {"version": 0, "generation": 3,
     "quotas": [{"entity": {"user": "alice", "client-id": null}, "values": {"producer_byte_rate": 1048576.0}}]}

in which null is the default. Every log directory gets a copy and the highest generation is read, as with topics.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.quotas.entities import Quotas
from kafkalog_broker.quotas.quota_changes import Operation, altered
from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.log.format.durable import read_state, replace_files

FILE = "kafkalog.client-quotas.json"
VERSION = 0

_log = logging.getLogger(__name__)


class QuotaFile:
    """All of it blocks: for another thread than the event loop's."""

    def __init__(self, directories: Iterable[Path]) -> None:
        self._files = [Path(directory) / FILE for directory in directories]
        self._generation = 0

    def load(self) -> Quotas:
        """The newest copy; none is as good as an empty one. Raises CorruptFile for one that is damaged where there is
        no other, UnsupportedFormat for the file of a later release."""
        quotas: Quotas = {}
        damaged: CorruptFile | None = None
        for file in self._files:
            try:
                found = read_state(file, parse)
            except CorruptFile as error:
                _log.warning("%s", error)
                damaged = error
                continue
            if found is not None and found[0] > self._generation:
                self._generation, quotas = found
        if damaged is not None and not self._generation:
            raise damaged
        return quotas

    def save(self, quotas: Quotas) -> None:
        """On disk on return. Raises OSError when no directory took it."""
        generation = self._generation + 1
        replace_files(self._files, dump(generation, quotas), private=True)
        self._generation = generation


def dump(generation: int, quotas: Quotas) -> bytes:
    entries = [{"entity": entity.named(), "values": dict(values)} for entity, values in quotas.items() if values]
    content = {"version": VERSION, "generation": generation, "quotas": entries}
    return (json.dumps(content, indent=1) + "\n").encode("ascii")


def parse(data: bytes) -> tuple[int, Quotas]:
    """Raises CorruptFile for anything but what `dump` writes, UnsupportedFormat for a later version."""
    try:
        content = json.loads(data)
        version, generation = content["version"], content["generation"]
        if version != VERSION:
            raise UnsupportedFormat(f"version {version} of {FILE}, only {VERSION} is known")
        quotas = {}
        for entry in content["quotas"]:
            operations = [Operation(key, float(value)) for key, value in entry["values"].items()]
            entity, values = altered({}, entry["entity"].items(), operations)
            quotas[entity] = values
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFile(f"this is not the JSON that was written: {type(error).__name__}") from None
    except BrokerError as error:
        raise CorruptFile(f"this is not the JSON that was written: {error.what}") from None
    if type(generation) is not int:
        raise CorruptFile("expected version, generation and quotas")
    return generation, quotas
