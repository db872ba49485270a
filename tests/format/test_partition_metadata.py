"""partition.metadata: what Kafka wrote, byte for byte, and everything else."""

from __future__ import annotations

import contextlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.format.partition_metadata import (
    PARTITION_METADATA_FILE,
    format_partition_metadata,
    parse_partition_metadata,
    read_partition_metadata,
    uuid_from_text,
    uuid_to_text,
    write_partition_metadata,
)
from tests import golden_data
from tests.log.helpers.damaged_bytes import damaged

GOLDEN_FILES = sorted(golden_data.GOLDEN.glob(f"*/*/*/{PARTITION_METADATA_FILE}"))


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_partition_metadata_round_trips_byte_for_byte(path, tmp_path):
    topic_id = read_partition_metadata(path)
    assert topic_id is not None
    write_partition_metadata(tmp_path / path.name, topic_id)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_partitions_of_a_golden_topic_share_one_id():
    ids = {
        path.parent.name: parse_partition_metadata(path.read_bytes())
        for path in GOLDEN_FILES
        if path.parts[-3] == "data"
    }
    assert ids["segments-0"] == ids["segments-1"] == ids["segments-2"]
    topics = {name.rpartition("-")[0]: topic_id for name, topic_id in ids.items()}
    assert len(set(topics.values())) == len(topics)


def test_uuid_is_formatted_as_in_kafka():
    value = uuid.UUID("14496321-20dd-4c22-91a9-d4daa679c63e")
    assert uuid_to_text(value) == "FEljISDdTCKRqdTapnnGPg"
    assert uuid_from_text("FEljISDdTCKRqdTapnnGPg") == value
    assert uuid_to_text(uuid.UUID(int=2**128 - 1)) == "_____________________w"


@pytest.mark.parametrize(
    "text", ["", "A" * 21, "A" * 23, "A" * 21 + "+", "A" * 21 + "/", "A" * 22 + "==", " " + "A" * 21]
)
def test_other_text_is_not_a_uuid(text):
    with pytest.raises(ValueError, match="22 characters"):
        uuid_from_text(text)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "expected the lines"),
        (b"version: 0\n", "expected the lines"),
        (b"version: -1\ntopic_id: FEjhIyDdTCKRqdTaanlPnA", "expected the lines"),
        (b"version: 0\ntopic_id: ", "expected the lines"),
        (b"version: 0\ntopic_id: FEjhIyDdTCKRqdTaanlPn", "22 characters"),
        (b"version: 0\ntopic_id: FEjhIyDdTCKRqdTaanlP\xff\xff", "22 characters"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "all zeros"),
    ],
)
def test_damaged_partition_metadata_is_an_error(data, text, tmp_path):
    path = tmp_path / PARTITION_METADATA_FILE
    path.write_bytes(data)
    with pytest.raises(CorruptFile, match=text) as caught:
        read_partition_metadata(path)
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    "data", [b"version: 0\ntopic_id: FEjhIyDdTCKRqdTaanlPnA\n", b"version: 0\r\ntopic_id:  FEjhIyDdTCKRqdTaanlPnA\r\n"]
)
def test_line_ends_of_an_editor_are_accepted(data):
    assert uuid_to_text(parse_partition_metadata(data)) == "FEjhIyDdTCKRqdTaanlPnA"


def test_newer_version_is_read_as_in_kafka():
    newer = parse_partition_metadata(b"version: 3\ntopic_id: FEjhIyDdTCKRqdTaanlPnA")
    assert uuid_to_text(newer) == "FEjhIyDdTCKRqdTaanlPnA"


def test_missing_file_is_none(tmp_path):
    assert read_partition_metadata(tmp_path / PARTITION_METADATA_FILE) is None


def test_any_damage_gives_metadata_or_a_kafkalog_error():
    for _what, data in damaged(b"version: 0\ntopic_id: FEjhIyDdTCKRqdTaanlPnA"):
        with contextlib.suppress(CorruptFile):
            parse_partition_metadata(data)


@given(st.binary(max_size=60))
def test_any_bytes_give_metadata_or_a_kafkalog_error(data):
    with contextlib.suppress(CorruptFile):
        parse_partition_metadata(data)


@given(st.uuids())
def test_every_topic_id_round_trips(topic_id):
    assert parse_partition_metadata(format_partition_metadata(topic_id)) == topic_id
