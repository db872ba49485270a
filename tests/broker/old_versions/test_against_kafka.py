"""Responses in the versions of the protocol guides equal those recorded from a real Kafka 2.8.2 (`record_kafka`)."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog_broker import api
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request_decoding import decode_request
from kafkalog_broker.protocol.response_encoding import encode_response
from kafkalog_broker.storage.partition.file_handles import FileSlice
from tests.broker.api.helpers.admin_scenario import create, new_topic
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.old_versions.helpers.old_client import OldClient, string
from tests.broker.old_versions.helpers.old_scenario import OURS, SETS, TOPICS, answers
from tests.broker.old_versions.record_kafka import RECORDED

KAFKA: dict[str, Any] = json.loads(lzma.decompress(RECORDED.read_bytes()))


def in_process(running: BrokerInProcess) -> OldClient:
    def ask(frame: bytes) -> bytes:
        request = decode_request(frame, ConnectionInfo())
        answer = running.run(api.load_all()[request.api_key].respond(request, running.broker))
        pieces = encode_response(request, answer)
        return b"".join(one.read() if isinstance(one, FileSlice) else bytes(one) for one in pieces)[4:]

    return OldClient(ask)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    directory = tmp_path_factory.mktemp("old") / "data"
    with BrokerInProcess(directory, {"offsets.topic.num.partitions": "1", "log.cleaner.enable": "false"}) as running:
        for name, config in TOPICS.items():
            key, _, values = create(new_topic(name, 1, configs=dict(config)))
            running.ask(request_entity(key, 7, values, {}))
        client = in_process(running)
        client.request(10, 0, string("g"))
        yield json.loads(json.dumps(answers(client, KAFKA["sets"])))


def test_recording_covers_every_magic_and_codec() -> None:
    assert len(KAFKA["sets"]) == SETS >= 200
    assert all(error == 0 for error, _ in KAFKA["produced"])
    rows = KAFKA["fetched 2 sets 20000"]
    assert {(magic, codec) for _, magic, codec, *_ in rows} == {(1, 0), (1, 1), (1, 2), (1, 3)}


@pytest.mark.parametrize("what", sorted(set(KAFKA) - {"sets"}))
def test_responses_equal_those_of_kafka(ours: dict[str, Any], what: str) -> None:
    kafka, found = KAFKA[what], ours[what]
    if what == "damage":
        kafka = {name: _ours(name, answer) for name, answer in kafka.items()}
    if "append-time" in what:
        kafka, found = (_without_append_time(what, rows) for rows in (kafka, found))
    assert found == kafka


def _ours(name: str, answer: list[int]) -> list[int]:
    kafkas, ours = OURS.get(name.partition(": ")[2], (answer[0], answer[0]))
    assert answer[0] == kafkas
    return [ours, answer[1]]


def _without_append_time(what: str, rows: list[list[Any]]) -> list[list[Any]]:
    """Replace the append time, which differs between the brokers, after a check that it is not before 2020."""
    column = 4 if what.startswith("stored") else 3
    for row in rows:
        assert row[column] >= 1_577_836_800_000 or (row[column] == -1 and what.split()[1] in "01")
        row[column] = 0
    return rows
