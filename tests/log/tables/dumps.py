"""What DumpLogSegments printed of the golden directory, parsed. See record_dumps.py."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from typing import Any, NamedTuple

from tests.log.tables.record_dumps import OFFSETS, PLAIN, RECORDED, TRANSACTIONS

__all__ = ["OFFSETS", "PLAIN", "TRANSACTIONS", "DecodedRecord", "aborted", "decoded", "snapshot", "snapshots"]


class DecodedRecord(NamedTuple):
    """A record of an internal topic. payload: None for a tombstone."""

    partition: int
    offset: int
    key: dict[str, Any]
    payload: dict[str, Any] | None


@cache
def _dumps() -> dict[str, dict[str, str]]:
    with gzip.open(RECORDED, "rt", encoding="utf-8") as file:
        found: dict[str, dict[str, str]] = json.load(file)
    return found


def decoded(decoder: str) -> list[DecodedRecord]:
    """The records of an internal topic, by partition and offset, as one of its decoders prints them."""
    found = []
    for name, text in sorted(_dumps()[decoder].items()):
        partition = int(name.partition("/")[0].rpartition("-")[2])
        for offset, key, payload in re.findall(r"^\| offset: (\d+) .*? key: (.*) payload: (.*)$", text, re.MULTILINE):
            value = json.loads(payload)
            found.append(DecodedRecord(partition, int(offset), json.loads(key)["data"], value and value["data"]))
    return found


def snapshots(partition: str) -> list[str]:
    """The producer snapshots of a partition's directory, by offset."""
    return sorted(name for name in _dumps()[PLAIN] if name.startswith(f"{partition}/") and name.endswith(".snapshot"))


def snapshot(name: str) -> dict[int, dict[str, int | None]]:
    """The producers of one of `snapshots`, by id, as the columns of the table `producers`; timestamps in ms."""
    producers = {}
    for line in _dumps()[PLAIN][name].splitlines():
        said = dict(re.findall(r"(\w+): (\S+)", line))
        if said:
            first = re.search(r"\d+", said["currentTxnFirstOffset"])
            producers[int(said["producerId"])] = {
                "producer_epoch": int(said["producerEpoch"]),
                "coordinator_epoch": int(said["coordinatorEpoch"]),
                "transaction_first_offset": int(first[0]) if first else None,
                "last_timestamp": int(said["lastTimestamp"]),
                "last_sequence": int(said.get("lastSequence", -1)),
                "last_offset": int(said.get("lastOffset", -1)),
            }
    return producers


def aborted(partition: str) -> list[tuple[int, int, int]]:
    """(producer id, first offset, last offset) of the aborted transactions of a partition, by last offset."""
    text = "\n".join(
        text for name, text in sorted(_dumps()[PLAIN].items()) if re.fullmatch(rf"{partition}/\d+\.txnindex", name)
    )
    found = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+)", text)
    return sorted(((int(p), int(first), int(last)) for p, first, last in found), key=lambda one: one[2])
