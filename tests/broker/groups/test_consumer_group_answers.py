"""What members of consumer groups are answered is what Apache Kafka 4.3.0 answered to the same requests.

The script is in helpers/consumer_script.py, Kafka's answers in kafka-4.3.0-consumer-groups.json.xz (written by
record_consumer_groups.py); tests/interop/test_consumer_group_answers.py asks both. The topics get the ids that they had
there: assignments depend on them.
"""

from __future__ import annotations

import asyncio
import json
import lzma
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog_broker.admin import topic_changes
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import plain, request_entity
from tests.broker.groups.helpers.consumer_script import PROPERTIES, comparable, create_topics, run

KAFKAS = json.loads(lzma.decompress(Path(__file__).with_name("kafka-4.3.0-consumer-groups.json.xz").read_bytes()))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    ids = chain(map(UUID, KAFKAS["topics"].values()), (UUID(int=number) for number in count(1)))
    with (
        pytest.MonkeyPatch.context() as patch,
        BrokerInProcess(tmp_path_factory.mktemp("groups"), {**PROPERTIES, "node.id": "1"}) as broker,
    ):

        def ask(key: int, version: int, values: dict[str, Any]) -> dict[str, Any]:
            broker.run(asyncio.sleep(0.001))  # what the broker does by itself
            return plain(broker.ask(request_entity(key, version, values, {})))  # type: ignore[no-any-return]

        patch.setattr(topic_changes, "new_uuid", lambda: next(ids))
        create_topics(ask)
        yield dict(run(ask, KAFKAS["topics"]))


@pytest.mark.parametrize("label", KAFKAS["answers"])
def test_the_answer_is_kafkas(label: str, answers: dict[str, Any]) -> None:
    assert comparable(label, answers[label]) == comparable(label, KAFKAS["answers"][label])


def test_the_script_is_the_one_that_kafka_was_asked(answers: dict[str, Any]) -> None:
    assert list(answers) == list(KAFKAS["answers"]), "record_consumer_groups.py must be run again"
