"""Ask a real Kafka the script about consumer groups and keep its answers:
python -m tests.broker.groups.record_consumer_groups

Writes kafka-4.3.0-consumer-groups.json.xz alongside this file: the ids of the topics, one answer for each step, and
the records that Kafka wrote into __consumer_offsets.
"""

from __future__ import annotations

import json
import lzma
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kafkalog_broker.testing_support.remote import exchange
from tests.broker.api.helpers.plain_entities import plain, request_entity
from tests.broker.groups.helpers.consumer_script import PROPERTIES, TOPICS, Ask, create_topics, run
from tests.broker.protocol.helpers.kio_messages import read_response
from tests.interop.real_kafka import VERSION, RealKafka


def asking(port: int) -> Ask:
    """Over one connection."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=90)

    def ask(key: int, version: int, values: dict[str, Any]) -> dict[str, Any]:
        request = request_entity(key, version, values, {})
        return plain(read_response(key, version, exchange(connection, request)))  # type: ignore[no-any-return]

    return ask


def offsets_records(directory: Path) -> list[list[str | None]]:
    """Keys and values of __consumer_offsets-0, as hexadecimal text."""
    from kafkalog_broker.coordinator.record_batch import decode_batches

    found: list[list[str | None]] = []
    for file in sorted((directory / "__consumer_offsets-0").glob("*.log")):
        for batch in decode_batches([file.read_bytes()]):
            found += [[key.hex(), None if value is None else value.hex()] for key, value in batch.records]
    return found


Run = Callable[[Ask, dict[str, str]], Iterator[Any]]


def record(name: str, properties: Mapping[str, str], topics: dict[str, int], run: Run) -> None:
    """Run a script against a real Kafka that has these topics, and write what it says."""
    with tempfile.TemporaryDirectory() as work:
        kafka = RealKafka(work, properties, short_lived=True)
        with kafka:
            ask = asking(int(kafka.bootstrap.rpartition(":")[2]))
            ids = create_topics(ask, topics)
            found: list[tuple[str, Any]] = []
            try:
                found.extend(run(ask, ids))
            finally:
                print(len(found), "answers", file=sys.stderr)
        records = offsets_records(kafka.data_dir)
    lines = [f"{json.dumps(label)}: {json.dumps(answer)}" for label, answer in found]
    text = '{"topics": ' + json.dumps(ids) + ',\n"records": ' + json.dumps(records) + ',\n"answers": {\n'
    answers = Path(__file__).with_name(f"kafka-{VERSION}-{name}.json.xz")
    answers.write_bytes(lzma.compress((text + ",\n".join(lines) + "\n}}\n").encode()))


if __name__ == "__main__":
    record("consumer-groups", PROPERTIES, TOPICS, run)
