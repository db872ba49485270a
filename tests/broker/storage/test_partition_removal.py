from __future__ import annotations

import errno
import uuid
from types import SimpleNamespace

from kafkalog_broker.storage.partition_removal import remove, rename_for_deletion
from kafkalog_broker.storage.scheduled_removals import ScheduledRemovals
from kafkalog_spark.format.names import DirKind, parse_partition_dir


def test_renamed_partition_directory_is_recognised_as_deleted(tmp_path):
    (tmp_path / "orders-3").mkdir()
    renamed = rename_for_deletion(tmp_path / "orders-3", "orders", 3)
    assert not (tmp_path / "orders-3").exists()
    assert renamed.is_dir()
    assert parse_partition_dir(renamed.name) == ("orders", 3, DirKind.DELETE)


def test_long_topic_name_is_truncated_in_the_deleted_directory_name(tmp_path):
    (tmp_path / "long").mkdir()
    name = rename_for_deletion(tmp_path / "long", "t" * 249, 2147483647).name
    assert len(name) == 255
    assert parse_partition_dir(name) == (
        "t" * (255 - len(f"-2147483647.{uuid.uuid4().hex}-delete")),
        2**31 - 1,
        DirKind.DELETE,
    )


def removals_at_time_0() -> ScheduledRemovals:
    return ScheduledRemovals(SimpleNamespace(monotonic_ms=lambda: 0))  # type: ignore[arg-type]


def test_scheduled_files_are_not_removed_before_the_delay(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "file").write_text("x")
    (tmp_path / "f").write_text("x")
    removals = removals_at_time_0()
    removals.schedule(tmp_path / "d", 100)
    removals.schedule(tmp_path / "f", 50)
    removals.schedule(tmp_path / "never-there", 50)
    removals.remove_due(49)
    assert (tmp_path / "f").exists()
    removals.remove_due(50)
    assert (tmp_path / "d").exists()
    assert not (tmp_path / "f").exists()
    removals.remove_due(100)
    assert not (tmp_path / "d").exists()


def test_file_that_cannot_be_removed_is_logged_once_and_others_are_removed(tmp_path, caplog):
    (tmp_path / "f").write_text("x")
    (tmp_path / "g").write_text("x")
    removals = removals_at_time_0()
    removals.schedule(tmp_path / "f" / "below-a-file", 1)
    removals.schedule(tmp_path / "g", 1)
    removals.remove_due(1)
    assert not (tmp_path / "g").exists()
    removals.remove_due(2)
    assert [str(tmp_path / "f" / "below-a-file") in message for message in caplog.messages] == [True]


def test_renamed_file_is_removed_only_after_its_directory_is_synced(tmp_path, monkeypatch, caplog):
    """Otherwise an older segment could reappear after a power cut without the later ones."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.log.deleted").write_text("x")

    def refuse(directory):
        if directory.name == "a":
            raise OSError(errno.EMFILE, "Too many open files")

    removals = removals_at_time_0()
    for name in ("a", "b"):
        removals.schedule(tmp_path / name / "0.log.deleted", 1)
    with monkeypatch.context() as patch:
        patch.setattr("kafkalog_broker.storage.scheduled_removals.fsync_directory", refuse)
        removals.remove_due(1)
    assert [(tmp_path / name / "0.log.deleted").exists() for name in ("a", "b")] == [True, False]
    assert "are removed later: [Errno 24] Too many open files" in caplog.text
    removals.remove_due(60_001)
    assert not (tmp_path / "a" / "0.log.deleted").exists()


def test_symbolic_link_is_removed_without_its_target(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    remove(tmp_path / "link")
    assert (tmp_path / "kept").exists()
    assert not (tmp_path / "link").exists()
