"""Responses to members of streams groups, and the records of their groups, compared with those of Apache Kafka 4.3.0
for the same requests.

The script is in helpers/streams_script.py, Kafka's answers in kafka-4.3.0-streams-groups.json.xz (written by
record_streams_groups.py).
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.groups.modern.group_record_codec import decode
from kafkalog_broker.groups.modern.group_records import GroupRecord, RecordKind
from tests.broker.groups.helpers.replayed import replayed
from tests.broker.groups.helpers.streams_script import PROPERTIES, TOPICS, comparable, run
from tests.broker.groups.record_consumer_groups import offsets_records

KAFKAS = json.loads(lzma.decompress(Path(__file__).with_name("kafka-4.3.0-streams-groups.json.xz").read_bytes()))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("groups")


@pytest.fixture(scope="module")
def answers(directory: Path) -> dict[str, Any]:
    return replayed(directory, KAFKAS, PROPERTIES, TOPICS, run)


@pytest.mark.parametrize("label", KAFKAS["answers"])
def test_streams_group_response_equals_that_of_kafka(label: str, answers: dict[str, Any]) -> None:
    assert comparable(label, answers[label]) == comparable(label, KAFKAS["answers"][label])


def test_streams_group_script_is_the_one_sent_to_kafka(answers: dict[str, Any]) -> None:
    assert list(answers) == list(KAFKAS["answers"]), "record_streams_groups.py must be run again"


def by_group(records: list[list[str | None]]) -> dict[str, list[GroupRecord]]:
    """Records of streams groups, of each group in order, without times. Hashes are numbered: they depend on the ids of
    internal topics. The target assignments of one batch are in the order of a hash map in Kafka."""
    found, hashes = defaultdict(list), dict[tuple[str, int], int]()
    for key, value in records:
        assert key is not None
        record = decode(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
        if record is None:  # a committed offset, or a classic group
            continue
        if record.kind is RecordKind.TARGET_EPOCH and record.value is not None:
            record = record._replace(value=record.value._replace(assignment_timestamp=0))
        if record.kind is RecordKind.EPOCH and record.value is not None:
            number = hashes.setdefault((record.group_id, record.value.metadata_hash), len(hashes))
            record = record._replace(value=record.value._replace(metadata_hash=number))
        found[record.group_id].append(record)
    return {
        group: [
            record
            for kind, run in groupby(of_group, lambda record: record.kind)
            for record in (sorted(run, key=lambda record: record.name) if kind is RecordKind.TARGET else run)
        ]
        for group, of_group in found.items()
    }


def test_streams_group_records_equal_those_of_kafka(directory: Path, answers: dict[str, Any]) -> None:
    ours, kafkas = by_group(offsets_records(directory)), by_group(KAFKAS["records"])
    assert ours.keys() == kafkas.keys()
    for group in kafkas:
        assert ours[group] == kafkas[group], group
