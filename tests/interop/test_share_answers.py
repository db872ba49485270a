"""Share groups: a real Kafka and our broker get the same requests and the same runs of Kafka's tool."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.testing import running_broker
from tests.broker.share.helpers.compared import BY_CHANCE, are_the_same
from tests.broker.share.helpers.share_script import PATIENT, PROPERTIES, prepared
from tests.interop.real_kafka import RealKafka, available, try_tool
from tests.interop.share_workers import ShareWorker, compiled
from tests.interop.test_share_consumers import GROUP, TOPIC, all_said, earliest, offsets, produce, until

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

_TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
_TASKS = (
    "--list",
    "--list --state",
    f"--describe --group {GROUP}",
    f"--describe --group {GROUP} --state",
    f"--describe --group {GROUP} --members",
    f"--describe --group {GROUP} --verbose",
    "--describe --group nobody",
    f"--reset-offsets --group {GROUP} --topic {TOPIC} --to-earliest --dry-run",
    f"--reset-offsets --group {GROUP} --topic {TOPIC} --to-earliest --execute",
    f"--describe --group {GROUP}",
    f"--reset-offsets --group {GROUP} --topic {TOPIC}:1 --to-latest --execute",
    f"--describe --group {GROUP} --offsets",
    f"--delete-offsets --group {GROUP} --topic {TOPIC}",
    f"--describe --group {GROUP}",
    f"--delete --group {GROUP}",
    f"--delete --group {GROUP}",
    "--list",
)


def test_share_responses_equal_those_of_kafka(tmp_path: Path) -> None:
    with RealKafka(tmp_path / "kafka", PATIENT, short_lived=True) as kafka:
        wanted = prepared(kafka.bootstrap)
    with running_broker(PATIENT) as broker:
        found = prepared(broker.bootstrap)
    assert set(found) == set(wanted)
    assert {label for label in wanted if not are_the_same(label, found[label], wanted[label])} <= BY_CHANCE


def test_share_groups_tool_prints_the_same_as_with_kafka(tmp_path: Path) -> None:
    classes = compiled(tmp_path / "classes")
    with RealKafka(tmp_path / "kafka", PROPERTIES, short_lived=True) as kafka:
        kafka.create_topic(TOPIC, 2)
        wanted = _printed(classes, kafka.bootstrap)
    with running_broker(PROPERTIES, topics={TOPIC: 2}) as broker:
        found = _printed(classes, broker.bootstrap)
    assert found == wanted


def _printed(classes: Path, bootstrap: str) -> list[Any]:
    """What the tool says of a group that has read a topic, in order."""
    earliest(bootstrap)
    produce(bootstrap, 100, 2)
    with ShareWorker(classes, bootstrap, GROUP, TOPIC) as worker:
        until(lambda: len(offsets(all_said(worker), "A")) == 100, lambda: worker.lines[-3:])
    said = []
    for task in _TASKS:
        ran = try_tool(_TOOL, "--bootstrap-server", bootstrap, *task.split())
        said.append((task, [_steady(line) for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]))
    return said


def _steady(line: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"127\.0\.0\.1:\d+|localhost:\d+", "<broker>", line)).strip()
