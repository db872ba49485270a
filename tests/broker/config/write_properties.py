"""Make the broker's config/kafka_properties.json of Kafka's definitions: python -m tests.broker.config.write_properties

Kafka's definitions are in kafka-4.3.0-definitions.json, alongside this file (`record_configs` asks Kafka's code for
them). What a property does is said in one sentence of ours, which is kept from the file as it was; a property that is
new has none until somebody writes it there, and a test asks for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkalog_broker.config.property_list import KAFKA_PROPERTIES_FILE

DEFINITIONS = Path(__file__).with_name("kafka-4.3.0-definitions.json")

# Validators whose words allow anything that the type allows.
_ANYTHING = {None, "", "non-empty list", "non-null string"}
# A lambda in Kafka's code, which prints nothing.
_UNSPOKEN = {"max.connections.per.ip.overrides": {"address_limits": True}}


def allowed(validator: str | None) -> dict[str, Any] | None:
    """What a validator prints, as the file says it. Raises ValueError for words that are new."""
    if validator in _ANYTHING:
        return None
    assert validator is not None
    number = r"(-?[0-9.]+?)"
    if between := re.fullmatch(rf"\[{number},\.\.\.(?:,{number})?\](?: or {number})?", validator):
        bounds = zip(("low", "high", "also"), between.groups(), strict=True)
        return {name: json.loads(text) for name, text in bounds if text is not None}
    if validator == "non-empty string":
        return {"not_empty": True}
    if validator.startswith("[partitionId]:"):
        return {"throttled_replicas": True}
    if words := re.fullmatch(r"(\(case insensitive\) )?\[([^\[\]]+)\]", validator):
        fold = {"fold": True} if words[1] else {}
        return {"words": words[2].split(", "), **fold}
    raise ValueError(f"a validator that says {validator!r}")


def properties(definitions: list[dict[str, Any]], docs: Mapping[tuple[str, str], str]) -> str:
    """The text of the file. docs: (kind, name) to our sentence."""
    of_broker = {entry["name"]: entry["broker"][0] for entry in definitions if entry["kind"] == "synonym"}
    lines = []
    for entry in definitions:
        kind, name = entry["kind"], entry["name"]
        if kind == "synonym":
            continue
        made = {
            "kind": kind,
            "name": name,
            "type": entry["type"],
            "default": None if entry["default"] == "<<none>>" else entry["default"],
            "allowed": allowed(entry["validator"]) or _UNSPOKEN.get(name),
            "update": entry["update"],
            "internal": entry["internal"] or None,
            "broker_default": of_broker.get(name) if kind == "topic" else None,
            "doc": docs.get((kind, name), ""),
        }
        lines.append(json.dumps({key: value for key, value in made.items() if value is not None}))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def made() -> str:
    """What the file has to be."""
    docs = {(entry["kind"], entry["name"]): entry["doc"] for entry in json.loads(KAFKA_PROPERTIES_FILE.read_text())}
    return properties(json.loads(DEFINITIONS.read_text()), docs)


if __name__ == "__main__":
    KAFKA_PROPERTIES_FILE.write_text(made())
