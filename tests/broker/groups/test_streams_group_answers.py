"""What members of streams groups are answered is what Apache Kafka 4.3.0 answered to the same requests.

The script is in helpers/streams_script.py, Kafka's answers in kafka-4.3.0-streams-groups.json.xz (written by
record_streams_groups.py).
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from tests.broker.groups.helpers.replayed import replayed
from tests.broker.groups.helpers.streams_script import PROPERTIES, TOPICS, comparable, run

KAFKAS = json.loads(lzma.decompress(Path(__file__).with_name("kafka-4.3.0-streams-groups.json.xz").read_bytes()))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return replayed(tmp_path_factory.mktemp("groups"), KAFKAS, PROPERTIES, TOPICS, run)


@pytest.mark.parametrize("label", KAFKAS["answers"])
def test_the_answer_is_kafkas(label: str, answers: dict[str, Any]) -> None:
    assert comparable(label, answers[label]) == comparable(label, KAFKAS["answers"][label])


def test_the_script_is_the_one_that_kafka_was_asked(answers: dict[str, Any]) -> None:
    assert list(answers) == list(KAFKAS["answers"]), "record_streams_groups.py must be run again"
