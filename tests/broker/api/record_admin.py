"""Ask a real Kafka the admin scenario and keep its answers: python -m tests.broker.api.record_admin

Writes kafka-4.3.0-admin.json beside this file: one answer for each step and version.
"""

from __future__ import annotations

import json
import socket
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from kafkalog_broker.testing_support.client_requests import ask, exchange
from tests.broker.api.helpers.admin_scenario import CREATE_TOPICS, METADATA, TELEMETRY, in_place, steps
from tests.broker.api.helpers.plain_entities import TOKENS, plain, request_entity
from tests.interop.real_kafka import VERSION, RealKafka

ANSWERS = Path(__file__).with_name(f"kafka-{VERSION}-admin.json")


def record(directory: str) -> list[dict[str, Any]]:
    answers = []
    ids: dict[str, uuid.UUID] = {}
    with RealKafka(directory) as kafka:
        host, port = kafka.bootstrap.split(":")
        kept = socket.create_connection((host, int(port)), 30)  # a client's instance goes with its connection
        for key, versions, values in steps():
            for version in versions:
                request = request_entity(key, version, in_place(values, str(kafka.data_dir)), ids)
                if key in TELEMETRY:
                    answer = ask(kept, request)
                else:
                    with socket.create_connection((host, int(port)), 30) as connection:
                        tokens = exchange(connection, request)[4:].hex() if key in TOKENS else None
                        answer = tokens or ask(connection, request)
                if key == CREATE_TOPICS and version == 7 and answer:
                    ids.update({topic.name: topic.topic_id for topic in answer.topics if topic.topic_id})
                text = json.dumps({"key": key, "version": version, "answer": answer and plain(answer)})
                for told, stands in ((str(int(port)), "0"), (str(kafka.data_dir), "$dir")):
                    text = text.replace(told, stands)
                answers.append(json.loads(text))
                if key != METADATA or values["allow_auto_topic_creation"]:
                    time.sleep(0.15)  # the controller's change reaches the broker's view a moment later
    return answers


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        found = record(work)
    ANSWERS.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in found) + "\n]\n")
