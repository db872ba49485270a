"""Records of __transaction_state: those of a real Kafka, damaged ones, and the transitions of states in them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_broker.coordinator.record_batch import decode_batches, encode_batch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.transactions.transaction_metadata import TopicPartition, TransactionMetadata
from kafkalog_broker.transactions.transaction_records import decode_key, decode_value, encode_key, encode_value, load
from kafkalog_broker.transactions.transaction_state import VALID_PREVIOUS_STATES, TransactionState
from kafkalog_spark.errors import KafkalogError
from tests.golden_data import KAFKA_4_3, data_dir

GOLDEN = [
    record
    for path in sorted(data_dir(KAFKA_4_3).glob("__transaction_state-*/*.log"))
    for batch in decode_batches([path.read_bytes()])
    for record in batch.records
]
IDS = st.integers(0, 2**63 - 1)
METADATA = st.builds(
    TransactionMetadata,
    transactional_id=st.text(max_size=20), producer_id=IDS, producer_epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(1, 2**31 - 1), state=st.sampled_from(list(VALID_PREVIOUS_STATES)),
    partitions=st.frozensets(st.builds(TopicPartition, st.text("abc._-", min_size=1), st.integers(0, 2**31 - 1))),
    start_ms=st.integers(-1, 2**62), last_update_ms=IDS, previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1), client_version=st.sampled_from([0, 1, 2]),
)  # fmt: skip


def test_records_of_kafka_are_encoded_to_the_same_bytes():
    assert len(GOLDEN) == 185
    for key, value in GOLDEN:
        assert value is not None
        transactional_id = decode_key(key)
        assert encode_key(transactional_id) == key
        metadata = decode_value(transactional_id, value)
        written = encode_value(metadata)
        if written != value:  # the partitions of a hash table, in its order
            assert len(metadata.partitions) > 1
            assert sorted(written) == sorted(value)
            assert decode_value(transactional_id, written) == metadata


def test_transitions_in_the_log_of_kafka_are_valid():
    known: dict[str, TransactionState] = {}
    for key, value in GOLDEN:
        assert value is not None
        metadata = decode_value(decode_key(key), value)
        before = known.get(metadata.transactional_id, TransactionState.EMPTY)
        assert before in VALID_PREVIOUS_STATES[metadata.state]
        known[metadata.transactional_id] = metadata.state


@given(METADATA)
def test_encoded_metadata_is_decoded_to_the_same(metadata):
    expected = replace(metadata, last_producer_epoch=-1)
    if metadata.state is TransactionState.EMPTY:
        expected = replace(expected, partitions=frozenset())
    assert decode_value(metadata.transactional_id, encode_value(metadata)) == expected


@given(METADATA, st.data())
def test_damaged_value_raises_a_kafkalog_error(metadata, data):
    value = bytearray(encode_value(metadata))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(value[: data.draw(st.integers(0, len(value)))])
    try:
        decode_value("t", cut)
    except KafkalogError:
        pass


def test_value_of_version_0_is_decoded():
    # producer id 5, epoch 2, timeout 1000, Ongoing, {"orders": [1]}, last update 9, start 8
    value = bytes.fromhex("0000 0000000000000005 0002 000003e8 01 00000001 0006") + b"orders"
    value += bytes.fromhex("00000001 00000001 0000000000000009 0000000000000008")
    found = decode_value("t", value)
    assert (found.producer_id, found.producer_epoch, found.state) == (5, 2, TransactionState.ONGOING)
    assert found.partitions == {TopicPartition("orders", 1)}
    assert (found.last_update_ms, found.start_ms, found.previous_producer_id) == (9, 8, -1)


@pytest.mark.parametrize(
    ("value", "why"),
    [("0002" + "00" * 40, "version 2"), ("0001" + "00" * 14 + "09" + "00" * 20, "state 9"), ("0001", "it ends early")],
)
def test_error_names_what_is_unknown(value, why):
    with pytest.raises(KafkalogError, match=why):
        decode_value("the id", bytes.fromhex(value))


def test_load_skips_unreadable_records(caplog):
    good = TransactionMetadata(transactional_id="good", producer_id=1, producer_epoch=0, timeout_ms=1, last_update_ms=2)
    records = [
        (encode_key("bad"), b"\0\7"),
        (encode_key("good"), encode_value(good)),
        (b"\0\5what is this", b"?"),
        (encode_key("gone"), encode_value(good)),
        (encode_key("gone"), None),
    ]
    assert load(decode_batches([encode_batch(records, 0)])) == {"good": good}
    assert "'bad'" in caplog.text
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


def test_invalid_transition_is_refused() -> None:
    """Also where Python runs without asserts: a log may say Dead, of which Kafka makes nothing either."""
    dead = TransactionMetadata(
        transactional_id="t", producer_id=1, producer_epoch=0, timeout_ms=1, last_update_ms=0,
        state=TransactionState.DEAD,
    )  # fmt: skip
    with pytest.raises(BrokerError, match="Ongoing after Dead") as refused:
        dead.with_partitions([TopicPartition("orders", 0)], 0, 1)
    assert refused.value.code is ErrorCode.unknown_server_error
