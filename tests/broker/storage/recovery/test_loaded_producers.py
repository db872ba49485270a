"""Producer state and transactions that loading a log restores."""

from __future__ import annotations

import shutil

from kafkalog_broker.storage.recovery.log_loader import load_log
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT
from kafkalog_spark.format.producer_snapshot import read_producer_snapshot
from kafkalog_spark.format.transaction_index import load_transaction_index
from tests.broker.storage.helpers.loaded_logs import name, records, request, transactions, write_log
from tests.broker.storage.helpers.stored_logs import NOW, contents
from tests.log.helpers.batch_builder import TRANSACTIONAL


def idempotent(count, first=0):
    return [records(first + n, producer_id=1, producer_epoch=0, base_sequence=first + n) for n in range(count)]


def known(loaded, producer_id):
    (known,) = (one for one in loaded.producers.producers() if one.id == producer_id)
    return [batch.last_sequence for batch in known.batches]


def test_recovery_restores_the_last_five_batches_of_a_producer(tmp_path):
    loaded = load_log(request(write_log(tmp_path / "t-0", idempotent(9))))
    assert known(loaded, 1) == [4, 5, 6, 7, 8]
    assert loaded.producers.end_offset == 9


def test_loader_uses_the_newest_valid_producer_snapshot_and_replays_later_batches(tmp_path):
    directory = write_log(tmp_path / "t-0", idempotent(3), idempotent(3, 3), idempotent(3, 6))
    load_log(request(directory))
    assert sorted(contents(directory))[-1] == LEADER_EPOCH_CHECKPOINT
    assert {file for file in contents(directory) if file.endswith("snapshot")} == {
        name(offset, ".snapshot") for offset in (3, 6, 9)
    }
    # Kafka keeps one batch in a snapshot: the others are forgotten where the replay begins behind it.
    assert known(load_log(request(directory, recovery_point=6)), 1) == [5, 6, 7, 8]
    (directory / name(6, ".snapshot")).write_bytes(b"damaged")
    assert known(load_log(request(directory, recovery_point=6)), 1) == [4, 5, 6, 7, 8]
    assert known(load_log(request(directory, clean=True)), 1) == [8]
    (directory / name(9, ".snapshot")).unlink()
    assert known(load_log(request(directory, clean=True)), 1) == [4, 5, 6, 7, 8]


def test_recovery_without_a_producer_snapshot_replays_the_whole_log(tmp_path):
    directory = write_log(tmp_path / "t-0", idempotent(3), idempotent(1, 3))
    assert known(load_log(request(directory, recovery_point=3)), 1) == [0, 1, 2, 3]


def test_recovery_restores_open_and_aborted_transactions(tmp_path):
    directory = write_log(tmp_path / "t-0", transactions())
    loaded = load_log(request(directory))
    assert load_transaction_index(directory / name(0, ".txnindex")) == [(5, 0, 3, 2)]
    assert loaded.producers.first_unstable_offset(loaded.log_end_offset) == 5
    assert {producer.id: producer.coordinator_epoch for producer in loaded.producers.producers()} == {5: 1, 6: 2, 7: -1}
    again = load_log(request(directory, clean=True))
    assert again.producers.first_unstable_offset(again.log_end_offset) == 5


def test_loader_removes_producer_snapshots_without_a_segment(tmp_path):
    directory = write_log(tmp_path / "t-0", idempotent(3), idempotent(3, 3), padded=False)
    load_log(request(directory))
    for offset in (1, 2, 5, 8):
        shutil.copyfile(directory / name(6, ".snapshot"), directory / name(offset, ".snapshot"))
    load_log(request(directory, clean=True))
    assert sorted(int(path.stem) for path in directory.glob("*.snapshot")) == [3, 6]


def test_producers_expire_when_the_log_is_loaded(tmp_path):
    directory = write_log(tmp_path / "t-0", idempotent(3), padded=False)
    day = 24 * 3600 * 1000
    assert len(load_log(request(directory, now_ms=NOW + day)).producers.producers()) == 1
    assert load_log(request(directory, now_ms=NOW + day + 2)).producers.producers() == []


def test_replay_of_many_producers_in_one_window_keeps_their_last_five_batches(tmp_path, monkeypatch):
    """`replay` skips batches that cannot matter; the result equals that of applying every batch."""
    import random

    from kafkalog_broker.storage.partition import producer_replay

    rng, sequences, data = random.Random(3), [0] * 4, []
    for offset in range(200):
        producer = rng.randrange(4)
        kind = {"attributes": TRANSACTIONAL} if producer == 3 else {}
        epoch = int(offset > 150)
        data.append(
            records(offset, producer_id=producer, producer_epoch=epoch, base_sequence=sequences[producer], **kind)
            if rng.random() < 0.8
            else records(offset)
        )
        sequences[producer] += 1
    directory = write_log(tmp_path / "t-0", data)
    quick = load_log(request(directory))
    monkeypatch.setattr(producer_replay, "_rows_to_apply", lambda table: (table[:, 10] >= 0).nonzero()[0])
    slow = load_log(request(directory))
    assert [known(quick, producer) for producer in range(4)] == [known(slow, producer) for producer in range(4)]
    assert sorted(quick.producers.entries()) == sorted(slow.producers.entries())


def test_loader_writes_missing_producer_snapshots(tmp_path):
    """A cleanly closed log is not scanned, as in Kafka; the new snapshots also shorten the scan after a later crash."""
    directory = write_log(tmp_path / "t-0", [records(0)], [records(1)], [records(2)], padded=False)
    load_log(request(directory, clean=True))
    assert sorted(int(path.stem) for path in directory.glob("*.snapshot")) == [1, 2, 3]
    assert read_producer_snapshot(directory / name(3, ".snapshot")) == []
