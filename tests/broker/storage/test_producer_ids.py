"""Producer ids are never given twice, whatever happens in between."""

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
from kafkalog_broker.storage.producer_ids import FILE, GIVEN_OUT, LEAP, ProducerIds, largest_given
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


def test_ids_count_up_from_0(tmp_path: Path) -> None:
    ids = ProducerIds([tmp_path])
    assert [ids.next() for _ in range(BLOCK + 2)] == list(range(BLOCK + 2))


def test_a_block_is_on_disk_before_its_first_id_is_given(tmp_path: Path) -> None:
    ids = ProducerIds([tmp_path])
    assert not (tmp_path / FILE).exists()
    ids.next()
    assert (tmp_path / FILE).read_text() == f"0\n{BLOCK}\n"


def test_a_restart_goes_on_behind_the_block(tmp_path: Path) -> None:
    given = ProducerIds([tmp_path]).next()
    assert ProducerIds([tmp_path]).next() == BLOCK > given


def test_ids_begin_above_those_that_a_real_kafka_gave(tmp_path: Path) -> None:
    golden = tmp_path / "data"
    shutil.copytree(GOLDEN / "kafka-4.3.0" / "data", golden)
    known = [entry.producer_id for path in golden.glob("*/*.snapshot") for entry in read_producer_snapshot(path)]
    assert max(known) >= 0
    assert ProducerIds([golden]).next() >= max(known) + LEAP
    assert ProducerIds([golden]).next() % BLOCK == 0


def test_a_damaged_snapshot_shows_that_ids_are_in_use(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{5:020d}.snapshot").write_bytes(b"damaged")
    assert ProducerIds([tmp_path]).next() >= LEAP
    assert "ids in it are not known" in caplog.text


@pytest.mark.parametrize("name", [f"orders-0/{5:020d}.snapshot", f"__cluster_metadata-0/{0:020d}.log"])
def test_ids_are_not_given_out_while_those_in_use_cannot_be_read(
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


def test_the_largest_number_of_all_directories_counts(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    one.mkdir()
    two.mkdir()
    ProducerIds([one]).next()
    assert ProducerIds([one, two]).next() == BLOCK
    assert ProducerIds([two]).next() == 2 * BLOCK


def test_a_directory_that_has_gone_stops_nobody_while_another_is_there(tmp_path: Path) -> None:
    ids = ProducerIds([tmp_path / "gone", tmp_path])
    assert ids.next() == 0
    with pytest.raises(FileNotFoundError):
        ProducerIds([tmp_path / "gone"]).next()


@pytest.mark.parametrize("text", ["", "0\n", "1\n5\n", "0\nx\n", "0\n5", "0\n-5\n"])
def test_with_a_damaged_file_ids_begin_far_above_those_that_it_may_have_said(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_text(text)
    ids = ProducerIds([tmp_path])
    assert not ids.were_known
    ids.fetch()
    assert ids.next() == LEAP
    assert f"{tmp_path / FILE}: expected a line with version 0 and one with a producer id" in caplog.text


def test_a_damaged_file_does_not_count_beside_a_whole_one(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    for directory in (one, two):
        directory.mkdir()
    ProducerIds([one, two]).next()
    (two / FILE).write_text("")
    assert ProducerIds([one, two]).next() == BLOCK


def test_ids_that_somebody_else_has_given_out_are_not_given_again(tmp_path):
    """A mirror's: the whole block is left to whoever gave it out, and that survives a crash."""
    ids = ProducerIds([tmp_path])
    assert not ids.may_give(-1)
    assert ids.may_give(4321)
    ids.stay_above(4321)
    assert not ids.may_give(4999)
    ids.stay_above(3)  # nothing new
    again = ProducerIds([tmp_path])
    again.fetch()
    assert again.next() == 6000


def test_an_id_that_a_client_invented_is_left_alone(tmp_path):
    """As Kafka does, whose controller counts ids: it accepts a batch with any."""
    log = tmp_path / "orders-0"
    log.mkdir()
    entry = ProducerEntry(2**63 - 1, 0, 0, 0, 0, 0, -1, NO_TRANSACTION)
    write_producer_snapshot(log / f"{10:020d}.snapshot", [entry, entry._replace(producer_id=4321)])
    ids = ProducerIds([tmp_path])
    assert ids.next() == LEAP + 6000
    assert not ids.may_give(2**63 - 1)
    ids.stay_above(2**63 - 1)
    assert ids.next() == LEAP + 6001
    assert ProducerIds([tmp_path]).next() == LEAP + 7000


@pytest.mark.parametrize("invented", [GIVEN_OUT - 1, GIVEN_OUT])
def test_the_largest_id_that_is_believed_is_far_from_the_last_there_is(tmp_path, invented):
    ProducerIds([tmp_path]).stay_above(largest_given([invented, 7]))
    assert ProducerIds([tmp_path]).next() == (2000 if invented == GIVEN_OUT else (invented // BLOCK + 2) * BLOCK)


def test_a_number_that_cannot_have_been_reached_is_left_out(tmp_path, caplog):
    """What an earlier version wrote for an invented id."""
    (tmp_path / FILE).write_text("0\n9223372036854777000\n")
    log = tmp_path / "orders-0"
    log.mkdir()
    entry = ProducerEntry(4321, 0, 0, 0, 0, 0, -1, NO_TRANSACTION)
    write_producer_snapshot(log / f"{10:020d}.snapshot", [entry])
    assert ProducerIds([tmp_path]).next() == LEAP + 6000
    assert "9223372036854777000, which cannot be reached by counting" in caplog.text
    assert ProducerIds([tmp_path]).next() == LEAP + 7000


def metadata_batch(offset: int, *values: bytes, attributes: int = 0) -> bytes:
    return batch(offset, [V2Record(i, 0, None, value) for i, value in enumerate(values)], attributes=attributes)


def test_kafkas_metadata_log_says_how_far_its_ids_have_come(tmp_path, caplog):
    """The snapshot, and the log that goes on from it; what comes after damage is not known."""
    log = tmp_path / "__cluster_metadata-0"
    log.mkdir()

    def given(end: int) -> bytes:
        return bytes.fromhex("010f00") + struct.pack(">iqq", 1, 15, end) + b"\0"

    other = bytes.fromhex("010200") + bytes(21)
    (log / f"{20:020d}-{1:010d}.checkpoint").write_bytes(metadata_batch(0, other, given(40_000)))
    (log / f"{20:020d}.log").write_bytes(metadata_batch(20, other) + metadata_batch(21, given(41_000)) + bytes(30))
    assert ProducerIds([tmp_path / "other", tmp_path]).next() == LEAP + 41_000
    assert "producer ids after it are not known" in caplog.text


def test_a_directory_with_a_batch_of_an_invented_id_gives_ids_to_producers(tmp_path):
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
            assert given <= answer.producer_id < GIVEN_OUT
            broker.stop()


def test_a_record_that_kafka_wrote():
    """By Kafka 4.3.0, whose broker had given out 1,178 ids."""
    value = bytes.fromhex("010f0000000001000000000000001200000000000007d000")
    assert next_producer_id(value) == 2000
    assert next_producer_id(value[:-2]) is None
    assert next_producer_id(b"\x01\x02\x00" + value[3:]) is None
