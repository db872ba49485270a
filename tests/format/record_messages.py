"""Make kafkalog_spark/format/messages/kafka_messages.jsonl: Kafka's message definitions, from the jars of its modules.

    python -m tests.format.record_messages

The definitions of each module are JSON resources of its jar. Kafka 4.0 removed the oldest versions of five APIs
(KIP-896); what they have beyond the later versions comes from Kafka 3.9.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.interop.real_kafka import cache_dir, maven_jar

DEFINITIONS = Path(__file__).parents[2] / "kafkalog_spark" / "format" / "messages" / "kafka_messages.jsonl"
VERSION, OLD_VERSION = "4.3.0", "3.9.1"
MODULES = ("clients", "group-coordinator", "transaction-coordinator", "share-coordinator", "storage", "metadata")

RECORDS = {
    "ConsumerProtocolAssignment", "ConsumerProtocolSubscription", "ProducerIdsRecord", "RemoteLogSegmentMetadataRecord",
    "RemoteLogSegmentMetadataUpdateRecord", "RemotePartitionDeleteMetadataRecord",
}  # fmt: skip
"""Definitions of the types `data` and `metadata` that are kept. All requests, responses, headers and coordinators' keys
and values are."""
TOPICS = {
    "group-coordinator": "__consumer_offsets", "transaction-coordinator": "__transaction_state",
    "share-coordinator": "__share_group_state",
}  # fmt: skip
REMOVED_IN_4 = ("Produce", "Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch")
ADDED: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("OffsetCommitValue", "topicId"): {"nullableVersions": "0+"},
    ("RemoteLogSegmentMetadataRecord", "RemoteLogSegmentState"): {"maxValue": 3},
    ("RemoteLogSegmentMetadataUpdateRecord", "RemoteLogSegmentState"): {"maxValue": 3},
    ("RemotePartitionDeleteMetadataRecord", "RemotePartitionDeleteState"): {"maxValue": 2},
}
"""What the definitions leave open: that a zero topic ID reads as None, and the largest number of a state."""

_MESSAGE_KEYS = ("name", "apiKey", "type", "topic", "validVersions", "flexibleVersions", "fields", "commonStructs")
_FIELD_KEYS = (
    "name", "type", "versions", "nullableVersions", "taggedVersions", "flexibleVersions", "tag", "default", "maxValue",
    "fields",
)  # fmt: skip
_TYPES = ("header", "request", "response", "coordinator-key", "coordinator-value", "metadata", "data")


def lines(jars: Path) -> Iterator[str]:
    """The lines of the file. jars: a directory with kafka-MODULE-VERSION.jar of each module."""
    found = [one for module in MODULES for one in _definitions(jars / f"kafka-{module}-{VERSION}.jar", module)]
    old = {one["name"]: one for one in _definitions(jars / f"kafka-clients-{OLD_VERSION}.jar", "clients")}
    kept = [
        one for one in found
        if one["validVersions"] != "none" and (one["type"] not in ("data", "metadata") or one["name"] in RECORDS)
    ]  # fmt: skip
    for one in sorted(kept, key=lambda one: (_TYPES.index(one["type"]), one.get("topic", ""), one.get("apiKey", 0))):
        if one["name"].removesuffix("Request").removesuffix("Response") in REMOVED_IN_4:
            one["fields"] = _with_removed(one["fields"], old[one["name"]]["fields"])
            one["validVersions"] = "0-" + one["validVersions"].partition("-")[2]
        one["fields"] = [_field(field, one["name"]) for field in one["fields"]]
        if "commonStructs" in one:
            one["commonStructs"] = [_field(struct, one["name"]) for struct in one["commonStructs"]]
        yield json.dumps({key: one[key] for key in _MESSAGE_KEYS if key in one}, separators=(",", ":"))


def _definitions(jar: Path, module: str) -> Iterator[dict[str, Any]]:
    with zipfile.ZipFile(jar) as file:
        for name in sorted(file.namelist()):
            if re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", name):
                text = re.sub(r"^\s*//.*$", "", file.read(name).decode(), flags=re.MULTILINE)
                found: dict[str, Any] = {"validVersions": "none", **json.loads(text)}
                if module in TOPICS:
                    found["topic"] = TOPICS[module]
                yield found


def _with_removed(fields: list[dict[str, Any]], old: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`fields`, with the old ones that are missing in the places that they had."""
    merged = list(fields)
    names = [field["name"] for field in fields]
    for place, field in enumerate(old):
        if field["name"] not in names:
            after = old[place - 1]["name"] if place else None
            merged.insert(next((at for at, one in enumerate(merged, 1) if one["name"] == after), 0), field)
    olds = {field["name"]: field for field in old}
    return [
        {**field, "fields": _with_removed(field["fields"], olds[field["name"]]["fields"])}
        if "fields" in field and "fields" in olds.get(field["name"], {})
        else field
        for field in merged
    ]


def _field(field: Mapping[str, Any], message: str) -> dict[str, Any]:
    kept = {**field, **ADDED.get((message, field["name"]), {})}
    if "fields" in kept:
        kept["fields"] = [_field(inner, message) for inner in kept["fields"]]
    return {key: kept[key] for key in _FIELD_KEYS if key in kept}


def fetch_jars(directory: Path) -> None:
    """Copy the jars from Maven, those that are not there."""
    for module in MODULES:
        maven_jar(f"org.apache.kafka:kafka-{module}:{VERSION}", directory)
    maven_jar(f"org.apache.kafka:kafka-clients:{OLD_VERSION}", directory)


def main() -> None:
    jars = cache_dir() / "message-definitions"
    fetch_jars(jars)
    DEFINITIONS.write_text("\n".join(lines(jars)) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
