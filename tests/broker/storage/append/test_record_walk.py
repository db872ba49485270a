from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_broker.storage.append import kernel_loading, record_walk
from kafkalog_broker.storage.append.record_walk import RecordFacts, find_timestamp, walk_records
from kafkalog_spark.errors import CorruptBatch
from tests.log.helpers.batch_builder import V2Record, encoded, varint
from tests.searches import examples

BASE = 1_700_000_000_000
maybe_bytes = st.none() | st.binary(max_size=5)
headers = st.lists(st.tuples(st.binary(max_size=3), maybe_bytes), max_size=2).map(tuple)
records = st.lists(
    st.builds(
        V2Record,
        offset=st.integers(0, 300),
        timestamp=st.integers(BASE - 1000, BASE + 1000) | st.just(-1),
        key=maybe_bytes,
        value=maybe_bytes,
        headers=headers,
    ),
    min_size=1,
    max_size=12,
)


@pytest.fixture(params=["plain", "compiled"])
def walk(request, monkeypatch):
    """Run the test with the compiled and with the Python record walk, on batches of any size."""
    kernel_loading.load_kernel()
    monkeypatch.setattr(record_walk, "PLAIN_RECORDS", 10**9 if request.param == "plain" else -1)
    return walk_records


def both(data, count, base=BASE):
    """Return the result of each walk: the facts, or the text of its error."""
    kernel_loading.load_kernel()
    answers = []
    for limit in (10**9, -1):
        original, record_walk.PLAIN_RECORDS = record_walk.PLAIN_RECORDS, limit
        try:
            answers.append(walk_records(memoryview(data), count, base))
        except CorruptBatch as error:
            answers.append(error.what)  # type: ignore[arg-type]
        finally:
            record_walk.PLAIN_RECORDS = original
    return answers


def test_record_walk_returns_the_facts_of_a_batch(walk):
    rows = [
        V2Record(0, BASE + 5, b"k", b"v"),
        V2Record(1, BASE - 7, None, b"v"),
        V2Record(2, BASE + 9, None, None, ((b"h", None),)),
        V2Record(3, BASE + 9, b"", b""),
    ]
    data = encoded(rows, 0, BASE)
    assert walk(memoryview(data), 4, BASE) == RecordFacts(4, BASE + 9, BASE - 7, BASE + 9, 1, 2)


def test_walk_of_records_without_timestamps_has_an_empty_range_of_timestamps(walk):
    facts = walk(memoryview(encoded([V2Record(0, -1)] * 2, 0, -1)), 2, -1)
    assert facts.max_timestamp == -1
    assert facts.smallest_timestamp > facts.largest_timestamp


def test_record_walk_reports_offset_deltas_that_are_not_consecutive(walk):
    assert not walk(memoryview(encoded([V2Record(0, BASE), V2Record(2, BASE)], 0, BASE)), 2, BASE).in_sequence


@pytest.mark.parametrize(
    ("data", "count", "text"),
    [
        (encoded([V2Record(0, BASE)], 0, BASE), 2, "1 of 2 are whole"),
        (encoded([V2Record(0, BASE)] * 2, 0, BASE), 1, "bytes are left after the 1 records"),
        (varint(-3) + bytes(20), 1, "record 0 has a negative length"),
        (varint(100) + bytes(20), 1, "0 of 1 are whole"),
        (varint(7) + b"\0\0\0" + varint(-1) + varint(-1) + varint(-1) + b"\0", 1, "record 0 is malformed"),
        (varint(7) + b"\0\0\0" + varint(-1) + varint(-1) + varint(0) + b"\0", 1, "record 0 is malformed"),
        (varint(6) + b"\0\0\0" + varint(9) + varint(-1) + varint(0), 1, "record 0 is malformed"),
        (varint(12) + b"\0" + b"\xff" * 11, 1, "record 0 is malformed"),
        (b"", 3, "0 of 3 are whole"),
        (bytes(60), 2**31 - 1, "0 of 2147483647 are whole"),
    ],
)
def test_record_walk_refuses_malformed_records(walk, data, count, text):
    with pytest.raises(CorruptBatch, match=text):
        walk(memoryview(data), count, BASE)


@settings(max_examples=examples(150))
@given(rows=records, cut=st.integers(0, 400), count_off=st.integers(-1, 1), flip=st.integers(0, 4000))
def test_compiled_and_python_record_walk_agree_on_any_bytes(rows, cut, count_off, flip):
    data = bytearray(encoded(rows, 0, BASE))
    if flip < 8 * len(data):
        data[flip // 8] ^= 1 << flip % 8
    if cut < len(data):
        del data[cut:]
    plain, compiled = both(bytes(data), max(len(rows) + count_off, 1))
    assert plain == compiled


@pytest.mark.parametrize("plain", [True, False])
@given(rows=records, wanted=st.integers(BASE - 1100, BASE + 1100), lowest=st.integers(0, 300))
def test_find_timestamp_returns_the_first_record_at_or_after_the_timestamp(plain, rows, wanted, lowest):
    expected = next(
        ((row.timestamp, row.offset) for row in rows if row.timestamp >= wanted and row.offset >= lowest), None
    )
    kernel_loading.load_kernel()
    original, record_walk.PLAIN_RECORDS = record_walk.PLAIN_RECORDS, 10**9 if plain else -1
    try:
        found = find_timestamp(memoryview(encoded(rows, 0, BASE)), len(rows), BASE, wanted, lowest)
    finally:
        record_walk.PLAIN_RECORDS = original
    assert found == expected


def test_small_batch_is_validated_without_numba():
    code = (
        "import sys\n"
        "from tests.broker.storage.helpers.stored_logs import validated\n"
        "validated(4, codec=3)\n"
        "assert 'numba' not in sys.modules\n"
        "first = validated(5)\n"
        "from kafkalog_broker.storage.append import kernel_loading\n"
        "kernel_loading._loading.join()\n"
        "assert 'numba' in sys.modules\n"
        "assert validated(5) == first\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_compiled_record_walk_is_loaded_without_the_numba_compiler():
    """The compiler part of Numba takes memory, and its import would block the interpreter for other requests."""
    code = (
        "import sys\n"
        "from kafkalog_broker.storage.append.kernel_loading import load_kernel\n"
        "load_kernel()\n"
        "print('numba.np.arrayobj' in sys.modules)\n"
    )
    for _ in range(2):  # the first may have to compile it
        done = subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_llvm_is_loaded_from_the_library_of_llvmlite():
    code = (
        "import sys\n"
        "from kafkalog_broker.storage.append.kernel_loading import load_llvm\n"
        "load_llvm()\n"
        "def mapped():\n"
        "    return {line.split()[-1] for line in open('/proc/self/maps') if 'llvmlite' in line}\n"
        "before = mapped()\n"
        "assert 'llvmlite' not in sys.modules\n"
        "import llvmlite.binding\n"
        "assert len(before) == 1 and mapped() == before, (before, mapped())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
