"""Messages of internal topics are written and read by Kafka's definitions, in every version."""

from __future__ import annotations

import contextlib
import linecache
import re
import struct
import traceback
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_spark.errors import CorruptLog, InvalidRecord, UnsupportedFormat
from kafkalog_spark.format.messages import reader
from kafkalog_spark.format.messages.definitions import (
    Field,
    Struct,
    definition_locations,
    read_definition,
    struct_of,
    versions,
)
from kafkalog_spark.format.messages.internal import Message, decode_key, message
from kafkalog_spark.format.messages.wire import (
    Malformed,
    compact_string,
    read_compact_string,
    read_tagged_fields,
    read_unsigned_varint,
)
from tests.searches import examples

INTERNAL = [location for location in definition_locations() if location.type not in ("request", "response", "header")]
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def values_of(message: Struct) -> st.SearchStrategy[tuple[Any, ...]]:
    """Tuples of a struct; the default for fields that the version does not have."""
    return st.tuples(*(_field(field) if field.is_present else st.just(field.default) for field in message.fields))


def _field(field: Field) -> st.SearchStrategy[Any]:
    if field.struct is not None:
        values: st.SearchStrategy[Any] = values_of(field.struct)
    elif field.max_value is not None:
        values = st.integers(0, field.max_value)
    elif field.type in INTEGERS:
        bits = INTEGERS[field.type]
        values = st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    elif field.type == "uuid":
        values = st.uuids().filter(lambda value: value.int != 0)
    else:
        values = {
            "string": st.text(max_size=20), "bytes": st.binary(max_size=20), "bool": st.booleans(),
            "uint16": st.integers(0, 2**16 - 1),
        }[field.type]  # fmt: skip
    if field.is_array:
        values = st.lists(values, max_size=6).map(tuple)
    return st.none() | values if field.is_nullable else values


@pytest.mark.parametrize("location", INTERNAL, ids=lambda location: location.name)
@settings(max_examples=examples(10))
@given(data=st.data())
def test_message_round_trips_and_damage_is_an_error(location: Any, data: st.DataObject) -> None:
    found = message(location.name)
    prefix, version = data.draw(st.sampled_from(sorted(found.version_by_prefix.items())))
    values = data.draw(values_of(struct_of(read_definition(location), version)))
    written = found.write[prefix](values)
    start = 0 if location.type == "metadata" else 2
    assert found.read[prefix](written, start) == (values, len(written))
    for end in range(start, len(written)):
        with pytest.raises(Malformed):
            found.read[prefix](written[:end], start)
    damaged = bytearray(written)
    for _ in range(3):
        if len(damaged) > start:
            damaged[data.draw(st.integers(start, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Malformed):
        found.read[prefix](bytes(damaged), start)


def test_every_definition_can_be_compiled_in_every_version() -> None:
    for location in INTERNAL:
        found = Message(location.name)
        assert list(found.version_by_prefix.values()) == list(versions(read_definition(location)))
        for prefix in found.version_by_prefix:
            assert callable(found.read[prefix])
            assert callable(found.write[prefix])


def test_field_missing_in_the_version_reads_as_its_default() -> None:
    value = message("OffsetCommitValue")
    oldest = value.decode(value.encode((5, 7, "m", 9, 11, UUID(int=1)), 0))
    assert oldest == (5, -1, "m", 9, -1, None)
    assert oldest._fields[-1] == "topic_id"


def test_defaults_of_tagged_fields_are_not_written() -> None:
    value = message("OffsetCommitValue")
    assert value.encode((5, 7, "m", 9, -1, None)).endswith(b"\0")
    assert value.encode((5, 7, "m", 9, -1, UUID(int=1))).endswith(b"\1\0\x10" + UUID(int=1).bytes)


def test_string_too_long_for_its_length_field_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="32768 bytes of text, at most 32767 fit"):
        message("OffsetCommitKey").encode(("g" * 32_768, "t", 0))


def test_unknown_types_and_versions_are_distinguished_from_damage() -> None:
    assert decode_key("__consumer_offsets", b"\x01\x00") is None
    with pytest.raises(UnsupportedFormat, match="OffsetCommitValue of version 5, expected 0 to 4"):
        message("OffsetCommitValue").decode(b"\0\5")
    with pytest.raises(CorruptLog, match="a key of __consumer_offsets: it ends early, at byte 1 of 1"):
        decode_key("__consumer_offsets", b"\0")
    assert decode_key("__consumer_offsets", b"\0\2\0\1g") == (2, ("g",))


def test_tags_must_increase() -> None:
    value = message("OffsetCommitValue").encode((5, 7, "m", 9, -1, None))
    with pytest.raises(CorruptLog, match="tag 3 follows tag 3"):
        message("OffsetCommitValue").decode(value[:-1] + b"\2\3\0\3\0")


@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_every_negative_length_in_a_record_is_null_as_in_kafka(length: int) -> None:
    data = bytes(4) + struct.pack(">i", length)
    assert message("ConsumerProtocolAssignment").read[0](data, 0) == (((), None), 8)
    with pytest.raises(Malformed, match="the array assigned_partitions is null"):
        message("ConsumerProtocolAssignment").read[0](struct.pack(">i", length), 0)


def test_traceback_shows_the_line_of_the_generated_reader() -> None:
    try:
        message("OffsetCommitValue").write[4]((1, "no number", "m", 9, -1, None))
    except struct.error as error:
        text = "".join(traceback.format_exception(error))
    assert re.search(r'File "<kafkalog: writer, OffsetCommitValue version 4>", line 3, in write\n +out \+= pack', text)


def test_primitive_fields_are_read_without_a_definition() -> None:
    assert read_compact_string(compact_string("täglich") + b"more", 0) == ("täglich", 9)
    assert read_unsigned_varint(b"\x80\x01", 0) == (128, 2)
    assert read_tagged_fields(b"\2\0\1a\5\0", 0) == ({0: b"a", 5: b""}, 6)
    for data, why in (
        (b"\0", "null"),
        (b"\3a", "a string of 2 bytes, but only 1 bytes are left"),
        (b"\2\xff", "not UTF-8"),
    ):
        with pytest.raises(Malformed, match=why):
            read_compact_string(data, 0)
    for data, why in ((b"\1", "ends early"), (b"\1\0\2a", "tagged field 0 of 2 bytes, but only 1 bytes are left")):
        with pytest.raises(Malformed, match=why):
            read_tagged_fields(data, 0)


def test_the_example_in_the_docstring_of_the_reader_is_the_generated_source() -> None:
    key = Message("OffsetCommitKey")
    assert key.read[max(key.version_by_prefix)] is not None
    lines = linecache.getlines("<kafkalog: reader, OffsetCommitKey version 0>")
    assert lines
    assert "".join(f"    {line}" for line in lines) in str(reader.__doc__)
