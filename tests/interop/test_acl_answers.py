"""Every API by principals with and without each right: a real Kafka and our broker get the same requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.testing import RunningBroker
from tests.broker.security.helpers.acl_answers import Connections, known_differences, prepare, table
from tests.broker.security.record_acls import answers_of_kafka, kafka, security
from tests.interop.real_kafka import available, learnt, run_tool

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))


# As RealKafka has them.
AS_KAFKA = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0", "node.id": 1,
    "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1, "log.retention.ms": -1,
}  # fmt: skip


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path / "data", {**security(), **AS_KAFKA}) as broker:
        yield broker


def test_responses_with_and_without_each_right_equal_those_of_kafka(
    ours: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    connections = Connections(ours.ports["SASL_PLAINTEXT"])
    found = table(connections.ask, prepare(connections.ask))
    connections.close()
    with kafka(tmp_path_factory.mktemp("kafka")) as (_, port):
        wanted = answers_of_kafka(port)
    wrong = [
        label for label in wanted if known_differences(label, found[label]) != known_differences(label, wanted[label])
    ]
    assert wrong == []
    assert list(found) == list(wanted)


STEPS = [
    "--add --allow-principal User:tool --operation Read --operation Write --topic ledger",
    "--add --deny-principal User:tool --deny-host 10.0.0.1 --operation All --topic l --resource-pattern-type prefixed",
    "--add --allow-principal User:tool --consumer --topic ledger --group books",
    "--add --allow-principal User:tool --producer --transactional-id books --topic ledger --idempotent",
    "--add --allow-principal User:tool --operation Create --cluster",
    "--list --topic ledger --resource-pattern-type match",
    "--list --principal User:tool",
    "--list --group books",
    "--remove --force --allow-principal User:tool --operation Write --topic ledger",
    "--remove --force --group books",
    "--list --principal User:tool",
    "--remove --force --topic * --resource-pattern-type any",
]


def told(server: str, arguments: str) -> list[str]:
    text = run_tool("org.apache.kafka.tools.AclCommand", "--bootstrap-server", server, *arguments.split())
    return sorted(line.strip() for line in text.splitlines() if line.strip())


def test_kafka_acls_tool_prints_the_same_as_with_kafka(
    ours: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with kafka(tmp_path_factory.mktemp("kafka")) as (running, _):
        found: list[Any] = []
        for step in STEPS:
            mine = told(f"127.0.0.1:{ours.ports['PLAINTEXT']}", step)
            # The tool lists what holds right after its change, which may be made twice.
            kafkas = learnt(lambda step=step: told(running.bootstrap, step), mine)  # type: ignore[misc]
            found.append((step, mine, kafkas))
    for step, mine, kafkas in found:
        assert mine == kafkas, step
