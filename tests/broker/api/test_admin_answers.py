"""Responses of admin APIs equal those of Apache Kafka 4.3.0 to the same requests in the same order.

The requests are in admin_scenario.py, Kafka's answers in kafka-4.3.0-admin.json (written by record_admin.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.broker.api.helpers.admin_broker import AdminBroker
from tests.broker.api.helpers.admin_scenario import CREATE_TOPICS, in_place, steps
from tests.broker.api.helpers.plain_entities import plain, request_entity

ANSWERS = json.loads(Path(__file__).with_name("kafka-4.3.0-admin.json").read_text())

# Not the same in two runs.
OF_THE_RUN = {"cluster_id": "a cluster", "log_dir": "a directory", "total_bytes": 0, "usable_bytes": 0, "port": 9092,
              "high_watermark": 0, "log_end_offset": 0, "last_fetch_timestamp": 0,
              "last_caught_up_timestamp": 0}  # fmt: skip
# Kafka keeps these in hash tables; nothing promises an order.
UNORDERED = {
    "topics",
    "responses",
    "results",
    "configs",
    "partitions",
    "config_resources",
    "replica_election_results",
}


def compared(answer):
    """Return a response without the values that differ between runs, with lists without a defined order sorted."""
    if isinstance(answer, list):
        return [compared(item) for item in answer]
    if not isinstance(answer, dict):
        return answer
    found = {}
    for name, value in answer.items():
        if name in OF_THE_RUN:
            value = OF_THE_RUN[name] if value or name == "port" else value
        elif name == "listeners":
            value = "of the controller, which is the broker here"
        elif name == "topic_id":
            value = "an id" if value and not value.startswith("1111") else value
        else:
            value = compared(value)
        if name in UNORDERED and value:
            value = sorted(value, key=lambda item: json.dumps(item, sort_keys=True))
        found[name] = value
    return found


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Return (request, Kafka's response, our response) of each step."""
    found, ids = [], {}  # type: ignore[var-annotated]
    directory = tmp_path_factory.mktemp("admin")
    with AdminBroker(directory) as broker:
        recorded = iter(ANSWERS)
        for key, versions, values in steps():
            for version in versions:
                kafkas = next(recorded)
                assert (kafkas["key"], kafkas["version"]) == (key, version), "record_admin.py must be run again"
                answer = broker.ask(request_entity(key, version, in_place(values, str(directory)), ids))
                if key == CREATE_TOPICS and version == 7:
                    ids.update({topic.name: topic.topic_id for topic in answer.topics if topic.topic_id})
                found.append(((key, version, values), kafkas["answer"], plain(answer)))
        assert next(recorded, None) is None
    return found


@pytest.mark.parametrize("number", range(len(ANSWERS)))
def test_response_equals_that_of_kafka(answers, number):
    asked, kafkas, ours = answers[number]
    assert compared(ours) == compared(kafkas), asked
