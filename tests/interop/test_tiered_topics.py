"""Tiered topics of a real Kafka and of this broker: settings, retention, deletions, offsets and restarts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalog_broker.testing import RunningBroker
from tests.broker.api.helpers.admin_scenario import SET, TOPIC, change, incremental
from tests.broker.remote.helpers.tiered_broker import produce, tiered_properties
from tests.broker.remote.helpers.tiered_scenario import delete_records, list_offsets
from tests.broker.remote.record_tiered import asked
from tests.interop.real_kafka import available
from tests.log.tiered.tiered_kafka import TIERED_TOPIC, TieredKafka

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

SPECIAL = range(-1, -7, -1)
STABLE_S = 4.0  # several rounds of retention, of copies and of expiration
MOST_S = 60.0
KEPT = {**TIERED_TOPIC, "retention.ms": -1}
TOPICS: dict[str, dict[str, object]] = {  # all records are of 2023, so beyond any limit of time
    "quiet": KEPT,
    "expiring": {**TIERED_TOPIC, "local.retention.ms": -2, "retention.ms": 1000},
    "no-bytes": {**KEPT, "local.retention.ms": -2, "local.retention.bytes": 0},
    "one-byte": {**KEPT, "local.retention.ms": -2, "local.retention.bytes": 1},
    "size": {**KEPT, "local.retention.ms": -2},
    "left-on-disk": {**KEPT, "local.retention.ms": -2, "local.retention.bytes": -2},
    "no-policy": {**KEPT, "cleanup.policy": ""},
    "no-policy-expiring": {**TIERED_TOPIC, "cleanup.policy": "", "local.retention.ms": -2, "retention.ms": 1000},
    "no-policy-local": {"internal.segment.bytes": 16_384, "cleanup.policy": "", "retention.ms": 1000},
    "off": KEPT,
    "deleted": KEPT,
}


def offsets(bootstrap: str, topic: str) -> str:
    """The answers to -1 (latest) to -6 (earliest pending upload)."""
    answers = asked(bootstrap, [list_offsets(topic, timestamp, (11,)) for timestamp in SPECIAL])
    found = []
    for timestamp, answer in zip(SPECIAL, answers, strict=True):
        (partition,) = answer["answer"]["topics"][0]["partitions"]
        code = partition["error_code"]
        found.append(f"{timestamp}={partition['offset'] if code == 'none' else code}")
    return " ".join(found)


def settled(bootstrap: str, topics: list[str]) -> Iterator[str]:
    """The offsets of topics, once they have not changed for STABLE_S seconds."""
    end, since = time.monotonic() + MOST_S, time.monotonic()
    before = [offsets(bootstrap, topic) for topic in topics]
    while time.monotonic() - since < STABLE_S:
        assert time.monotonic() < end, before
        time.sleep(0.5)
        now = [offsets(bootstrap, topic) for topic in topics]
        if now != before:
            before, since = now, time.monotonic()
    for topic, line in zip(topics, before, strict=True):
        yield f"{topic}: {line}"


def scenario(
    bootstrap: Callable[[], str], create: Callable[[str, int, dict[str, object]], object], restart: Callable[[], None]
) -> Iterator[str]:
    """Run the scenario; return lines that are equal for brokers with the same behaviour."""

    def alter(topic: str, **configs: object) -> str:
        operations = [(name.replace("_", "."), SET, str(value)) for name, value in configs.items()]
        (answer,) = asked(bootstrap(), [incremental(change(TOPIC, topic, *operations))])
        result = answer["answer"]["responses"][0]
        return f"{topic} {configs}: {result['error_code']} {result['error_message'] or ''}"

    def delete(topic: str, offset: int) -> str:
        (answer,) = asked(bootstrap(), [delete_records(topic, offset)])
        (partition,) = answer["answer"]["topics"][0]["partitions"]
        return f"{topic} deleted to {offset}: {partition['error_code']} {partition['low_watermark']}"

    for topic, configs in TOPICS.items():
        create(topic, 1, configs)
        produce(bootstrap(), topic, range(40))
    yield from settled(bootstrap(), list(TOPICS))
    # Only now: segments that are rolled while records come have another size each time, and whole ones are deleted.
    yield alter("size", retention_bytes=20_000, local_retention_bytes=0)
    yield from settled(bootstrap(), ["size"])
    for offset in (5, 15, 38, 40, 41, -1):
        yield delete("deleted", offset)
        yield from settled(bootstrap(), ["deleted"])
    yield alter("quiet", remote_log_copy_disable="true")
    yield alter("quiet", remote_log_copy_disable="true", local_retention_ms=-2, local_retention_bytes=-2)
    produce(bootstrap(), "quiet", range(40, 60))
    yield from settled(bootstrap(), ["quiet"])
    yield alter("quiet", remote_log_copy_disable="false", local_retention_ms=1000)
    yield from settled(bootstrap(), ["quiet"])
    yield alter("off", remote_storage_enable="false")
    yield alter("off", remote_storage_enable="false", remote_log_delete_on_disable="true")
    produce(bootstrap(), "off", range(40, 50))
    yield from settled(bootstrap(), ["off"])
    yield alter("off", remote_storage_enable="true")
    yield from settled(bootstrap(), ["off"])
    restart()
    yield "restarted"
    yield from settled(bootstrap(), list(TOPICS))
    for topic in ("expiring", "deleted", "one-byte"):
        produce(bootstrap(), topic, range(40, 60))
    yield from settled(bootstrap(), ["expiring", "deleted", "one-byte"])


def test_tiered_topics_behave_as_those_of_kafka(tmp_path: Path) -> None:
    with TieredKafka(tmp_path / "kafka") as kafka:

        def restart_kafka() -> None:
            kafka.stop()
            kafka.start()

        expected = list(scenario(lambda: kafka.bootstrap, kafka.create_topic, restart_kafka))
    properties = tiered_properties(tmp_path / "tier", log_retention_ms=-1)
    with RunningBroker(tmp_path / "data", properties) as ours:

        def restart_ours() -> None:
            ours.stop()
            ours.start()

        found = list(scenario(lambda: ours.bootstrap, ours.create_topic, restart_ours))
    assert found == expected
