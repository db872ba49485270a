"""The order of fsyncs that keeps each log a prefix of its acknowledged records after a power cut.

tests/crash_states searches the states of whole workloads; each test in this file checks a single rule.
"""

from __future__ import annotations

import os

import pytest

from kafkalog_broker.storage.compaction.cleaning_host import CleaningHost
from kafkalog_broker.storage.compaction.owner_thread import OwnerThread
from kafkalog_broker.storage.compaction.throttler import Throttler
from kafkalog_broker.storage.log_directories import open_log_dirs
from kafkalog_broker.storage.partition.cleaned_segment import CleanedSegment, publish
from kafkalog_broker.storage.partition.local_log import LocalLog
from kafkalog_broker.storage.recovery.log_loader import load_log
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, read_offset_checkpoint, write_leader_epochs
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.partition_metadata import PARTITION_METADATA_FILE
from kafkalog_spark.format.transaction_index import load_transaction_index
from tests.broker.storage.helpers.cleaned_logs import append_transactional, compacted_log, end_transaction
from tests.broker.storage.helpers.loaded_logs import name, records, request, write_log
from tests.broker.storage.helpers.managed_logs import started
from tests.broker.storage.helpers.stored_logs import NOW, bases, new_log, reopened, validated
from tests.broker.storage.helpers.synced_files import recorded_syncs

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="names of descriptors come from /proc")


def test_create_partition_syncs_leader_epoch_topic_id_and_directories(tmp_path):
    broker = started(tmp_path)
    with recorded_syncs() as synced:
        broker.create("orders")
    partition = synced.index("orders-0")
    for file in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA_FILE):
        assert synced.index(file + ".tmp") < partition
    assert tmp_path.name in synced[partition:]
    assert read_offset_checkpoint(tmp_path / "recovery-point-offset-checkpoint") == {("orders", 0): 0}
    broker.logs.shutdown()


def test_create_log_directory_syncs_the_parents_that_get_a_new_entry(tmp_path):
    with recorded_syncs() as synced:
        open_log_dirs([tmp_path / "above" / "data"], 1, NOW).close()
    assert synced[:2] == [tmp_path.name, "above"]


def test_flush_after_idle_close_syncs_the_transaction_index_of_the_rolled_segment(tmp_path):
    log = compacted_log(tmp_path)
    append_transactional(log, 5, 0, (b"k", b"v"))
    end_transaction(log, 5, ControlType.ABORT)
    log.release_files()
    log.local.roll(NOW)
    with recorded_syncs() as synced:
        log.flush()
    assert name(0, ".txnindex") in synced
    assert len(load_transaction_index(log.directory / name(0, ".txnindex"), 0)) == 1
    log.close()


def test_clean_close_after_idle_close_syncs_indexes_of_an_already_flushed_log(tmp_path):
    """With flush.messages=1 all records are flushed at once, but only the .log: the indexes are left to the close."""
    log = compacted_log(tmp_path, flush_messages=1)
    append_transactional(log, 5, 0, (b"k", b"v"))
    end_transaction(log, 5, ControlType.ABORT)
    log.flush()
    log.release_files()
    with recorded_syncs() as synced:
        log.close()
    assert {name(0, suffix) for suffix in (".log", ".index", ".timeindex", ".txnindex")} <= set(synced)


def test_clean_close_of_an_untouched_log_syncs_nothing(tmp_path):
    log = new_log(tmp_path)
    log.append(validated(1), NOW)
    log.close()
    again = reopened(tmp_path)
    with recorded_syncs() as synced:
        again.close()
    assert synced == []


def test_flush_after_recovery_syncs_the_transaction_index_that_recovery_wrote(tmp_path):
    log = compacted_log(tmp_path)
    append_transactional(log, 5, 0, (b"k", b"v"))
    end_transaction(log, 5, ControlType.ABORT)
    log.local.roll(NOW)
    log.flush()
    log.discard()
    (log.directory / name(0, ".txnindex")).write_bytes(b"damaged")
    again = reopened(tmp_path, recovery_point=2)  # the damage alone makes loading recover the segment
    assert again.recovery_point == again.log_end_offset == 2
    assert again.needs_flush(NOW)
    with recorded_syncs() as synced:
        again.flush()
    assert name(0, ".txnindex") in synced
    again.discard()


def test_flush_syncs_a_segment_that_is_rolled_while_the_flush_begins(tmp_path):
    class Rolling(LocalLog):
        """Rolls once, just before a flush resets `_has_unsynced_segment`."""

        may_roll = False
        value = False

        @property
        def _has_unsynced_segment(self):
            return self.value

        @_has_unsynced_segment.setter
        def _has_unsynced_segment(self, value):
            if self.may_roll and not value:
                Rolling.may_roll = False
                self.roll(NOW)
            self.value = value

    log = compacted_log(tmp_path)
    log.append(validated(1), NOW)
    log.flush()
    log.append(validated(1), NOW)
    log.local.__class__ = Rolling
    Rolling.may_roll = True
    log.flush()
    assert bases(log) == [0, 2]
    assert log.local.segments[0].is_synced
    assert log.local.recovery_point == 2
    log.close()


def test_cleaning_syncs_the_directory_between_the_steps_of_a_replacement(tmp_path):
    log = compacted_log(tmp_path)
    for _ in range(2):
        log.append(validated(1), NOW)
        log.local.roll(NOW)
    log.flush()
    cleaned = CleanedSegment(log.directory, 0, 4096)
    cleaned.finish(NOW)
    host = CleaningHost(log, OwnerThread(lambda run: run()), lambda: NOW, Throttler(1e9), lambda path, delay_ms: None)
    with recorded_syncs(renames=True) as steps:
        host.replace([cleaned], log.segments[:2])
    steps = [step for step in steps if ".log" in step or step == log.directory.name]
    assert steps == [
        f"{name(0, '.log')}.cleaned -> {name(0, '.log')}.swap",
        log.directory.name,
        f"{name(0, '.log')} -> {name(0, '.log')}.deleted",
        f"{name(1, '.log')} -> {name(1, '.log')}.deleted",
        log.directory.name,
        f"{name(0, '.log')}.swap -> {name(0, '.log')}",
        log.directory.name,
    ]
    log.close()


def test_swap_of_several_segments_renames_the_lowest_one_after_the_others_are_synced(tmp_path):
    pieces = [CleanedSegment(tmp_path, base, 4096) for base in (0, 5, 9)]
    for piece in pieces:
        piece.finish(NOW)
    with recorded_syncs(renames=True) as steps:
        publish(pieces)
    logs = [step.split(".")[0] if " " in step else "synced" for step in steps if ".log" in step or " " not in step]
    assert logs == [name(9, ""), name(5, ""), "synced", name(0, ""), "synced"]


def segments_with_a_gap(directory):
    """Offsets 0 and 1, then a segment from 4 on: the end of the first one was not on disk."""
    return write_log(directory / "orders-0", [records(0, 2)], [records(4, 2)], [records(6)])


@pytest.mark.parametrize(
    ("contiguous_from", "kept"),
    [(0, [0]), (3, [0]), (4, [0, 4, 6]), (None, [0, 4, 6])],
    ids=["above", "within", "below", "unknown"],
)
def test_recovery_removes_segments_after_an_offset_gap_above_the_recovery_point(tmp_path, contiguous_from, kept):
    directory = segments_with_a_gap(tmp_path)
    loaded = load_log(request(directory, contiguous_from=contiguous_from))
    assert loaded.base_offsets == kept
    assert loaded.log_end_offset == (2 if kept == [0] else 7)
    assert sorted(int(path.stem) for path in directory.glob("*.log")) == kept


def test_recovery_removes_segments_after_an_empty_segment_above_the_recovery_point(tmp_path):
    directory = segments_with_a_gap(tmp_path)
    os.truncate(directory / name(0, ".log"), 0)
    loaded = load_log(request(directory, contiguous_from=0))
    assert (loaded.base_offsets, loaded.log_end_offset) == ([0], 0)


def test_recovery_keeps_segments_after_an_offset_gap_left_by_retention(tmp_path):
    directory = segments_with_a_gap(tmp_path)
    (directory / name(2, ".log.deleted")).write_bytes(b"")
    loaded = load_log(request(directory, contiguous_from=0, is_compacted=False))
    assert (loaded.log_start_offset, loaded.log_end_offset) == (4, 7), "the segment of 0 was deleted before that of 2"
    assert sorted(int(path.stem) for path in directory.glob("*.log")) == [4, 6]


def test_recovery_keeps_an_older_segment_that_goes_on_above_truncated_ones(tmp_path):
    directory = write_log(tmp_path / "orders-0", [records(0, 2), records(2, 2)], [records(4)])
    (directory / name(2, ".log.deleted")).write_bytes(b"")
    loaded = load_log(request(directory, contiguous_from=0, is_compacted=False))
    assert (loaded.log_start_offset, loaded.log_end_offset) == (0, 5)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_recovery_trims_indexes_of_the_segment_that_ends_at_the_recovery_point(tmp_path, suffix):
    """The roll after a clean stop had trimmed them, but nothing had synced that yet."""
    directory = write_log(tmp_path / "orders-0", [records(0)], [records(1)], [records(2)], padded=False)
    load_log(request(directory))  # builds the indexes
    whole = (directory / name(1, suffix)).read_bytes()
    (directory / name(1, suffix)).write_bytes(whole + bytes(1200))
    loaded = load_log(request(directory, recovery_point=2))
    assert [one.base_offset for one in loaded.recovered] == [1, 2]
    assert (directory / name(1, suffix)).read_bytes() == whole


def test_recovery_restores_leader_epochs_of_deleted_records_that_reappear(tmp_path):
    """The truncated leader epochs were on disk, the checkpoint of the log start offset was not."""
    directory = write_log(tmp_path / "orders-0", [records(0, leader_epoch=1)], [records(1, leader_epoch=3), records(2)])
    write_leader_epochs(directory / LEADER_EPOCH_CHECKPOINT, [(3, 2)])
    loaded = load_log(request(directory))
    assert (loaded.log_start_offset, loaded.epochs.entries) == (0, ((1, 0), (3, 1)))


def test_recovery_removes_later_segments_before_it_truncates_a_segment(tmp_path):
    directory = write_log(tmp_path / "orders-0", [records(0), records(1)], [records(2)])
    os.truncate(directory / name(0, ".log"), os.stat(directory / name(0, ".log")).st_size - 1)
    seen = []
    cut = os.ftruncate

    def watched(fd, length):
        seen.append((directory / name(2, ".log")).exists())
        cut(fd, length)

    with pytest.MonkeyPatch.context() as patched, recorded_syncs() as synced:
        patched.setattr(os, "ftruncate", watched)
        load_log(request(directory))
    assert seen[0] is False
    removed = synced.index("orders-0", synced.index(f"{LEADER_EPOCH_CHECKPOINT}.tmp") + 2)
    assert synced.index(name(0, ".log")) > removed


def test_retention_syncs_the_renames_before_it_removes_files(tmp_path):
    broker = started(tmp_path, properties={"log.retention.check.interval.ms": 1000})
    broker.create("orders", 1, retention_ms=1000, internal_segment_bytes=2000, file_delete_delay_ms=0)
    for _ in range(4):
        broker.append(size=1000)
    broker.tick(5000)
    with recorded_syncs() as synced:
        broker.tick(5000)
        broker.tick(5000)
    assert "orders-0" in synced
    assert bases(broker.log()) == [4]
    broker.logs.shutdown()
