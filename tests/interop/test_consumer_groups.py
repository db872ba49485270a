"""Consumer groups (KIP-848) with Kafka's own client and tools, and directories that Kafka and this broker left."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.testing import RunningBroker
from tests.broker.groups.helpers.consumer_script import DESCRIBE, HEARTBEAT, PROPERTIES, Script, create_topics, run
from tests.broker.groups.record_consumer_groups import asking
from tests.interop.real_kafka import RealKafka, available, cache_dir, classpath, run_tool

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

HERE = Path(__file__).parent
REFUSED = "SubscribedTopicRegex `java-[or.*` is not a valid regular expression: missing closing ]."
_LOGGED = re.compile(r"\d{4}-|\s+at |java\.|Caused by|\s*$")
"""What the client logs in between."""
FAST = {
    **PROPERTIES, "group.consumer.session.timeout.ms": 6000, "group.consumer.heartbeat.interval.ms": 200, "node.id": 1,
    "group.min.session.timeout.ms": 1000,
}  # fmt: skip

PATIENT = {
    **FAST, "group.consumer.session.timeout.ms": 500_000, "group.consumer.max.session.timeout.ms": 500_000
}  # fmt: skip
"""Members that say nothing meanwhile stay, however long a busy machine takes for what others say."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path / "data", FAST) as running:
        yield running


def test_java_consumer_of_kafka_reads_all_records(broker: RunningBroker) -> None:
    command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", classpath(), str(HERE / "GroupProtocol.java")]
    ran = subprocess.run([*command, broker.bootstrap], capture_output=True, text=True, check=False, timeout=240)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]
    told = [line for line in ran.stdout.splitlines() if not _LOGGED.match(line)]
    assert told == [
        "1 share", "2 share", "3 share", "Consumer Stable 3", "two are left", "classic member 0", "classic member 1",
        "Classic Stable 2", "one goes back", "Consumer Stable 2", "all processed", "Consumer Empty 0", "statics share",
        "it has what it had", "the expression matches", "new partitions",
        "Invalid RE2J SubscriptionPattern provided in the call to subscribe. " + REFUSED,
    ]  # fmt: skip


def test_group_scenario_has_the_same_responses_as_with_kafka(tmp_path: Path) -> None:
    """Asked now, not recorded: epochs, errors and numbers of partitions. Which partitions these are depends on the ids
    of topics, which are different ones here (tests/broker/groups/test_consumer_group_answers.py has the same)."""
    with RunningBroker(tmp_path / "data", PATIENT) as broker:
        ask = asking(broker.port)
        found = dict(run(ask, create_topics(ask)))
    with RealKafka(tmp_path / "kafka", PATIENT, short_lived=True) as kafka:
        ask = asking(int(kafka.bootstrap.rpartition(":")[2]))
        wanted = dict(run(ask, create_topics(ask)))
    assert list(found) == list(wanted)
    assert [label for label in found if _counted(found[label]) != _counted(wanted[label])] == []


def _counted(answer: Any) -> Any:
    """Assignments of several topics as numbers of partitions."""
    if isinstance(answer, list):
        return [_counted(item) for item in answer]
    if not isinstance(answer, dict):
        return answer
    parts = answer.get("topic_partitions")
    if isinstance(parts, list) and parts and "partitions" in parts[0]:
        return sum(len(part["partitions"]) for part in parts)
    return {name: _counted(value) for name, value in answer.items()}


def _group(ask: Any, ids: dict[str, str]) -> tuple[Script, dict[str, Any]]:
    """A group that is reconciling, with a static member, one with an expression, and an empty one."""
    script = Script(ask, ids)
    full: dict[str, Any] = {"rebalance_timeout": 60_000, "owned": {}}
    script.beat("a", "kept", "a", 0, instance_id="i", subscribed_topic_names=["orders"], **full)
    script.beat("b", "kept", "b", 0, subscribed_topic_names=["orders", "clicks"], **full)
    script.beat("c", "matching", "c", 0, subscribed_topic_regex="cl.*", **full)
    at_one = script.heartbeat("matching", "c", 1)
    script.until("c again", lambda answer: answer["member_epoch"] > 1, HEARTBEAT, 1, **at_one)
    script.beat("d", "empty", "d", 0, subscribed_topic_names=["logs"], **full)
    script.beat("d leaves", "empty", "d", -1)
    return script, script.shown(ask(DESCRIBE, 1, _all_groups()))


def _all_groups() -> dict[str, Any]:
    return {"group_ids": ["kept", "matching", "empty"], "include_authorized_operations": False}


def _served(ask: Any) -> dict[str, Any]:
    """Return the described groups once they are loaded."""
    end = time.monotonic() + 60
    while True:
        found: dict[str, Any] = ask(DESCRIBE, 1, _all_groups())
        if all(group["error_code"] == "none" for group in found["groups"]):
            return found
        assert time.monotonic() < end, found
        time.sleep(0.1)


def test_groups_continue_after_a_move_from_kafka_and_back(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path, PATIENT, short_lived=True)
    kafka.start()
    ask = asking(int(kafka.bootstrap.rpartition(":")[2]))
    ids = create_topics(ask)
    _, before = _group(ask, ids)
    kafka.kill()
    with RunningBroker(kafka.data_dir, PATIENT) as ours:
        ask = asking(ours.port)
        script = Script(ask, ids)
        assert script.shown(_served(ask)) == before
        epochs = _epochs(before)
        beat = script.beat("a goes on", "kept", "a", epochs["a"], instance_id="i", owned={"orders": [0, 1, 2, 3, 4, 5]})
        assert (beat["error_code"], beat["member_epoch"]) == ("none", epochs["a"])
        script.join("e joins", "kept", "e", "orders")
        script.beat("a gives up", "kept", "a", epochs["a"], instance_id="i", owned={})
        after = script.shown(ask(DESCRIBE, 1, _all_groups()))
        assert after != before
        ours.kill()
    kafka.start()
    ask = asking(int(kafka.bootstrap.rpartition(":")[2]))
    script = Script(ask, ids)
    assert script.shown(_served(ask)) == after
    epochs = _epochs(after)
    for member in ("b", "e"):
        beat = script.beat(f"{member} goes on", "kept", member, epochs[member])
        assert beat["error_code"] == "none"
    assert script.shown(_served(ask))["groups"][1]["group_epoch"] == after["groups"][1]["group_epoch"]
    kafka.stop()


def _epochs(described: dict[str, Any]) -> dict[str, int]:
    return {member["member_id"]: member["member_epoch"] for group in described["groups"] for member in group["members"]}


def _told(server: str, *arguments: str) -> list[str]:
    text = run_tool("ConsumerGroupCommand", "--bootstrap-server", server, *arguments)
    return sorted(" ".join(line.split()) for line in text.splitlines() if line.strip())


def test_consumer_groups_tool_prints_the_same_as_with_kafka(tmp_path: Path) -> None:
    printed = []
    with RunningBroker(tmp_path / "ours", PATIENT) as broker, RealKafka(tmp_path / "kafka", PATIENT) as kafka:
        for port in (broker.port, int(kafka.bootstrap.rpartition(":")[2])):
            ask, server = asking(port), f"127.0.0.1:{port}"
            _group(ask, create_topics(ask))
            printed.append(
                {
                    arguments: _told(server, *arguments.split())
                    for arguments in (
                        "--list --state", "--list --type consumer", "--list --state Empty",
                        "--describe --group kept --state --verbose", "--describe --group empty --state --verbose",
                        "--describe --group kept --members --verbose",
                        "--describe --group matching --members --verbose",
                        "--describe --group kept --offsets --verbose",
                        "--group empty --topic logs --reset-offsets --to-earliest --execute", "--delete --group empty",
                        "--list",
                    )
                }
            )  # fmt: skip
    ours, kafkas = ({key: [_plain(line) for line in lines] for key, lines in one.items()} for one in printed)
    assert ours == kafkas


def _plain(line: str) -> str:
    """Without ports of this run, and topics of an assignment in one order."""
    words = ("host" if word.startswith("127.0.0.1:") else word for word in line.split())
    return " ".join(";".join(sorted(word.split(";"))) for word in words)


@pytest.mark.skipif(shutil.which("go") is None, reason="franz-go needs Go on PATH")
def test_franz_go_members_share_a_group(broker: RunningBroker) -> None:
    broker.create_topic("franz", 6)
    binary = cache_dir() / "franz" / "franz"
    binary.parent.mkdir(parents=True, exist_ok=True)
    built = subprocess.run(
        ["go", "build", "-o", str(binary), "."], cwd=HERE / "franz", capture_output=True, text=True, check=False,
        timeout=400,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([str(binary), broker.bootstrap], capture_output=True, text=True, check=False, timeout=150)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines() == ["three share", "two share", "all processed"]
