"""Assignment of producer IDs: no ID is assigned twice, even after crashes and with damaged files."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from datetime import timedelta
from pathlib import Path

import pytest
from kio.schema.init_producer_id.v1.request import InitProducerIdRequest
from kio.static.primitive import i32Timedelta

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.storage.cluster_producer_ids import BLOCK, next_producer_id
from kafkalog_broker.storage.producer_ids import FILE, ID_GAP, MAX_CLUSTER_ID, ProducerIds, largest_cluster_id
from kafkalog_broker.testing import RunningBroker
from kafkalog_spark.format.producer_snapshot import (
    NO_TRANSACTION,
    ProducerEntry,
    read_producer_snapshot,
    write_producer_snapshot,
)
from tests.broker.net.helpers.served import produce_request
from tests.golden_data import GOLDEN
from tests.log.helpers.batch_builder import V2Record, batch


def test_producer_ids_are_assigned_from_0_upwards(tmp_path: Path) -> None:
    ids = ProducerIds([tmp_path])
    assert [ids.next() for _ in range(BLOCK + 2)] == list(range(BLOCK + 2))


def test_producer_id_block_is_on_disk_before_its_first_id_is_assigned(tmp_path: Path) -> None:
    ids = ProducerIds([tmp_path])
    assert not (tmp_path / FILE).exists()
    ids.next()
    assert (tmp_path / FILE).read_text() == f"0\n{BLOCK}\n"


def test_producer_ids_after_a_restart_begin_after_the_reserved_block(tmp_path: Path) -> None:
    given = ProducerIds([tmp_path]).next()
    assert ProducerIds([tmp_path]).next() == BLOCK > given


def test_producer_ids_begin_above_those_assigned_by_kafka(tmp_path: Path) -> None:
    golden = tmp_path / "data"
    shutil.copytree(GOLDEN / "kafka-4.3.0" / "data", golden)
    known = [entry.producer_id for path in golden.glob("*/*.snapshot") for entry in read_producer_snapshot(path)]
    assert max(known) >= 0
    assert ProducerIds([golden]).next() >= max(known) + ID_GAP
    assert ProducerIds([golden]).next() % BLOCK == 0


def test_damaged_producer_snapshot_counts_as_producer_ids_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{5:020d}.snapshot").write_bytes(b"damaged")
    assert ProducerIds([tmp_path]).next() >= ID_GAP
    assert "producer IDs in it are unknown" in caplog.text


@pytest.mark.parametrize("name", [f"orders-0/{5:020d}.snapshot", f"__cluster_metadata-0/{0:020d}.log"])
def test_producer_ids_are_not_assigned_while_ids_in_use_cannot_be_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.parent.mkdir()
    path.write_bytes(b"")
    open_file = os.open

    def refuse(opened: str | Path, *arguments: int, **named: int) -> int:
        if Path(opened) == path:
            raise OSError(errno.EMFILE, "Too many open files", str(path))
        return open_file(opened, *arguments, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        ProducerIds([tmp_path])
    assert not (tmp_path / FILE).exists()


def test_producer_id_block_is_the_highest_of_all_log_directories(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    one.mkdir()
    two.mkdir()
    ProducerIds([one]).next()
    assert ProducerIds([one, two]).next() == BLOCK
    assert ProducerIds([two]).next() == 2 * BLOCK


def test_producer_ids_with_one_missing_log_directory_are_read_from_another(tmp_path: Path) -> None:
    ids = ProducerIds([tmp_path / "gone", tmp_path])
    assert ids.next() == 0
    with pytest.raises(FileNotFoundError):
        ProducerIds([tmp_path / "gone"]).next()


@pytest.mark.parametrize("text", ["", "0\n", "1\n5\n", "0\nx\n", "0\n5", "0\n-5\n"])
def test_producer_ids_after_a_damaged_file_begin_above_the_safety_gap(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text(text)
    ids = ProducerIds([tmp_path])
    assert not ids.had_file
    ids.fetch()
    assert ids.next() == ID_GAP
    assert f"{tmp_path / FILE}: expected a line with version 0 and one with a producer ID" in caplog.text


def test_damaged_producer_id_file_is_ignored_if_another_one_is_valid(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    for directory in (one, two):
        directory.mkdir()
    ProducerIds([one, two]).next()
    (two / FILE).write_text("")
    assert ProducerIds([one, two]).next() == BLOCK


def test_producer_ids_assigned_by_another_cluster_are_not_assigned_again(tmp_path):
    """Mirrored batches contain such IDs. Their whole block is skipped, even after a crash."""
    ids = ProducerIds([tmp_path])
    assert not ids.may_allocate(-1)
    assert ids.may_allocate(4321)
    ids.stay_above(4321)
    assert not ids.may_allocate(4999)
    ids.stay_above(3)  # nothing new
    again = ProducerIds([tmp_path])
    again.fetch()
    assert again.next() == 6000


def test_producer_id_invented_by_a_client_does_not_change_assignment(tmp_path):
    """Kafka accepts a batch with any ID too: only its controller counts assigned IDs."""
    log = tmp_path / "orders-0"
    log.mkdir()
    entry = ProducerEntry(2**63 - 1, 0, 0, 0, 0, 0, -1, NO_TRANSACTION)
    write_producer_snapshot(log / f"{10:020d}.snapshot", [entry, entry._replace(producer_id=4321)])
    ids = ProducerIds([tmp_path])
    assert ids.next() == ID_GAP + 6000
    assert not ids.may_allocate(2**63 - 1)
    ids.stay_above(2**63 - 1)
    assert ids.next() == ID_GAP + 6001
    assert ProducerIds([tmp_path]).next() == ID_GAP + 7000


@pytest.mark.parametrize("invented", [MAX_CLUSTER_ID - 1, MAX_CLUSTER_ID])
def test_producer_id_counts_as_assigned_only_below_the_credible_maximum(tmp_path, invented):
    ProducerIds([tmp_path]).stay_above(largest_cluster_id([invented, 7]))
    assert ProducerIds([tmp_path]).next() == (2000 if invented == MAX_CLUSTER_ID else (invented // BLOCK + 2) * BLOCK)


def test_producer_id_file_with_an_implausible_id_is_ignored(tmp_path, caplog):
    """An earlier version of the broker wrote such a file after a batch with an invented ID."""
    (tmp_path / FILE).write_text("0\n9223372036854777000\n")
    log = tmp_path / "orders-0"
    log.mkdir()
    entry = ProducerEntry(4321, 0, 0, 0, 0, 0, -1, NO_TRANSACTION)
    write_producer_snapshot(log / f"{10:020d}.snapshot", [entry])
    assert ProducerIds([tmp_path]).next() == ID_GAP + 6000
    assert "9223372036854777000, which is larger than any allocated producer ID" in caplog.text
    assert ProducerIds([tmp_path]).next() == ID_GAP + 7000


def metadata_batch(offset: int, *values: bytes, attributes: int = 0) -> bytes:
    return batch(offset, [V2Record(i, 0, None, value) for i, value in enumerate(values)], attributes=attributes)


def test_producer_ids_begin_above_those_of_kafkas_metadata_log(tmp_path, caplog):
    """IDs come from the metadata snapshot and the log after it, up to the first damaged batch."""
    log = tmp_path / "__cluster_metadata-0"
    log.mkdir()

    def given(end: int) -> bytes:
        return bytes.fromhex("010f00") + struct.pack(">iqq", 1, 15, end) + b"\0"

    other = bytes.fromhex("010200") + bytes(21)
    (log / f"{20:020d}-{1:010d}.checkpoint").write_bytes(metadata_batch(0, other, given(40_000)))
    (log / f"{20:020d}.log").write_bytes(metadata_batch(20, other) + metadata_batch(21, given(41_000)) + bytes(30))
    assert ProducerIds([tmp_path / "other", tmp_path]).next() == ID_GAP + 41_000
    assert "producer IDs after the damage" in caplog.text


def test_producer_ids_are_assigned_with_a_batch_of_an_invented_id_in_the_log(tmp_path):
    records = batch(0, [V2Record(0, 0, b"k", b"v")], producer_id=2**63 - 1, producer_epoch=0, base_sequence=0)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout=i32Timedelta.parse(timedelta(minutes=1)))
    with RunningBroker(tmp_path / "data") as broker:
        broker.create_topic("orders")
        broker.ask(produce_request("orders", records))
        given = broker.ask(request).producer_id
        broker.stop()
        for text in (None, "0\n9223372036854777000\n"):  # as Kafka leaves it, and as an earlier version of this broker
            path = tmp_path / "data" / FILE
            path.unlink() if text is None else path.write_text(text)
            broker.start()
            answer = broker.ask(request)
            assert answer.error_code is ErrorCode.none
            assert given <= answer.producer_id < MAX_CLUSTER_ID
            broker.stop()


def test_producer_ids_record_of_kafka_is_decoded():
    """The record is from Kafka 4.3.0, whose broker had assigned 1,178 IDs."""
    value = bytes.fromhex("010f0000000001000000000000001200000000000007d000")
    assert next_producer_id(value) == 2000
    assert next_producer_id(value[:-2]) is None
    assert next_producer_id(b"\x01\x02\x00" + value[3:]) is None
