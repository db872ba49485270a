"""Ask a real Kafka with tiered storage the scenario and keep its answers: python -m tests.broker.remote.record_tiered

Writes kafka-4.3.0-tiered.json beside this file.
"""

from __future__ import annotations

import json
import re
import socket
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafkalog_broker.testing_support.client_requests import ask
from tests.broker.api.helpers.admin_scenario import TOPIC, Step, describe
from tests.broker.api.helpers.plain_entities import plain, request_entity
from tests.broker.remote.helpers.tiered_scenario import (
    OFFSETS_FROM_MS,
    OFFSETS_TOPIC_CONFIGS,
    RECORDS,
    REFUSED_AT_START,
    configuration_steps,
    delete_records,
    offset_steps,
)
from tests.interop.real_kafka import VERSION
from tests.log.tiered.tiered_kafka import TieredKafka

ANSWERS = Path(__file__).with_name(f"kafka-{VERSION}-tiered.json")


def asked(bootstrap: str, steps: Iterable[Step], pause: float = 0) -> list[dict[str, Any]]:
    """The answers to steps, each version on a connection of its own."""
    answers = []
    host, port = bootstrap.split(":")
    for key, versions, fields in steps:
        for version in versions:
            with socket.create_connection((host, int(port)), 30) as connection:
                answer = ask(connection, request_entity(key, version, fields, {}))
            answers.append({"key": key, "version": version, "answer": answer and plain(answer)})
            time.sleep(pause)
    return answers


def produce(bootstrap: str, topic: str, records: int = RECORDS) -> None:
    """Each record in a batch of its own."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(records):
        producer.produce(topic, b"%01000d" % number, partition=0, timestamp=OFFSETS_FROM_MS + 1000 * number)
        producer.flush()


def _offsets(kafka: TieredKafka) -> dict[str, Any]:
    kafka.create_topic("offsets", 1, OFFSETS_TOPIC_CONFIGS)
    kafka.create_topic("empty", 1, OFFSETS_TOPIC_CONFIGS)
    kafka.create_topic("local", 1, {"internal.segment.bytes": 16384, "retention.ms": -1})
    produce(kafka.bootstrap, "offsets")
    kafka.create_topic("pending", 1, OFFSETS_TOPIC_CONFIGS)
    produce(kafka.bootstrap, "local")
    produce(kafka.bootstrap, "pending", 5)
    kafka.wait_until_copied("offsets", local_left=None)
    kafka.wait_until("local retention", lambda: len(kafka.local_segments("offsets")) == 2)
    time.sleep(2)
    answers: dict[str, Any] = {"copied": asked(kafka.bootstrap, offset_steps())}
    answers["deletions"] = asked(kafka.bootstrap, [delete_records("offsets", offset) for offset in (20, 200)])
    time.sleep(3)
    answers["deleted"] = asked(kafka.bootstrap, offset_steps())
    answers["segments"] = sorted(path.name[:20] for path in kafka.remote_files("offsets", suffix=".log"))
    answers["metadata_topic"] = asked(kafka.bootstrap, [describe((TOPIC, "__remote_log_metadata", None))])
    return answers


def _start(directory: str, changes: dict[str, str | None]) -> str:
    """What a start with these properties ends with; empty when it serves."""
    kafka = TieredKafka(directory)
    for name, value in changes.items():
        if value is None:
            del kafka.properties[name]
        else:
            kafka.properties[name] = value
    try:
        kafka.start()
    except RuntimeError as error:
        said = str(error) + kafka.server_log()
        found = re.findall(r"(?:Exception|Error|requirement failed): ([^\n]+)", said)
        return found[-1] if found else "?"
    finally:
        kafka.kill()
    return ""


def record() -> dict[str, Any]:
    """All answers."""
    with tempfile.TemporaryDirectory() as work, TieredKafka(work) as kafka:
        answers = {"configuration": asked(kafka.bootstrap, configuration_steps(), 0.2)}
        answers.update(_offsets(kafka))
    starts = []
    for changes in REFUSED_AT_START:
        with tempfile.TemporaryDirectory() as work:
            starts.append({"changes": dict(changes), "error": _start(work, dict(changes))})
    return {**answers, "starts": starts}


if __name__ == "__main__":
    found = record()
    lines = (
        f"{json.dumps(part)}: [\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]"
        for part, entries in found.items()
    )
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
