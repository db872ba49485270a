"""Aiven's segment manifest: its own vectors, what it must tolerate, and damage."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import CorruptManifest, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.partition_metadata import uuid_from_text
from kafkalog_spark.log.tiered.manifest import IndexRange, format_manifest, parse_manifest
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from tests.log.helpers.damaged_bytes import damaged

# SegmentManifestV1SerdeTest of Aiven's plugin; its data key is not one that RSA made.
SEGMENT = {
    "remoteLogSegmentId": {
        "topicIdPartition": {
            "topicId": "lZ6vvmajTWKDBUTV6SQAtQ",
            "topicPartition": {"topic": "topic1", "partition": 42},
        },
        "id": "adh9f8BMS4anaUnD8KWfWg",
    },
    "startOffset": 0,
    "endOffset": 1000,
    "maxTimestampMs": 1000000000,
    "brokerId": 2,
    "eventTimestampMs": 2000000000,
    "segmentLeaderEpochs": {"0": 100, "1": 200, "2": 300},
}
INDEXES = {
    "offset": {"position": 0, "size": 1},
    "timestamp": {"position": 1, "size": 1},
    "producerSnapshot": {"position": 2, "size": 1},
    "leaderEpoch": {"position": 3, "size": 1},
    "transaction": {"position": 4, "size": 1},
}
FIXED = {
    "type": "fixed",
    "originalChunkSize": 100,
    "originalFileSize": 1000,
    "transformedChunkSize": 110,
    "finalTransformedChunkSize": 110,
}
VARIABLE = {
    "type": "variable",
    "originalChunkSize": 100,
    "originalFileSize": 250,
    "transformedChunks": "KLUv/SAPeQAAAAAAAwAAAAoBAAoAAAAe",
}
ENCRYPTED: dict[str, Any] = {
    "version": "1",
    "chunkIndex": FIXED,
    "segmentIndexes": INDEXES,
    "compression": False,
    "encryption": {"dataKey": "static-key-id:AAAA", "aad": "CgsMDQ=="},
    "remoteLogSegmentMetadata": SEGMENT,
}
COMPRESSED = {
    "version": "1",
    "chunkIndex": VARIABLE,
    "segmentIndexes": {**INDEXES, "transaction": None},
    "compression": True,
    "remoteLogSegmentMetadata": SEGMENT,
}


def as_bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def test_manifest_of_an_encrypted_segment_is_parsed() -> None:
    manifest = parse_manifest(as_bytes(ENCRYPTED))
    assert (manifest.is_compressed, manifest.is_plain) == (False, False)
    assert manifest.encryption is not None
    assert (manifest.encryption.key_id, manifest.encryption.wrapped_key) == ("static-key-id", b"\0\0\0")
    assert manifest.encryption.aad == bytes([10, 11, 12, 13])
    assert manifest.indexes == {
        RemoteFile.OFFSET_INDEX: IndexRange(0, 1),
        RemoteFile.TIME_INDEX: IndexRange(1, 1),
        RemoteFile.PRODUCER_SNAPSHOT: IndexRange(2, 1),
        RemoteFile.LEADER_EPOCHS: IndexRange(3, 1),
        RemoteFile.TRANSACTION_INDEX: IndexRange(4, 1),
    }
    assert (manifest.chunks.count, manifest.chunks.object_size) == (10, 1100)
    segment = manifest.segment
    assert segment is not None
    assert segment.partition == ("topic1", uuid_from_text("lZ6vvmajTWKDBUTV6SQAtQ"), 42)
    assert segment.segment_id == uuid_from_text("adh9f8BMS4anaUnD8KWfWg")
    assert (segment.start_offset, segment.end_offset, segment.size, segment.broker_id) == (0, 1000, 1000, 2)
    assert (segment.max_timestamp, segment.event_timestamp) == (1000000000, 2000000000)
    assert segment.leader_epochs == (EpochEntry(0, 100), EpochEntry(1, 200), EpochEntry(2, 300))


def test_manifest_of_a_compressed_segment_is_parsed() -> None:
    manifest = parse_manifest(as_bytes(COMPRESSED))
    assert (manifest.is_compressed, manifest.is_plain, manifest.encryption) == (True, False, None)
    assert manifest.chunks.sizes.tolist() == [10, 20, 30]
    assert manifest.indexes is not None
    assert RemoteFile.TRANSACTION_INDEX not in manifest.indexes


@pytest.mark.parametrize("value", [ENCRYPTED, COMPRESSED])
def test_manifest_is_written_as_by_the_plugin(value: dict[str, Any]) -> None:
    manifest = parse_manifest(as_bytes(value))
    written = json.loads(format_manifest(manifest))
    if "transformedChunks" in written["chunkIndex"]:  # zstd frames differ from release to release
        written["chunkIndex"]["transformedChunks"] = VARIABLE["transformedChunks"]
    assert written == value
    assert list(written) == list(value)
    assert parse_manifest(format_manifest(manifest)) == manifest
    assert pickle.loads(pickle.dumps(manifest)) == manifest


def test_fields_of_later_releases_are_ignored() -> None:
    more = {**ENCRYPTED, "new": {"a": 1}, "chunkIndex": {**FIXED, "later": []}}
    assert parse_manifest(as_bytes(more)) == parse_manifest(as_bytes(ENCRYPTED))


def test_manifests_of_2023_are_parsed() -> None:
    """Before segmentIndexes (October) and remoteLogSegmentMetadata (September)."""
    legacy = {name: value for name, value in COMPRESSED.items() if name not in ("segmentIndexes", SEGMENT_FIELD)}
    manifest = parse_manifest(as_bytes(legacy))
    assert (manifest.indexes, manifest.segment) == (None, None)
    assert json.loads(format_manifest(manifest)).keys() == legacy.keys()


SEGMENT_FIELD = "remoteLogSegmentMetadata"
_REMOVED = object()


def changed(value: dict[str, Any], path: str, to: Any) -> dict[str, Any]:
    """A copy of `value` with something else at a dotted path."""
    copy: dict[str, Any] = json.loads(json.dumps(value))
    *above, last = path.split(".")
    place = copy
    for name in above:
        place = place[name]
    if to is _REMOVED:
        del place[last]
    else:
        place[last] = to
    return copy


ID = f"{SEGMENT_FIELD}.remoteLogSegmentId"


@pytest.mark.parametrize(
    ("path", "to", "text"),
    [
        ("version", _REMOVED, "version is missing, expected a string"),
        ("version", 1, "version is 1, expected a string"),
        ("compression", "no", "compression is 'no', expected true or false"),
        ("compression", 0, "compression is 0, expected true or false"),
        ("chunkIndex", None, "chunkIndex is None, expected an object"),
        ("chunkIndex", [], "chunkIndex is list, expected an object"),
        ("chunkIndex.originalFileSize", _REMOVED, "chunkIndex.originalFileSize is missing, expected an integer"),
        ("chunkIndex.originalFileSize", 1.5, "originalFileSize is 1.5, expected an integer"),
        ("chunkIndex.originalFileSize", True, "originalFileSize is True, expected an integer"),
        ("chunkIndex.originalFileSize", -1, "originalFileSize is -1, expected 0 to"),
        ("chunkIndex.originalFileSize", 2**31, "originalFileSize is 2147483648"),
        ("chunkIndex.originalFileSize", 10**200, "is a number of more than 128 bits"),
        ("chunkIndex.originalChunkSize", 0, "originalChunkSize is 0"),
        ("chunkIndex.transformedChunkSize", 0, "has 0 bytes"),
        ("chunkIndex.transformedChunkSize", 2**63 - 1, "has 2147483648 bytes"),
        ("encryption.dataKey", "no colon", "dataKey is not <key id>:<base64>"),
        ("encryption.dataKey", ":AAAA", "dataKey is not <key id>:<base64>"),
        ("encryption.dataKey", "id:A!AA", "encryption.dataKey is not base64"),
        ("encryption.aad", "ü", "encryption.aad is not base64"),
        ("segmentIndexes.offset", None, "segmentIndexes.offset is None, expected an object"),
        ("segmentIndexes.offset", _REMOVED, "segmentIndexes.offset is missing"),
        ("segmentIndexes.offset.size", -1, "segmentIndexes.offset.size is -1"),
        (f"{ID}.id", "short", "22 characters"),
        (f"{ID}.topicIdPartition.topicPartition.topic", "a/b", "'a/b' is not a valid topic name"),
        (f"{SEGMENT_FIELD}.endOffset", -2, "endOffset is -2"),
        (f"{SEGMENT_FIELD}.startOffset", 1002, "endOffset 1000 is below startOffset 1002"),
        (f"{SEGMENT_FIELD}.segmentLeaderEpochs", {"x": 1}, "has the key 'x', expected a leader epoch"),
        (f"{SEGMENT_FIELD}.segmentLeaderEpochs", {"2147483648": 1}, "expected a leader epoch"),
        (f"{SEGMENT_FIELD}.segmentLeaderEpochs", {"0": "1"}, "segmentLeaderEpochs.0 is '1'"),
    ],
)
def test_damage_is_an_error_that_names_the_field(path: str, to: Any, text: str) -> None:
    with pytest.raises(CorruptManifest, match=text):
        parse_manifest(as_bytes(changed(ENCRYPTED, path, to)))


@pytest.mark.parametrize(
    ("path", "to", "text"),
    [("version", "2", "manifest version '2'"), ("chunkIndex.type", "new", "chunkIndex.type is 'new'")],
)
def test_unknown_versions_and_types_are_refused(path: str, to: Any, text: str) -> None:
    with pytest.raises(UnsupportedFormat, match=text):
        parse_manifest(as_bytes(changed(ENCRYPTED, path, to)))


def test_plain_segment_has_the_size_of_its_object() -> None:
    plain = {name: value for name, value in ENCRYPTED.items() if name != "encryption"}
    with pytest.raises(CorruptManifest, match="neither compressed nor encrypted, but 1000 bytes became 1100"):
        parse_manifest(as_bytes(plain))
    fitting = changed(
        changed(plain, "chunkIndex.transformedChunkSize", 100), "chunkIndex.finalTransformedChunkSize", 100
    )
    assert parse_manifest(as_bytes(fitting)).is_plain


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[]", b'"1"', b"9" * 10_000])
def test_text_that_is_no_json_object_is_an_error(data: bytes) -> None:
    with pytest.raises(CorruptManifest):
        parse_manifest(data)


@pytest.mark.parametrize("value", [ENCRYPTED, COMPRESSED])
def test_any_damage_gives_a_manifest_or_our_error(value: dict[str, Any]) -> None:
    for what, data in damaged(as_bytes(value)):
        try:
            parse_manifest(data)
        except KafkalogError:
            pass
        except Exception as error:
            raise AssertionError(what) from error


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
paths = st.sampled_from(
    ["version", "chunkIndex", "chunkIndex.type", "chunkIndex.transformedChunks", "segmentIndexes", "encryption",
     "segmentIndexes.offset", ID, f"{ID}.topicIdPartition", f"{SEGMENT_FIELD}.segmentLeaderEpochs", "compression"]
)  # fmt: skip


@given(paths, json_values)
def test_any_value_in_any_field_gives_a_manifest_or_our_error(path: str, to: Any) -> None:
    try:
        parse_manifest(as_bytes(changed({**COMPRESSED, "encryption": {}}, path, to)))
    except KafkalogError:
        pass


@pytest.mark.parametrize("name", ["segmentIndexes", "transaction"])
def test_flipped_bit_in_a_name_never_means_no_transaction_index(name: str) -> None:
    """Without segmentIndexes the indexes are objects of their own, which readers then miss."""
    data = format_manifest(parse_manifest(as_bytes(ENCRYPTED)))
    begin = data.index(b'"' + name.encode()) + 1
    for position in range(begin, begin + len(name)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            try:
                indexes = parse_manifest(bytes(flipped)).indexes
            except CorruptManifest:
                continue
            assert indexes is None
            assert name == "segmentIndexes"
