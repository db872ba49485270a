from __future__ import annotations

import logging
import os

from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.offset_checkpoint import OffsetCheckpoint


def test_checkpoint_entries_are_read_as_written(tmp_path):
    offsets = {("orders", 0): 17, ("orders", 10): 0}
    OffsetCheckpoint(tmp_path / "c").write(offsets)
    assert OffsetCheckpoint(tmp_path / "c").read() == offsets


def test_unchanged_checkpoint_is_not_rewritten(tmp_path):
    OffsetCheckpoint(tmp_path / "c").write({("a", 0): 1})
    checkpoint = OffsetCheckpoint(tmp_path / "c")
    checkpoint.read()
    before = os.stat(tmp_path / "c").st_ino
    checkpoint.write({("a", 0): 1})
    assert os.stat(tmp_path / "c").st_ino == before
    checkpoint.write({("a", 0): 2})
    assert OffsetCheckpoint(tmp_path / "c").read() == {("a", 0): 2}


def test_missing_checkpoint_is_created_empty(tmp_path):
    checkpoint = OffsetCheckpoint(tmp_path / "c")
    assert checkpoint.read() == {}
    checkpoint.write({})
    assert (tmp_path / "c").read_bytes() == b"0\n0\n"


def test_damaged_checkpoint_is_read_as_empty_with_a_warning_and_replaced(tmp_path, caplog):
    (tmp_path / "c").write_bytes(b"0\n2\na 0 1\n")
    checkpoint = OffsetCheckpoint(tmp_path / "c")
    with caplog.at_level(logging.WARNING):
        assert checkpoint.read() == {}
    assert "announces 2 entries" in caplog.text
    checkpoint.write({})
    assert (tmp_path / "c").read_bytes() == b"0\n0\n"


def test_checkpoints_written_by_kafka_are_read(golden_crashed):
    crashed = LogDirectory(golden_crashed)
    assert crashed.recovery_points.read()["segments", 1] == 4800
    assert crashed.high_watermarks.read()["segments", 1] == 6000
    assert crashed.log_start_offsets.read() == {("deleted-prefix", 0): 1537}
