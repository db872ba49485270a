"""All properties of brokers and topics: those of Kafka 4.3, and those that only this broker has.

kafka_properties.json is generated from Kafka's own definitions by tests/broker/config/write_properties.py.
own_properties.json is written by hand in the same form; its names begin with `kafkalog.`. This broker acts on the
properties that are attributes of BrokerConfig and LogConfig; it only validates, stores and describes all others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkalog_broker.config.definition import Property, PropertyType, Update

KAFKA_PROPERTIES_FILE = Path(__file__).with_name("kafka_properties.json")
OWN_PROPERTIES_FILE = Path(__file__).with_name("own_properties.json")


def _property(entry: Mapping[str, Any]) -> Property:
    update = Update(entry["update"])
    internal = entry.get("internal", False)
    default, allowed = entry.get("default"), entry.get("allowed")
    return Property(entry["name"], PropertyType[entry["type"]], default, allowed, entry["doc"], update, internal)


_ENTRIES = [*json.loads(KAFKA_PROPERTIES_FILE.read_bytes()), *json.loads(OWN_PROPERTIES_FILE.read_bytes())]
BROKER_PROPERTIES, TOPIC_PROPERTIES = (
    {entry["name"]: _property(entry) for entry in _ENTRIES if entry["kind"] == kind} for kind in ("broker", "topic")
)
BROKER_DEFAULTS: Mapping[str, str] = {
    entry["name"]: entry["broker_default"] for entry in _ENTRIES if "broker_default" in entry
}
"""Topic property -> the broker property that is its default (Kafka: ServerTopicConfigSynonyms). Of properties in
several units (log.retention.ms, .minutes, .hours) it is the first; see `property_relatives`."""


def first_value(layers: tuple[Mapping[str, str], ...], name: str) -> str | None:
    """Return the text of a property in the first layer that has it, or its default."""
    return next((layer[name] for layer in layers if name in layer), BROKER_PROPERTIES[name].default)
