"""Transactional APIs answer what Apache Kafka 4.3.0 answered to the same requests, and leave the same in the files.

The requests are in transaction_scenario.py, Kafka's answers in kafka-4.3.0-transactions.json (record_transactions.py).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.api.helpers.transaction_answers import Kept, Names, files, read_described
from tests.broker.api.helpers.transaction_requests import (
    CREATE_TOPICS,
    FIND_COORDINATOR,
    INIT,
    MAX_EPOCH,
    SHORT_TIMEOUT_MS,
    TIMEOUT_MS,
    TOPIC,
)
from tests.broker.api.helpers.transaction_scenario import run

KAFKAS = json.loads(Path(__file__).with_name("kafka-4.3.0-transactions.json").read_text())

# Kafka keeps these in hash tables; nothing promises an order.
UNORDERED = {"topics", "partitions", "transaction_states", "results_by_partition", "active_producers",
             "unknown_state_filters", "responses"}  # fmt: skip


class Asked:
    def __init__(self, broker: BrokerInProcess, topic_id: Any, kept: Kept) -> None:
        self._broker, self._ids, self._kept = broker, {TOPIC: topic_id}, kept

    def __call__(self, label: str, key: int, version: int, /, **values: Any) -> dict[str, Any]:
        return self._kept.add(label, self._broker.ask(request_entity(key, version, values, self._ids), read_described))

    def settle(self, transactional_id: str) -> None:
        """Nothing to wait for: what is prepared has been completed when the answer leaves."""
        assert transactional_id not in self._broker.broker.transactions.prepared

    def expire(self, transactional_id: str) -> None:
        self._broker.clock.advance(SHORT_TIMEOUT_MS + 1)
        self._broker.tick()

    def exhaust(self, transactional_id: str) -> None:
        """Kafka was asked 32766 times; the record that the last of them left is written here at once."""
        coordinator = self._broker.broker.transactions
        metadata = coordinator.describe(transactional_id)
        coordinator.write(replace(metadata, producer_epoch=MAX_EPOCH - 1, previous_producer_id=metadata.producer_id))


def compared(answer: Any) -> Any:
    """An answer without orders that mean nothing."""
    if isinstance(answer, list):
        return [compared(item) for item in answer]
    if not isinstance(answer, dict):
        return answer
    found = {}
    for name, value in answer.items():
        # Kafka tells the largest timestamp of a duplicate as its LogAppendTime, and the log start offset with errors.
        if name in ("log_append_time", "log_start_offset") and "base_offset" in answer:
            continue
        value = compared(value)
        if name in UNORDERED and value:
            value = sorted(value, key=lambda item: json.dumps(item, sort_keys=True))
        found[name] = value
    return found


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    names = Names()
    kept = Kept(names)
    directory = tmp_path_factory.mktemp("transactions") / "data"
    with BrokerInProcess(directory, {
        "offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    }) as broker:  # fmt: skip
        topic = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        created = broker.ask(request_entity(
            CREATE_TOPICS, 7, {"topics": [topic], "timeout": 30_000, "validate_only": False}, {}))  # fmt: skip
        for key_type in (0, 1):
            broker.ask(request_entity(FIND_COORDINATOR, 4, {"key_type": key_type, "coordinator_keys": ["any"]}, {}))
        broker.ask(request_entity(INIT, 0, {"transactional_id": None, "transaction_timeout": TIMEOUT_MS}, {}))
        run(Asked(broker, created.topics[0].topic_id, kept))
    return {"answers": kept.answers, "files": files(directory, names)}


def test_recording_has_the_same_requests(conversation):
    assert list(conversation["answers"]) == list(KAFKAS["answers"]), "record_transactions.py must be run again"


@pytest.mark.parametrize("label", KAFKAS["answers"])
def test_response_equals_that_of_kafka(conversation, label):
    assert compared(conversation["answers"][label]) == compared(KAFKAS["answers"][label])


@pytest.mark.parametrize("name", KAFKAS["files"])
def test_log_files_have_the_same_content_as_those_of_kafka(conversation, name):
    assert conversation["files"][name] == KAFKAS["files"][name]


def test_log_directory_has_only_the_recorded_files(conversation):
    assert sorted(conversation["files"]) == sorted(KAFKAS["files"])
