"""Responses about tiered storage, compared with those of a real Kafka to the same requests (record_tiered.py)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.testing import RunningBroker
from tests.broker.remote.helpers.tiered_broker import (
    LOCAL_TIERED,
    local_logs,
    tiered_properties,
    wait_until,
    wait_until_copied,
)
from tests.broker.remote.helpers.tiered_scenario import (
    OFFSETS_TOPIC_CONFIGS,
    configuration_steps,
    delete_records,
    offset_steps,
)
from tests.broker.remote.record_tiered import ANSWERS, asked, produce

RECORDED = json.loads(ANSWERS.read_bytes())
METADATA_TOPIC_KEPT = ("cleanup.policy", "min.insync.replicas", "remote.storage.enable", "retention.ms")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    directory = tmp_path_factory.mktemp("recorded")
    with RunningBroker(directory / "data", tiered_properties(directory / "remote", log_retention_ms=-1)) as running:
        yield running


def named(steps: Iterator[Any]) -> list[Any]:
    return [(key, version, fields) for key, versions, fields in steps for version in versions]


def without_ids(answer: Any) -> Any:
    """Topic ids differ, what is not about tiered storage in an answer to CreateTopics, and the order of properties."""
    for topic in answer.get("topics", ()) if isinstance(answer, dict) else ():
        for name in ("topic_id", "configs", "topic_config_error_code"):
            topic.pop(name, None)
    for result in answer.get("results", ()) if isinstance(answer, dict) else ():
        result["configs"].sort(key=lambda config: str(config["name"]))
    return answer


def test_tiered_configs_are_accepted_and_refused_as_by_kafka(broker: RunningBroker) -> None:
    answers = asked(broker.bootstrap, configuration_steps())
    for step, ours, kafkas in zip(named(configuration_steps()), answers, RECORDED["configuration"], strict=True):
        assert without_ids(ours["answer"]) == without_ids(kafkas["answer"]), step


def test_offsets_of_a_tiered_log_equal_those_of_kafka(broker: RunningBroker, tmp_path: Path) -> None:
    for name in ("offsets", "empty", "pending"):
        broker.create_topic(name, 1, OFFSETS_TOPIC_CONFIGS)
    broker.create_topic("local", 1, {"internal.segment.bytes": 16384, "retention.ms": -1})
    produce(broker.bootstrap, "offsets")
    produce(broker.bootstrap, "local")
    produce(broker.bootstrap, "pending", 5)
    wait_until_copied(broker, tmp_path, "offsets", local_left=2)
    assert_offsets(broker, "copied")
    deletions = asked(broker.bootstrap, [delete_records("offsets", offset) for offset in (20, 200)])
    assert deletions == RECORDED["deletions"]
    wait_until(lambda: len(remote_names(broker)) == 5, "the first remote segment is deleted")
    assert_offsets(broker, "deleted")
    assert remote_names(broker) == RECORDED["segments"]
    assert len(local_logs(broker, "offsets")) == 2


def remote_names(broker: RunningBroker) -> list[str]:
    root = Path(str(broker.properties["rsm.config.dir"])) / "kafka-tiered-storage"
    return sorted(path.name[:20] for path in root.glob("offsets-0-*/*.log"))


def assert_offsets(broker: RunningBroker, part: str) -> None:
    answers = asked(broker.bootstrap, offset_steps())
    for step, ours, kafkas in zip(named(offset_steps()), answers, RECORDED[part], strict=True):
        assert ours["answer"] == kafkas["answer"], step


def test_remote_log_metadata_topic_has_the_configs_of_kafka(broker: RunningBroker) -> None:
    from tests.broker.api.helpers.admin_scenario import TOPIC, describe

    ours = asked(broker.bootstrap, [describe((TOPIC, "__remote_log_metadata", None))])
    pairs = [
        {entry["name"]: entry["value"] for entry in answer[0]["answer"]["results"][0]["configs"]}
        for answer in (ours, RECORDED["metadata_topic"])
    ]
    assert {name: pairs[0][name] for name in METADATA_TOPIC_KEPT} == {
        name: pairs[1][name] for name in METADATA_TOPIC_KEPT
    }


NOT_NEEDED = {"remote.log.storage.manager.class.name": None}
"""Kafka needs this property; this broker defaults to Aiven's layout in a folder."""
ONLY_KAFKAS = "org.example.None"


@pytest.mark.parametrize("case", RECORDED["starts"], ids=lambda case: str(case["changes"]))
def test_start_with_invalid_tiered_properties_is_refused_as_by_kafka(case: dict[str, Any]) -> None:
    changes = case["changes"]
    if changes == NOT_NEEDED or ONLY_KAFKAS in changes.values():
        pytest.skip("this broker has a default, and refuses other classes when it opens the storage")
    properties: dict[str, Any] = {
        "log.dirs": "/x", "remote.log.storage.system.enable": "true", "log.retention.ms": "-1",
        "remote.log.storage.manager.class.name": LOCAL_TIERED,
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }  # fmt: skip
    merged = {**properties, **changes}
    given = {name: value for name, value in merged.items() if value is not None}
    if not case["error"]:
        BrokerConfig.from_properties(given)
        return
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties(given)
    assert refused.value.what.partition(" list:")[0] == case["error"].partition(" list:")[0]


def test_recording_has_a_response_for_every_step() -> None:
    assert len(RECORDED["copied"]) == len(RECORDED["deleted"]) == len(named(offset_steps()))
    assert len(RECORDED["configuration"]) == len(named(configuration_steps()))
    kinds = itertools.groupby(RECORDED["configuration"], key=lambda entry: entry["key"])
    assert {key for key, _ in kinds} == {19, 32, 33, 44}
