from __future__ import annotations

import dataclasses
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import InvalidRecord
from kafkalog_spark.format.layout import Codec, TimestampType
from kafkalog_spark.log.write.encoded_batch import EncodedBatch
from kafkalog_spark.log.write.record_encoder import BatchParams, RecordEncoder
from tests.golden_data import GoldenLog, golden_logs
from tests.log.helpers.encoded_batches import encode_batches, of_producer
from tests.log.helpers.plain_decoder import Batch, Record, decode_batches, decode_log, decode_records

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW = 1_700_000_000_000


def table(records: list[Record], *, offsets: bool = True) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "key": pa.array([r.key for r in records], pa.binary()),
        "value": pa.array([r.value for r in records], pa.binary()),
        "headers": pa.array([[{"key": k, "value": v} for k, v in r.headers] for r in records], HEADERS),
        "timestamp": pa.array([r.timestamp for r in records], pa.int64()),
    }
    if offsets:
        columns["offset"] = pa.array([r.offset for r in records], pa.int64())
    return pa.record_batch(columns)


def decoded(batches: list[EncodedBatch]) -> list[Record]:
    """The records, after comparing the facts of each batch with what the oracle reads from its bytes."""
    records: list[Record] = []
    for encoded in batches:
        (batch,) = decode_batches(encoded.data)
        header = encoded.header
        assert (
            header.base_offset, header.last_offset, header.max_timestamp, header.leader_epoch, header.record_count,
        ) == (
            batch.base_offset, batch.last_offset, batch.max_timestamp, batch.leader_epoch, len(batch.records),
        )  # fmt: skip
        records += batch.records
    return records


def encode(records: pa.RecordBatch | pa.Table, params: BatchParams | None = None, **more: Any) -> list[EncodedBatch]:
    return list(encode_batches(records, more.pop("next_offset", 0), params or BatchParams(), more.pop("now_ms", NOW)))


# ---- what Kafka wrote


def as_kafka_wrote(batch: Batch) -> BatchParams:
    append_time = bool(batch.attributes & 0x08)
    return BatchParams(
        codec=Codec.NONE,
        batch_size=2**20 + 12,
        timestamp_type=TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME,
        log_append_time=batch.max_timestamp if append_time else None,
        leader_epoch=batch.leader_epoch,
    )


@pytest.mark.parametrize(
    "log",
    [
        log
        for topic in ("codec-none", "headers", "out-of-order", "segments", "idempotent", "transactions", "groups")
        for log in golden_logs(topic=topic, crashed=False)
    ],
    ids=str,
)
def test_encoding_the_records_of_an_uncompressed_golden_batch_gives_its_bytes(log: GoldenLog) -> None:
    compared = 0
    for path in log.segments():
        data = path.read_bytes()
        for batch in decode_log(path):
            if batch.codec == 0 and not batch.is_control:
                (ours,) = encode(table(list(batch.records)), as_kafka_wrote(batch), next_offset=batch.base_offset)
                if batch.producer_id >= 0:
                    ours = of_producer(
                        ours, batch.producer_id, batch.producer_epoch, batch.base_sequence,
                        transactional=batch.is_transactional,
                    )  # fmt: skip
                assert ours.data == data[batch.position : batch.position + batch.size]
                compared += 1
    assert compared > 0 or log.name in ("segments-1", "segments-2")  # written with lz4 and zstd


def test_log_append_time_applies_to_every_record_and_keeps_the_base_timestamp() -> None:
    params = BatchParams(timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=NOW)
    (batch,) = encode(pa.record_batch({"value": [b"a", b"b"], "timestamp": [1000, 7]}), params)
    (read,) = decode_batches(batch.data)
    assert [(r.timestamp, r.timestamp_type) for r in read.records] == [(NOW, 1), (NOW, 1)]
    assert (batch.header.max_timestamp, read.base_timestamp) == (NOW, 1000)


# ---- round trips

binary = st.none() | st.binary(max_size=40) | st.integers(60, 70).map(bytes) | st.just(bytes(9000))
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=4)
timestamps = st.integers(-1, 2**53) | st.integers(NOW - 100, NOW + 100)


@st.composite
def random_records(draw: st.DrawFn) -> list[Record]:
    rows = draw(st.lists(st.tuples(timestamps, binary, binary, headers, st.integers(1, 2**33)), max_size=30))
    offset, records = draw(st.integers(0, 2**40)), []
    for timestamp, key, value, header, step in rows:
        offset += step if step % 3 == 0 else 1
        records.append(Record(offset, timestamp, 0, key, value, tuple(header)))
    return records


@given(
    records=random_records(),
    codec=st.sampled_from(list(Codec)),
    batch_size=st.sampled_from([62, 200, 1000, 65536]),
    cut=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    chunk=st.none() | st.integers(1, 7),
)
def test_encoded_records_round_trip(
    records: list[Record], codec: Codec, batch_size: int, cut: tuple[int, int], chunk: int | None
) -> None:
    """Keys, values and headers null, empty and long; falling timestamps; gaps; Arrow slices and chunks; every codec."""
    columns = table(records).slice(cut[0], max(0, len(records) - sum(cut)))
    wanted = records[cut[0] : cut[0] + columns.num_rows]
    given_to_it: Any = columns
    if chunk:
        given_to_it = pa.Table.from_batches(
            [columns.slice(at, chunk) for at in range(0, columns.num_rows, chunk)], columns.schema
        )
    batches = encode(given_to_it, BatchParams(codec=codec, batch_size=batch_size))
    assert decoded(batches) == wanted
    for batch in batches:
        assert batch.header.last_offset - batch.header.base_offset < 2**31


@given(random_records())
def test_missing_offsets_are_consecutive(records: list[Record]) -> None:
    result = decoded(encode(table(records, offsets=False), BatchParams(batch_size=300), next_offset=2**35))
    assert result == [dataclasses.replace(r, offset=2**35 + i) for i, r in enumerate(records)]


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)  # fmt: skip
def test_every_arrow_binary_and_string_type_is_accepted(kind: pa.DataType) -> None:
    values = ["skipped", "a", None, "", "é" * 40]
    column = pa.array(values, pa.string()).cast(kind) if not pa.types.is_dictionary(kind) else pa.array(values, kind)
    records = decoded(encode(pa.record_batch({"value": column, "key": column}).slice(1)))
    expected = [None if v is None else v.encode() for v in values[1:]]
    assert [r.value for r in records] == expected
    assert [r.key for r in records] == expected


def test_null_and_missing_columns_are_null() -> None:
    records = decoded(encode(pa.record_batch({"value": pa.nulls(3), "headers": pa.nulls(3, HEADERS)})))
    assert records == [Record(i, NOW, 0, None, None, ()) for i in range(3)]


def test_headers_under_a_null_list_are_ignored() -> None:
    structs = pa.array(
        [{"key": "a", "value": b"1"}, {"key": None, "value": None}, {"key": "b", "value": None}], HEADERS.value_type
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), structs, mask=pa.array([False, True, False]))
    records = decoded(encode(pa.record_batch({"value": pa.nulls(3), "headers": lists})))
    assert [r.headers for r in records] == [(("a", b"1"),), (), (("b", None),)]


def test_headers_in_large_lists_and_slices_are_accepted() -> None:
    rows = [[{"key": "no", "value": b"no"}], [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, []]
    column = pa.array(rows, HEADERS).cast(pa.large_list(HEADERS.value_type)).slice(1)
    records = decoded(encode(pa.record_batch({"value": pa.nulls(3), "headers": column})))
    assert [r.headers for r in records] == [(("a", b"1"), ("b", None)), (), ()]


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("s", 5, 5000), ("ms", 5001, 5001), ("us", 5001999, 5001), ("ns", 5001999999, 5001),
        ("us", -1, -1),  # rounds down, as Spark does, to the -1 ms that stands for no timestamp
    ],
)  # fmt: skip
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_timestamps_of_any_unit_and_zone_become_milliseconds(
    unit: str, value: int, expected: int, zone: str | None
) -> None:
    column = pa.array([0, value, None], pa.timestamp(unit, zone)).slice(1)
    records = decoded(encode(pa.record_batch({"value": pa.nulls(2), "timestamp": column})))
    assert [r.timestamp for r in records] == [expected, NOW]


# ---- where batches are cut


def sizes(batches: list[EncodedBatch]) -> list[int]:
    return [len(batch.data) for batch in batches]


def test_batch_is_filled_up_to_batch_size_including_its_header() -> None:
    # a record here: length, attributes, two deltas, no key, value length, 10 bytes, no headers = 17 bytes
    records = pa.record_batch({"value": [b"v" * 10] * 4})
    assert sizes(encode(records, BatchParams(batch_size=61 + 3 * 17))) == [61 + 3 * 17, 61 + 17]
    assert sizes(encode(records, BatchParams(batch_size=61 + 3 * 17 - 1))) == [61 + 2 * 17, 61 + 2 * 17]


def test_record_larger_than_batch_size_gets_its_own_batch() -> None:
    big = bytes(3_000_000)
    records = pa.record_batch({"value": [b"a", b"b", big, b"c", big, big]})
    params = BatchParams(batch_size=1000, max_batch_bytes=4_000_000)
    batches = encode(records, params)
    assert [b.header.record_count for b in batches] == [2, 1, 1, 1, 1]
    assert [r.value for r in decoded(batches)] == [b"a", b"b", big, b"c", big, big]


def test_small_batches_and_a_batch_as_large_as_the_buffer_are_all_encoded() -> None:
    """More batches than one call of the kernel tells about, and more bytes than it has room for."""
    records = pa.record_batch({"value": [b"%d" % i for i in range(5000)]})
    for size in (62, 1 << 20):
        batches = encode(records, BatchParams(batch_size=size))
        assert [r.value for r in decoded(batches)] == [b"%d" % i for i in range(5000)]
    large = pa.record_batch({"value": [bytes(1000)] * 4000})
    # 1009 bytes a record while the offset delta takes one byte (64 records), then 1010: 61 + 64 * 1009 + 974 * 1010
    assert [b.header.record_count for b in encode(large, BatchParams(batch_size=1 << 20))] == [1038, 1038, 1038, 886]


def test_gap_too_large_for_an_offset_delta_starts_a_new_batch() -> None:
    offsets = [5, 5 + 2**31 - 1, 5 + 2**31, 2**40]
    batches = encode(pa.record_batch({"value": pa.nulls(4), "offset": offsets}))
    assert [(b.header.base_offset, b.header.last_offset) for b in batches] == [
        (5, 2**31 + 4),
        (2**31 + 5, 2**31 + 5),
        (2**40, 2**40),
    ]


def test_small_chunks_of_a_table_share_batches() -> None:
    chunks = pa.Table.from_batches([pa.record_batch({"value": [b"%d" % i]}) for i in range(100)])
    assert [b.header.record_count for b in encode(chunks)] == [100]


def test_large_chunk_of_a_table_keeps_its_own_batches() -> None:
    sizes = [1, 1, 1000, 2, 2, 500]
    chunks = pa.Table.from_batches([pa.record_batch({"value": [b"12345678"] * size}) for size in sizes])
    # 8 batches of 1000 bytes are large; about 62 records of 15 or 16 bytes fit one
    counts = [b.header.record_count for b in encode(chunks, BatchParams(batch_size=1000))]
    ends = {sum(counts[:n]) for n in range(len(counts) + 1)}
    assert {2, 1002} <= ends, "small chunks are joined, but not with a large one"
    assert 1004 not in ends, "500 records are no large chunk"
    assert sum(counts) == sum(sizes)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_buffers_are_reusable_after_encoding(codec: Codec) -> None:
    params = BatchParams(codec=codec, batch_size=2000)
    encoder = RecordEncoder(params)
    for values in ([b"first"] * 900, [b"x" * (3 << 20)] if codec else [b"x" * 900_000], [b"third"] * 900):
        records = pa.record_batch({"value": values})
        runs = b"".join(bytes(run.data) for run in encoder.runs(records, 7, 5))
        assert runs == b"".join(batch.data for batch in encode_batches(records, 7, params, 5))


def test_batch_that_compression_would_enlarge_is_stored_uncompressed() -> None:
    noise = random.Random(3).randbytes(900)
    params = BatchParams(codec=Codec.GZIP, batch_size=1000, max_batch_bytes=1000)
    (batch,) = encode(pa.record_batch({"value": [noise, b"%d" % 1]}), dataclasses.replace(params, codec=Codec.NONE))
    exact = len(batch.data)
    (batch,) = encode(
        pa.record_batch({"value": [noise, b"1"]}), dataclasses.replace(params, batch_size=exact, max_batch_bytes=exact)
    )
    (read,) = decode_batches(batch.data)
    assert read.codec == Codec.NONE
    assert [r.value for r in read.records] == [noise, b"1"]


def test_max_batch_bytes_bounds_the_compressed_batch() -> None:
    records = pa.record_batch({"value": [bytes(50_000)]})
    params = BatchParams(batch_size=1000, max_batch_bytes=1000)
    assert len(encode(records, dataclasses.replace(params, codec=Codec.ZSTD))) == 1
    with pytest.raises(
        InvalidRecord, match=r"1 record takes 500\d\d bytes in the log, at most 1000 are allowed"
    ) as caught:
        encode(records, params, next_offset=7)
    assert caught.value.offset == 7


# ---- what is refused


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"batch_size": 61}, "batch_size must be between 62"),
        ({"max_batch_bytes": 2**31}, "max_batch_bytes must be between"),
        ({"batch_size": 2000, "max_batch_bytes": 1000}, "larger than max_batch_bytes"),
        ({"codec": Codec.ZSTD, "level": 23}, "zstd levels go from"),
        ({"timestamp_type": TimestampType.NO_TIMESTAMP_TYPE}, "CREATE_TIME or LOG_APPEND_TIME"),
        ({"timestamp_type": TimestampType.LOG_APPEND_TIME}, "log_append_time is required"),
        ({"log_append_time": 5}, "log_append_time is required"),
    ],
)
def test_invalid_parameters_are_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        BatchParams(**wrong)


@pytest.mark.parametrize(
    ("columns", "text", "offset"),
    [
        ({"key": [b"a"]}, "value is required", None),
        ({"value": [b"a"], "topic": ["t"]}, "columns are", None),
        ({"value": [1]}, "column value of type int64", None),
        ({"value": [b"a", b"b"], "offset": [10, 10]}, "row 1 cannot be encoded: its offset does not increase", 11),
        ({"value": [b"a"], "offset": [9]}, "row 0 cannot be encoded: its offset does not increase", 10),
        ({"value": [b"a"], "offset": pa.array([None], pa.int64())}, "1 nulls", None),
        ({"value": [b"a", b"b"], "timestamp": [-1, -2]}, "row 1 .* before 1970", 11),
        ({"value": [b"a"], "timestamp": ["now"]}, "expected a timestamp", None),
        ({"value": [b"a"], "headers": [["x"]]}, "expected list<struct", None),
        ({"value": [b"a"], "headers": pa.array([[{"key": None, "value": b""}]], HEADERS)}, "a header has no key", 10),
        ({"value": [b"a"], "headers": pa.array([[None]], HEADERS)}, "a header has no key", 10),
    ],
)  # fmt: skip
def test_unencodable_records_are_refused_with_row_and_offset(
    columns: dict[str, Any], text: str, offset: int | None
) -> None:
    with pytest.raises(InvalidRecord, match=text) as caught:
        encode(pa.record_batch(columns), next_offset=10)
    assert caught.value.offset == offset


def test_record_without_a_timestamp_is_refused() -> None:
    for column in (pa.nulls(2, pa.int64()), pa.array([5, None])):
        with pytest.raises(InvalidRecord, match="now_ms is not set"):
            list(encode_batches(pa.record_batch({"value": [b"a", b"b"], "timestamp": column}), 0, BatchParams()))


def test_no_rows_give_no_batch() -> None:
    assert encode(table([])) == []
    assert encode(pa.table({"value": pa.array([], pa.binary())}), now_ms=None) == []


def test_row_of_a_bad_record_counts_from_the_beginning_of_the_table() -> None:
    good = pa.record_batch({"value": [bytes(5 << 20)], "timestamp": [1]})
    bad = pa.record_batch({"value": [b"", bytes(5 << 20)], "timestamp": [1, -5]})
    with pytest.raises(InvalidRecord, match="row 2 cannot"):
        encode(pa.Table.from_batches([good, bad]), BatchParams(max_batch_bytes=10 << 20))


def test_encoded_records_of_every_codec_are_decoded() -> None:
    """Guards the round trips above against a codec that is never used."""
    for codec in Codec:
        (batch,) = encode(pa.record_batch({"value": [b"x" * 500]}), BatchParams(codec=codec))
        assert decode_records(batch.data)[0].value == b"x" * 500
        assert next(decode_batches(batch.data)).codec == codec
