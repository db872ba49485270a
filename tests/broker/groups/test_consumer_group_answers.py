"""Responses to members of consumer groups, compared with those of Apache Kafka 4.3.0 to the same requests.

The script is in helpers/consumer_script.py, Kafka's answers in kafka-4.3.0-consumer-groups.json.xz (written by
record_consumer_groups.py).
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from tests.broker.groups.helpers.consumer_script import PROPERTIES, TOPICS, comparable, run
from tests.broker.groups.helpers.replayed import replayed

KAFKAS = json.loads(lzma.decompress(Path(__file__).with_name("kafka-4.3.0-consumer-groups.json.xz").read_bytes()))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return replayed(tmp_path_factory.mktemp("groups"), KAFKAS, PROPERTIES, TOPICS, run)


@pytest.mark.parametrize("label", KAFKAS["answers"])
def test_consumer_group_response_equals_that_of_kafka(label: str, answers: dict[str, Any]) -> None:
    assert comparable(label, answers[label]) == comparable(label, KAFKAS["answers"][label])


def test_consumer_group_script_is_the_one_sent_to_kafka(answers: dict[str, Any]) -> None:
    assert list(answers) == list(KAFKAS["answers"]), "record_consumer_groups.py must be run again"
