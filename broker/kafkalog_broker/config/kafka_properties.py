"""All properties of brokers and topics that Kafka 4.3 knows, from kafka_properties.json, which lies alongside.

The file is made of Kafka's own definitions by tests/broker/config/write_properties.py. Which of them this broker acts
on is declared in Python, each once: the attributes of BrokerConfig and LogConfig.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkalog_broker.config.definition import (
    AddressLimits,
    Allowed,
    Between,
    NotEmpty,
    OneOf,
    Property,
    PropertyType,
    ThrottledReplicas,
    Update,
)

FILE = Path(__file__).with_name("kafka_properties.json")


def _allowed(entry: Mapping[str, Any] | None) -> Allowed:
    if entry is None:
        return None
    if "words" in entry:
        return OneOf(tuple(entry["words"]), entry.get("fold", False))
    if "not_empty" in entry:
        return NotEmpty()
    if "throttled_replicas" in entry:
        return ThrottledReplicas()
    if "address_limits" in entry:
        return AddressLimits()
    return Between(**entry)


def _property(entry: Mapping[str, Any]) -> Property:
    return Property(
        name=entry["name"],
        type=PropertyType[entry["type"]],
        default=entry.get("default"),
        allowed=_allowed(entry.get("allowed")),
        importance=entry["importance"],
        doc=entry["doc"],
        update=Update(entry["update"]),
        internal=entry.get("internal", False),
    )


_ENTRIES = json.loads(FILE.read_bytes())

BROKER_PROPERTIES: Mapping[str, Property] = {
    entry["name"]: _property(entry) for entry in _ENTRIES if entry["kind"] == "broker"
}
TOPIC_PROPERTIES: Mapping[str, Property] = {
    entry["name"]: _property(entry) for entry in _ENTRIES if entry["kind"] == "topic"
}
BROKER_DEFAULTS: Mapping[str, str] = {
    entry["name"]: entry["broker_default"] for entry in _ENTRIES if "broker_default" in entry
}
"""Topic property -> the broker property that it takes its default from (ServerTopicConfigSynonyms). Where that one has
relatives in other units (log.retention.ms, .minutes, .hours), it is the first; `relatives` knows the rest."""
