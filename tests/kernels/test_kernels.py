"""Building blocks of kernels, compared with plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from kafkalog_spark.format.batch_header import parse_header
from kafkalog_spark.format.layout import HeaderColumn
from kafkalog_spark.kernels import primitives
from kafkalog_spark.kernels.primitives import CRC32_TABLE, CRC32C_TABLE, INVALID_POSITION, crc_of
from kafkalog_spark.kernels.record_end import BAD_RECORD_LENGTH, TRUNCATED, end_of_records
from kafkalog_spark.kernels.rows import passes_filter
from kafkalog_spark.kernels.sweep import SMALL_BATCH, SweepStatus, sweep
from tests.golden_data import golden_logs
from tests.log.helpers.batch_builder import V2Record, batch, encoded, varint

INT64 = st.integers(-(2**63), 2**63 - 1)


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


@njit
def read_varint(buffer, at, end):  # type: ignore[no-untyped-def]
    return primitives.varint(buffer, at, end)


@given(INT64, st.binary(max_size=4))
def test_varint_is_read_as_kafka_writes_it(number: int, behind: bytes) -> None:
    data = varint(number)
    assert read_varint(array(b"xy" + data + behind), 2, 2 + len(data) + len(behind)) == (number, 2 + len(data))


@given(INT64)
def test_varint_past_the_end_is_reported_as_too_far(number: int) -> None:
    data = varint(number)
    for end in range(len(data)):
        assert read_varint(array(data + b"\x00"), 0, end)[1] == INVALID_POSITION


def test_varint_of_more_than_ten_bytes_is_reported_as_too_far() -> None:
    assert read_varint(array(b"\xff" * 20), 0, 20)[1] == INVALID_POSITION


@njit
def read_integers(buffer, at):  # type: ignore[no-untyped-def]
    return (
        primitives.read_i64(buffer, at),
        primitives.read_u32(buffer, at),
        primitives.read_i32(buffer, at),
        primitives.read_i16(buffer, at),
    )


@given(st.binary(min_size=8, max_size=8))
def test_integers_are_big_endian(data: bytes) -> None:
    read = read_integers(array(b"\x01" + data), 1)
    sizes = ((8, True), (4, False), (4, True), (2, True))
    assert read == tuple(int.from_bytes(data[:size], "big", signed=signed) for size, signed in sizes)


@given(st.binary(max_size=100), st.integers(0, 10))
def test_crc32_and_crc32c_equal_the_libraries(data: bytes, start: int) -> None:
    assert crc_of(array(data), min(start, len(data)), len(data), CRC32C_TABLE) == crc32c.crc32c(data[start:])
    assert crc_of(array(data), min(start, len(data)), len(data), CRC32_TABLE) == zlib.crc32(data[start:])


@njit
def member_of(values, value):  # type: ignore[no-untyped-def]
    return passes_filter(values, value)


@given(st.lists(INT64, max_size=20), INT64)
def test_offset_is_in_a_sorted_list_or_any_without_a_list(values: list[int], value: int) -> None:
    ordered = np.array(sorted(values), np.int64)
    assert member_of(ordered, value) == (not values or value in values)
    assert all(member_of(ordered, member) for member in values)


def swept(data: bytes, rows: int = 1000, start: int = 0) -> tuple[np.ndarray, int, SweepStatus]:
    table = np.zeros((rows, len(HeaderColumn)), np.int64)
    filled, at, status = sweep(array(data), start, len(data), table, CRC32C_TABLE, CRC32_TABLE)
    return table[:filled], at, SweepStatus(status)


@pytest.mark.parametrize("golden_log", golden_logs(crashed=False), ids=str)
def test_header_sweep_equals_the_plain_decoder(golden_log: object) -> None:
    for path in golden_log.segments():  # type: ignore[attr-defined]
        data = path.read_bytes()
        table, at, status = swept(data)
        assert (at, status) == (len(data), SweepStatus.OUT_OF_BYTES)
        position = 0
        for row in table.tolist():
            header = parse_header(data, position, position)
            assert row[: len(header)] == list(header)  # the columns of H have the order of the header's fields
            assert row[HeaderColumn.CRC_SEEN] == (header.size <= SMALL_BATCH)
            position = header.end
        assert position == len(data)


SMALL, LARGE = (batch(at, [V2Record(at, 5, None, b"v" * size)]) for at, size in ((0, 10), (1, 2 * SMALL_BATCH)))


def test_header_sweep_stops_at_a_batch_start_with_a_reason() -> None:
    data = SMALL + LARGE
    for end in range(len(data)):
        rows, at, status = swept(data[:end])
        assert status == SweepStatus.OUT_OF_BYTES
        assert (len(rows), at) == ((1, len(SMALL)) if end >= len(SMALL) else (0, 0))
    assert swept(data, rows=1)[1:] == (len(SMALL), SweepStatus.TABLE_FULL)
    assert swept(data, rows=1, start=len(SMALL))[1:] == (len(data), SweepStatus.OUT_OF_BYTES)
    assert swept(SMALL + bytes(17))[1:] == (len(SMALL), SweepStatus.BAD_LENGTH)
    assert swept(SMALL + bytes(16) + b"\x03")[1:] == (len(SMALL), SweepStatus.BAD_MAGIC)
    assert swept(SMALL + SMALL[:-1] + b"!")[1:] == (len(SMALL), SweepStatus.BAD_CRC)


def test_header_sweep_leaves_the_crc_of_large_batches_to_the_caller() -> None:
    table, _, _ = swept(LARGE[:-1] + b"!")
    assert table[:, HeaderColumn.CRC_SEEN].tolist() == [0]


def test_end_of_records_is_found_by_their_lengths() -> None:
    records = [V2Record(at, 5, b"k", b"v" * at) for at in range(4)]
    ends = [len(encoded(records[:count], 0, 5)) for count in range(5)]
    payload = array(encoded(records, 0, 5))
    assert [end_of_records(payload, 0, len(payload), count) for count in range(5)] == ends
    assert end_of_records(payload, 0, len(payload), 5) == TRUNCATED
    assert end_of_records(payload, 0, ends[4] - 1, 4) == TRUNCATED
    assert end_of_records(array(varint(-1)), 0, 1, 1) == BAD_RECORD_LENGTH


@pytest.mark.end_to_end
def test_cached_kernel_is_loaded_without_numbas_typing_rules(tmp_path: Path) -> None:
    """Numba's lowering rules are 70 modules, which every Python worker of Spark would load before its first row."""
    code = (
        "import sys\n"
        "import numpy as np\n"
        "from kafkalog_spark.kernels.record_end import end_of_records\n"
        "payload = np.zeros(8, np.uint8)\n"
        "payload.flags.writeable = False\n"
        "print(end_of_records(payload, 0, 0, 0), 'numba.np.arrayobj' in sys.modules)\n"
    )
    after = (
        "import numpy as np, numba\n"
        "print(numba.njit(lambda n: np.arange(n)[2:].sum())(4))\n"  # others compile in the same process
    )
    # a processor for which nobody has compiled it before
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": "generic"}
    for compiled in (True, False):
        done = subprocess.run(
            [sys.executable, "-c", code + after],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        assert done.stdout == f"0 {compiled}\n5\n"
