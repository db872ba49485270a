"""DescribeConfigs looks up and encodes equal configurations once, and bounds its responses."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog_broker.admin import config_entries
from kafkalog_broker.api.configs import describe_configs
from kafkalog_broker.errors import ErrorCode
from tests.broker.api.helpers.admin_broker import AdminBroker
from tests.broker.api.helpers.admin_scenario import BROKER, TOPIC, create, new_topic
from tests.broker.api.helpers.plain_entities import request_entity


@pytest.fixture
def broker(tmp_path):
    with AdminBroker(tmp_path / "data") as broker:
        key, _, values = create(*(new_topic(f"t{n}") for n in range(30)), new_topic("u", configs={"retention.ms": "7"}))
        broker.ask(request_entity(key, 7, values, {}))
        yield broker


def described(broker, *resources, version=4, synonyms=True, documentation=True):
    asked = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name, keys in resources
    ]
    values = {"resources": asked, "include_synonyms": synonyms, "include_documentation": documentation}
    return broker.ask(request_entity(32, version, values, {})).results


@pytest.fixture
def listed(monkeypatch):
    """The resources whose properties were listed."""
    found: list[Any] = []
    really = config_entries.resource_entries

    def counted(broker, kind, name):
        found.append((int(kind), name))
        return really(broker, kind, name)

    monkeypatch.setattr(describe_configs, "resource_entries", counted)
    return found


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_resource_named_thousands_of_times_is_described_once(broker, listed, version):
    """16 kB that named the broker 2,000 times took 13 s, and an answer of 57 MB."""
    resources = [(BROKER, "1", None), (TOPIC, "t3", ["retention.ms"])] * 1000 + [(BROKER, "1", [])]
    first, second = described(broker, *resources, version=version)
    assert (first.resource_name, second.resource_name, len(second.configs)) == ("1", "t3", 1)
    assert listed == [(BROKER, "1"), (TOPIC, "t3")]
    again = described(broker, (BROKER, "1", None), version=version)
    assert again == (first,)
    assert len(listed) == 2, "until the configuration changes"
    list(broker.updating_config(broker.config.with_dynamic({"log.retention.ms": "5"}, {})))
    (changed,) = described(broker, (BROKER, "1", None), version=version)
    assert [entry.value for entry in changed.configs if entry.name == "log.retention.ms"] == ["5"]


def test_topics_with_equal_overrides_are_looked_up_once(broker, listed):
    names = [f"t{n}" for n in range(30)] + ["u"]
    results = described(broker, *((TOPIC, name, None) for name in names))
    assert [result.resource_name for result in results] == names
    assert [{e.name: e.value for e in r.configs}["retention.ms"] for r in results] == ["-1"] * 30 + ["7"]
    assert len(listed) == 2


def test_resources_beyond_the_response_limit_are_refused(broker, monkeypatch):
    monkeypatch.setattr(describe_configs, "MAX_RESPONSE_BYTES", 30_000)
    results = described(broker, *((TOPIC, f"t{n}", None) for n in range(30)))
    codes = [result.error_code for result in results]
    assert codes[0] is ErrorCode.none
    assert codes[-1] is ErrorCode.policy_violation
    assert sum(code is ErrorCode.none for code in codes) < 10
