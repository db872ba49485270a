from __future__ import annotations

import struct
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_broker.coordinator.coordinator_record import Record
from kafkalog_broker.coordinator.partitioning import partition_for
from kafkalog_broker.coordinator.record_batch import decode_batches, encode_batch
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.groups.classic.classic_group import ClassicGroup
from kafkalog_broker.groups.classic.classic_group_records import GroupKey, decode_group_value, group_key, group_value
from kafkalog_broker.groups.offset_records import (
    OffsetAndMetadata,
    OffsetKey,
    decode_key,
    decode_offset_value,
    offset_key,
    offset_value,
)
from kafkalog_spark.errors import CorruptLog, KafkalogError, UnsupportedFormat
from kafkalog_spark.format.layout import Codec, ControlType
from tests.golden_data import KAFKA_4_3, data_dir

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=300)


def offsets_log(release: str) -> bytes:
    (path,) = (data_dir(release) / "__consumer_offsets-0").glob("*.log")
    return path.read_bytes()


def encoded(record: Record) -> Record:
    """The same record written anew."""
    key, value = record
    about = decode_key(key)
    if isinstance(about, OffsetKey):
        return offset_key(*about), None if value is None else offset_value(decode_offset_value(value))
    assert isinstance(about, GroupKey)
    return group_key(*about), None if value is None else group_value(decode_group_value(value))


def test_decoded_records_of_kafka_are_encoded_to_the_same_bytes() -> None:
    records = [record for batch in decode_batches([offsets_log(KAFKA_4_3)]) for record in batch.records]
    assert len(records) == 6
    assert [encoded(record) for record in records] == records


def test_coordinator_batches_equal_those_of_kafka() -> None:
    log = offsets_log(KAFKA_4_3)
    written = b""
    at = 0
    for batch in decode_batches([log]):
        (timestamp,) = struct.unpack_from(">q", log, at + 27)
        one = encode_batch(batch.records, timestamp, base_offset=batch.base_offset, leader_epoch=0)
        written += one
        at += len(one)
    assert written == log


def test_committed_offsets_written_by_kafka_are_decoded() -> None:
    found = {}
    for batch in decode_batches([offsets_log(KAFKA_4_3)]):
        for key, value in batch.records:
            assert value is not None
            about = decode_key(key)
            assert isinstance(about, OffsetKey)
            found[about] = decode_offset_value(value)
    first = found[OffsetKey("reporting", "groups", 0)]
    assert (first.offset, first.metadata) == (80, "reporting at 0\0")  # librdkafka sent the zero byte of its C string
    assert (first.leader_epoch, first.expire_timestamp_ms) == (-1, -1)
    ids = {committed.topic_id for committed in found.values()}
    assert ids == {_topic_id(data_dir(KAFKA_4_3) / "groups-0")}
    assert {(key.group_id, key.partition) for key in found} == {
        (g, p) for g in ("reporting", "billing") for p in range(3)
    }


def _topic_id(directory: Path) -> UUID:
    import base64

    text = (directory / "partition.metadata").read_text().split("topic_id: ")[1].strip()
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


@given(TEXT, TEXT, I32)
def test_offset_key_is_decoded_as_encoded(group: str, topic: str, partition: int) -> None:
    assert decode_key(offset_key(group, topic, partition)) == OffsetKey(group, topic, partition)
    assert decode_key(group_key(group)) == GroupKey(group)


@given(st.builds(OffsetAndMetadata, I64, I32, TEXT, I64, st.just(-1), st.none() | st.uuids(version=4)))
def test_committed_offset_is_decoded_as_encoded(committed: OffsetAndMetadata) -> None:
    assert decode_offset_value(offset_value(committed)) == committed


def test_committed_offset_with_an_expire_timestamp_is_encoded_in_version_1() -> None:
    committed = OffsetAndMetadata(5, 7, "m", 1000, 2000, UUID(int=3))
    value = offset_value(committed)
    assert value[:2] == b"\0\1"
    assert decode_offset_value(value) == OffsetAndMetadata(5, -1, "m", 1000, 2000)  # it has no room for the others


BLOB = st.binary(max_size=100)
MEMBER = st.tuples(TEXT, st.none() | TEXT, TEXT, TEXT, st.integers(0, 2**31 - 1), I32, BLOB, BLOB)


@given(st.tuples(TEXT, I32, st.none() | TEXT, st.none() | TEXT, I64, st.lists(MEMBER, max_size=4).map(tuple)))
def test_group_metadata_is_decoded_as_encoded(group: tuple[object, ...]) -> None:
    assert decode_group_value(group_value(group)) == group


def test_offset_value_of_every_version_is_decoded() -> None:
    for version, body in (
        (0, struct.pack(">qh1sq", 5, 1, b"m", 9)),
        (1, struct.pack(">qh1sqq", 5, 1, b"m", 9, -1)),
        (2, struct.pack(">qh1sq", 5, 1, b"m", 9)),
        (3, struct.pack(">qih1sq", 5, -1, 1, b"m", 9)),
        (4, struct.pack(">qib1sqb", 5, -1, 2, b"m", 9, 0)),
        (4, struct.pack(">qib1sqbbb3s", 5, -1, 2, b"m", 9, 1, 7, 3, b"new")),  # a tag from the future
    ):
        assert decode_offset_value(struct.pack(">h", version) + body) == OffsetAndMetadata(5, -1, "m", 9)


def test_group_value_of_the_flexible_version_is_decoded() -> None:
    body = struct.pack(">b8sib", 9, b"consumer", 3, 6) + b"range" + b"\2a" + struct.pack(">q", 77)
    member = b"\2a" + b"\0" + b"\2c" + b"\2h" + struct.pack(">ii", 300, 100) + b"\3su" + b"\2z" + b"\0"
    found = decode_group_value(struct.pack(">h", 4) + body + b"\2" + member + b"\0")
    assert found == ("consumer", 3, "range", "a", 77, (("a", None, "c", "h", 300, 100, b"su", b"z"),))


def test_member_without_a_rebalance_timeout_gets_its_session_timeout() -> None:
    body = b"\0\1x" + struct.pack(">i", 1) + b"\0\1r" + b"\0\1a" + struct.pack(">i", 1)
    member = b"\0\1a" + b"\0\1c" + b"\0\1h" + struct.pack(">i", 6000) + struct.pack(">ii", 0, 0)
    group = ClassicGroup.from_record("g", decode_group_value(struct.pack(">h", 0) + body + member), lambda: 0)
    (found,) = group.members.values()
    assert (found.rebalance_timeout_ms, found.session_timeout_ms) == (6000, 6000)


def test_key_of_a_consumer_share_or_streams_group_decodes_to_none() -> None:
    assert decode_key(struct.pack(">hh1s", 3, 1, b"g")) is None


def test_value_of_a_later_version_raises_unsupported_format() -> None:
    with pytest.raises(UnsupportedFormat, match="version 5"):
        decode_offset_value(struct.pack(">hq", 5, 1))


VALUES = [
    offset_value(OffsetAndMetadata(5, 7, "some text", 1000, -1, UUID(int=3))),
    offset_value(OffsetAndMetadata(5, 7, "some text", 1000, 3)),
]
GROUP = group_value(("consumer", 3, "range", "a", 77, (("a", "i", "c", "h", 3, 1, b"su", b"z"),)))


@pytest.mark.parametrize("value", [*VALUES, GROUP])
def test_truncated_value_raises_corrupt_log(value: bytes) -> None:
    decode = decode_group_value if value is GROUP else decode_offset_value
    for size in range(len(value)):
        with pytest.raises(CorruptLog):
            decode(value[:size])


@given(st.binary(max_size=60))
def test_arbitrary_bytes_decode_or_raise_kafkalog_error(data: bytes) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_value):
        for version in range(5):
            try:
                decode(struct.pack(">h", version) + data)
            except KafkalogError:
                pass


def test_text_too_long_for_a_record_is_refused() -> None:
    with pytest.raises(BrokerError, match="40000 bytes"):
        group_key("g" * 40000)


RECORDS = st.lists(st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=20000)), min_size=1, max_size=20)


@given(RECORDS, st.integers(0, 2**40), st.integers(0, 2**60))
def test_coordinator_batch_is_decoded_as_encoded(records: list[Record], timestamp: int, base: int) -> None:
    data = encode_batch(records, timestamp, base_offset=base)
    (batch,) = decode_batches([data])
    assert (batch.base_offset, batch.records, batch.control, batch.is_transactional) == (base, records, None, False)


def test_compressed_coordinator_batch_is_decoded() -> None:
    import zlib

    from kafkalog_spark.format.layout import BATCH_OVERHEAD
    from kafkalog_spark.log.write.encoded_batch import seal

    records: list[Record] = [(b"key", b"v" * 5000), (b"gone", None)]
    plain = encode_batch(records, 5)
    zipper = zlib.compressobj(wbits=31)
    packed = bytearray(BATCH_OVERHEAD) + zipper.compress(plain[BATCH_OVERHEAD:]) + zipper.flush()
    seal(packed, 0, len(packed), (0, 0, 0, 2, 0, int(Codec.GZIP), 1, 5, 5, -1, -1, 0, 2))
    (batch,) = decode_batches([bytes(packed)])
    assert batch.records == records


def test_control_batch_decodes_to_a_marker_without_records() -> None:
    from kafkalog_spark.log.write.encoded_batch import control_batch

    marker = control_batch(ControlType.COMMIT, 5, 1, producer_id=9, producer_epoch=0, coordinator_epoch=0)
    (batch,) = decode_batches([marker.data])
    assert (batch.control, batch.producer_id, batch.records) == (ControlType.COMMIT, 9, [])


@pytest.mark.parametrize("at", [30, 61, 62, 65, -1])
def test_damaged_coordinator_batch_is_corrupt(at: int) -> None:
    data = bytearray(encode_batch([(b"key", b"value")], 5))
    data[at] ^= 0x40
    with pytest.raises(KafkalogError):
        list(decode_batches([bytes(data)]))


@pytest.mark.parametrize(
    ("text", "expected"),
    # from jshell: "...".hashCode()
    [("", 0), ("a", 97), ("reporting", -353319378), ("polygenelubricants", -(2**31)), ("\N{GRINNING FACE}", 1772899)],
)
def test_hash_equals_java_string_hash_code(text: str, expected: int) -> None:
    assert partition_for(text, 2**31) == abs(expected) % 2**31


def test_partition_of_a_group_equals_kafkas() -> None:
    assert partition_for("polygenelubricants", 50) == 0  # Utils.abs of the smallest integer is 0
    assert partition_for("reporting", 50) == 353319378 % 50
    assert partition_for("reporting", 1) == 0
