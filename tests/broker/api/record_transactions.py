"""Ask a real Kafka the transaction scenario and keep what it says: python -m tests.broker.api.record_transactions

Writes kafka-4.3.0-transactions.json beside this file: the answers by label, and what was in the files afterwards.
"""

from __future__ import annotations

import json
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from kafkalog_broker.testing_support.client_requests import ask, exchange
from tests.broker.api.helpers.plain_entities import plain, request_entity
from tests.broker.api.helpers.transaction_answers import Kept, Names, files, read_described
from tests.broker.api.helpers.transaction_requests import (
    CREATE_TOPICS,
    DESCRIBE_TRANSACTIONS,
    FIND_COORDINATOR,
    INIT,
    MAX_EPOCH,
    TIMEOUT_MS,
    TOPIC,
)
from tests.broker.api.helpers.transaction_scenario import run
from tests.interop.real_kafka import VERSION, RealKafka

ANSWERS = Path(__file__).with_name(f"kafka-{VERSION}-transactions.json")
PROPERTIES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}


class KafkaAsked:
    def __init__(self, connection: socket.socket, topic_id: Any, kept: Kept) -> None:
        self._connection, self._ids, self._kept = connection, {TOPIC: topic_id}, kept

    def __call__(self, label: str, key: int, version: int, /, **values: Any) -> dict[str, Any]:
        return self._kept.add(label, self._ask(key, version, values))

    def _ask(self, key: int, version: int, values: dict[str, Any]) -> Any:
        request = request_entity(key, version, values, self._ids)
        if key == DESCRIBE_TRANSACTIONS:
            return read_described(exchange(self._connection, request)[5:])  # correlation id, no tagged fields
        return ask(self._connection, request)

    def _wait_for(self, transactional_id: str, *states: str) -> None:
        end = time.monotonic() + 30
        while True:
            answer = self._ask(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [transactional_id]})
            state = answer["transaction_states"][0]
            if state["error_code"] != "none" or state["transaction_state"] in states:
                return
            if time.monotonic() > end:
                raise RuntimeError(f"{transactional_id}: {state}")
            time.sleep(0.01)

    def settle(self, transactional_id: str) -> None:
        self._wait_for(transactional_id, "Empty", "Ongoing", "CompleteCommit", "CompleteAbort")

    def expire(self, transactional_id: str) -> None:
        self._wait_for(transactional_id, "CompleteAbort")

    def exhaust(self, transactional_id: str) -> None:
        fields = {"transactional_id": transactional_id, "transaction_timeout": TIMEOUT_MS, "producer_id": -1,
                  "producer_epoch": -1}  # fmt: skip
        while self._ask(INIT, 4, fields).producer_epoch < MAX_EPOCH - 1:
            pass


def record(directory: str) -> dict[str, Any]:
    names = Names()
    kept = Kept(names)
    with RealKafka(directory, PROPERTIES) as kafka:
        host, port = kafka.bootstrap.split(":")
        with socket.create_connection((host, int(port)), 30) as connection:
            topic = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
            fields = {"topics": [topic], "timeout": 30_000, "validate_only": False}
            created = ask(connection, request_entity(CREATE_TOPICS, 7, fields, {}))
            for key_type in (0, 1):  # the internal topics
                for _ in range(50):
                    request = {"key_type": key_type, "coordinator_keys": ["any"]}
                    found = ask(connection, request_entity(FIND_COORDINATOR, 4, request, {}))
                    if plain(found)["coordinators"][0]["error_code"] == "none":
                        break
                    time.sleep(0.2)
            fields = {"transactional_id": None, "transaction_timeout": TIMEOUT_MS}
            while ask(connection, request_entity(INIT, 0, fields, {})).producer_id < 0:
                time.sleep(0.1)  # until the controller has given it a block of producer ids
            run(KafkaAsked(connection, created.topics[0].topic_id, kept))
        directory_of_logs = kafka.data_dir
        kafka.stop()
        return {"answers": kept.answers, "files": files(directory_of_logs, names)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        found = record(work)
    lines = [f"{json.dumps(label)}: {json.dumps(answer)}" for label, answer in found["answers"].items()]
    parts = [f"{json.dumps(name)}: {json.dumps(content)}" for name, content in found["files"].items()]
    ANSWERS.write_text('{"answers": {\n' + ",\n".join(lines) + '\n}, "files": {\n' + ",\n".join(parts) + "\n}}\n")
