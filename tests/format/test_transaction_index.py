"""The transaction index: what Kafka wrote, what its consumers saw, and everything else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import CorruptIndex
from kafkalog_spark.format.transaction_index import (
    AbortedTransaction,
    TransactionIndexWriter,
    collect_aborted,
    format_transaction,
    load_transaction_index,
    parse_transaction_index,
)
from tests import golden_data
from tests.log.helpers.damaged_bytes import damaged

GOLDEN_FILES = sorted(golden_data.GOLDEN.glob("*/*/*/*.txnindex"))
TRANSACTIONS = [
    AbortedTransaction(7, 100, 110, 105),
    AbortedTransaction(8, 104, 120, 112),
    AbortedTransaction(7, 112, 130, 131),
]
DATA = b"".join(map(format_transaction, TRANSACTIONS))


def test_golden_transaction_indexes_exist():
    assert len(GOLDEN_FILES) >= 2


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: f"{path.parts[-3]}/{path.parts[-2]}")
def test_transaction_index_round_trips_byte_for_byte(path, tmp_path):
    base = int(path.stem)
    transactions = load_transaction_index(path, base)
    assert b"".join(map(format_transaction, transactions)) == path.read_bytes()
    with TransactionIndexWriter(tmp_path / path.name, base) as writer:
        for transaction in transactions:
            writer.append(transaction)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("log", golden_data.golden_logs(topic="transactions", crashed=False), ids=str)
def test_golden_entries_equal_the_aborted_transactions_in_the_log(log):
    """Every entry's last offset is a control batch of its producer; what it covers is what consumers did not see."""
    batches = [batch for path in log.segments() for batch in log.batches(path)]
    transactions = [
        transaction for path in log.segments() for transaction in load_transaction_index(path.with_suffix(".txnindex"))
    ]
    assert transactions
    markers = {batch.last_offset: batch for batch in batches if batch.control}
    for transaction in transactions:
        assert markers[transaction.last_offset].producer_id == transaction.producer_id
    hidden = {
        offset
        for batch in batches
        if batch.transactional and not batch.control
        for offset in range(batch.base_offset, batch.last_offset + 1)
        if any(
            t.producer_id == batch.producer_id and t.first_offset <= batch.base_offset <= t.last_offset
            for t in transactions
        )
    }
    assert hidden == {row["offset"] for row in log.records() if not row["committed"]}


def test_collect_returns_the_transactions_that_overlap_the_fetch():
    assert collect_aborted(TRANSACTIONS, 0, 200) == (TRANSACTIONS, False)
    assert collect_aborted(TRANSACTIONS, 111, 200).transactions == TRANSACTIONS[1:]
    assert collect_aborted(TRANSACTIONS, 110, 200).transactions == TRANSACTIONS
    assert collect_aborted(TRANSACTIONS, 0, 104).transactions == TRANSACTIONS[:1]
    assert collect_aborted(TRANSACTIONS, 0, 100).transactions == []
    assert collect_aborted(TRANSACTIONS, 131, 200).transactions == []


def test_collect_stops_at_the_entry_whose_lso_reaches_the_upper_bound():
    assert collect_aborted(TRANSACTIONS, 0, 105) == (TRANSACTIONS[:1], True)
    assert collect_aborted(TRANSACTIONS, 0, 112) == (TRANSACTIONS[:2], True)
    assert collect_aborted(TRANSACTIONS, 0, 113) == (TRANSACTIONS, True)
    assert collect_aborted(TRANSACTIONS, 0, 132) == (TRANSACTIONS, False)


@pytest.mark.parametrize(
    ("data", "position", "text"),
    [
        (DATA[:-1], 68, "33 of 34 bytes"),
        (DATA[:34] + b"\0\1" + DATA[36:], 34, "version 1"),
        (DATA[:34] + DATA[:34], 34, "last offset 110 is not above 110"),
        (format_transaction(AbortedTransaction(7, 5, 9, 5)), 0, "below the segment's base offset 10"),
        (format_transaction(AbortedTransaction(7, 50, 49, 5)), 0, "first offset 50"),
        (format_transaction(AbortedTransaction(7, -1, 49, 5)), 0, "first offset -1"),
        (format_transaction(AbortedTransaction(-1, 11, 49, 5)), 0, "producer id -1"),
        (bytes(34), 0, "last offset 0 is below"),
    ],
)
def test_damaged_index_is_an_error_with_its_position(data, position, text, tmp_path):
    path = tmp_path / "00000000000000000010.txnindex"
    path.write_bytes(data)
    with pytest.raises(CorruptIndex, match=text) as caught:
        load_transaction_index(path, 10)
    assert (caught.value.position, caught.value.path) == (position, str(path))


def test_transaction_may_start_in_an_earlier_segment():
    data = format_transaction(AbortedTransaction(7, 3, 49, 5))
    assert parse_transaction_index(data, 10) == [AbortedTransaction(7, 3, 49, 5)]


def test_any_damage_gives_entries_or_a_kafkalog_error():
    for what, data in damaged(DATA):
        try:
            found = parse_transaction_index(data, 10)
        except CorruptIndex:
            continue
        assert b"".join(map(format_transaction, found)) == data, what


@given(st.binary(max_size=150))
def test_any_bytes_give_entries_or_a_kafkalog_error(data):
    with contextlib.suppress(CorruptIndex):
        parse_transaction_index(data)


def test_missing_file_has_no_entries(tmp_path):
    assert load_transaction_index(tmp_path / "none") == []


def test_file_is_created_by_the_first_entry(tmp_path):
    path = tmp_path / "index"
    with TransactionIndexWriter(path, 100) as writer:
        writer.flush()
        assert (writer.entries, path.exists()) == (0, False)
        writer.append(TRANSACTIONS[0])
        assert path.read_bytes() == DATA[:34]


def test_last_offsets_must_increase(tmp_path):
    with TransactionIndexWriter(tmp_path / "index", 100) as writer:
        writer.append(TRANSACTIONS[1])
        for transaction in (TRANSACTIONS[0], TRANSACTIONS[1]):
            with pytest.raises(CorruptIndex, match="not above 120") as caught:
                writer.append(transaction)
            assert caught.value.offset == transaction.last_offset
        assert writer.transactions == [TRANSACTIONS[1]]


def test_append_continues_after_reopening(tmp_path):
    path = tmp_path / "index"
    with TransactionIndexWriter(path, 100) as writer:
        writer.append(TRANSACTIONS[0])
    with TransactionIndexWriter(path, 100) as writer:
        writer.append(TRANSACTIONS[1])
        writer.append(TRANSACTIONS[2])
        writer.flush()
    assert load_transaction_index(path) == TRANSACTIONS


def test_damaged_file_refuses_an_append(tmp_path):
    (tmp_path / "index").write_bytes(DATA[:40])
    with pytest.raises(CorruptIndex):
        TransactionIndexWriter(tmp_path / "index", 100)
