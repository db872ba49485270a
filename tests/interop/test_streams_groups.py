"""kafka-streams-groups.sh prints the same for groups of this broker and of a real Kafka."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkalog_broker.testing import RunningBroker
from tests.broker.groups.helpers.consumer_script import create_topics
from tests.broker.groups.helpers.streams_script import PROPERTIES, TOPICS, Script, subtopology
from tests.broker.groups.record_consumer_groups import asking
from tests.interop.real_kafka import RealKafka, available, try_tool

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

PATIENT = {
    **PROPERTIES, "node.id": 1, "group.streams.max.session.timeout.ms": 600_000,
    "group.streams.session.timeout.ms": 600_000,
}  # fmt: skip
"""Members that say nothing meanwhile stay, however long the tools take."""
COMMIT = 8
CALLS = (
    "--list", "--list --state", "--list --state Empty",
    "--describe --group shop", "--describe --group shop --verbose",
    "--describe --group shop --state", "--describe --group shop --state --verbose",
    "--describe --group shop --members", "--describe --group shop --members --verbose",
    "--describe --group empty --offsets --verbose", "--describe --group empty --members",
    "--describe --all-groups --state", "--describe --group unknown",
    "--reset-offsets --group shop --input-topic orders --to-earliest --dry-run",
    "--reset-offsets --group empty --all-input-topics --to-earliest --dry-run",
    "--reset-offsets --group empty --input-topic logs:0,1 --to-offset 3 --execute",
    "--reset-offsets --group empty --input-topic logs --shift-by 2 --execute",
    "--reset-offsets --group empty --all-input-topics --to-latest --execute --delete-internal-topic empty-s-changelog",
    "--describe --group empty",
    "--delete-offsets --group empty --input-topic logs:0", "--delete-offsets --group empty --input-topic clicks",
    "--delete-offsets --group shop --input-topic orders", "--describe --group empty --offsets",
    "--delete --group shop", "--delete --group empty --delete-all-internal-topics", "--delete --group empty", "--list",
)  # fmt: skip


def prepare(port: int) -> None:
    """Records, a group that is reconciling, and one that is empty and has committed offsets."""
    ask = asking(port)
    script = Script(ask, create_topics(ask, TOPICS))
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
    for number in range(60):
        producer.produce("logs", f"{number}", partition=number % 3)
        producer.produce("orders", f"{number}", partition=number % 6)
    assert not producer.flush(60)
    shop = (
        subtopology("0", "orders", sinks=["shop-r-repartition"]),
        subtopology("1", repartitions=["shop-r-repartition"], stores=["shop-s-changelog"]),
    )
    empty = (subtopology("0", "logs", "clicks", stores=["empty-s-changelog"]),)
    script.join("a joins", "shop", "a", "A", *shop, user_endpoint={"host": "a.example", "port": 7})
    script.until_ready("a is ready", "shop", "a", 2)
    script.join("b joins", "shop", "b", "B", *shop, client_tags=[{"key": "zone", "value": "x"}])
    script.join("d joins", "empty", "d", "D", *empty)
    script.until_ready("d is ready", "empty", "d", 2)
    for group, member, topic in (("empty", "d", "logs"), ("shop", "a", "orders")):
        parts = [
            {"partition_index": index, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
            for index in range(3)
        ]
        committed = script.ask(
            f"{member} commits", COMMIT, 9, group_id=group, generation_id_or_member_epoch=3, member_id=member,
            group_instance_id=None, topics=[{"name": topic, "partitions": parts}],
        )  # fmt: skip
        assert {part["error_code"] for part in committed["topics"][0]["partitions"]} == {"none"}
    script.beat("d leaves", "empty", "d", -1)


def told(port: int, call: str) -> list[str]:
    """Return the tool's exit code and its output without values that differ by chance."""
    server = f"127.0.0.1:{port}"
    ran = try_tool(
        "org.apache.kafka.tools.streams.StreamsGroupCommand", "--bootstrap-server", server, *call.split()
    )  # fmt: skip
    text = re.sub(r"(?m)^(\s+at |\d{4}-\d\d-).*", "", ran.stdout + ran.stderr).replace(server, "$server")
    lines = sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())
    return [*lines, f"exit {ran.returncode}"]


def test_streams_groups_tool_prints_the_same_as_with_kafka(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "ours", PATIENT) as ours, RealKafka(tmp_path / "kafka", PATIENT) as kafka:
        ports = ours.port, int(kafka.bootstrap.rpartition(":")[2])
        for port in ports:
            prepare(port)
        for call in CALLS:
            by_us, by_kafka = (told(port, call) for port in ports)
            assert by_us == by_kafka, call
