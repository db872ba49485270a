"""Replacing a state file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkalog_spark.format.atomic_file import replace_file
from kafkalog_spark.format.fsync import fsync_directory, fsync_tree, make_directories
from kafkalog_spark.format.regular_file import NotRegularFile, open_regular
from tests.log.helpers.sync_watch import SyncWatch


def test_replace_file_replaces_the_whole_content(tmp_path):
    path = tmp_path / "state"
    replace_file(path, b"a long first content")
    replace_file(path, b"short")
    assert path.read_bytes() == b"short"
    assert os.listdir(tmp_path) == ["state"]


def test_leftover_temporary_file_is_overwritten(tmp_path):
    (tmp_path / "state.tmp").write_bytes(b"torn by a crash, and longer than what comes")
    replace_file(tmp_path / "state", b"new")
    assert (tmp_path / "state").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["state"]


@pytest.mark.parametrize("left_over", ["state", "state.tmp"])
@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "directory"])
def test_replace_file_never_writes_through_a_link(tmp_path, left_over, kind):
    (tmp_path / "dir").mkdir()
    other, name = tmp_path / "other", tmp_path / "dir" / left_over
    other.write_bytes(b"of somebody else")
    if kind == "link":
        name.symlink_to(other)
    elif kind == "hard link":
        name.hardlink_to(other)
    elif kind == "pipe":
        os.mkfifo(name)
    else:
        name.mkdir()
    replace_file(tmp_path / "dir" / "state", b"new")
    assert (tmp_path / "dir" / "state").read_bytes() == b"new"
    assert other.read_bytes() == b"of somebody else"
    kept = [f"{left_over}.damaged"] if kind == "directory" else []
    assert sorted(os.listdir(tmp_path / "dir")) == sorted(["state", *kept])


def test_open_regular_follows_a_symbolic_link_for_reading_only(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    os.close(open_regular(tmp_path / "link"))
    for flags in (os.O_RDWR, os.O_WRONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
        with pytest.raises(NotRegularFile, match="is a symbolic link"):
            open_regular(tmp_path / "link", flags)
    assert (tmp_path / "file").read_bytes() == b"x"


def _recorded(monkeypatch, path, sync):
    """What replace_file does, in order; for fsyncs of the file also what had been written by then."""
    steps = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(fd):
        target = os.readlink(f"/proc/self/fd/{fd}")
        content = None if os.path.isdir(target) else Path(target).read_bytes()
        steps.append(("fsync", os.path.basename(target), content))
        real_fsync(fd)

    def replace(source, target):
        steps.append(("rename", os.path.basename(source), os.path.basename(target)))
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    replace_file(path, b"content", sync=sync)
    return steps


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="file names of descriptors come from /proc")
def test_content_is_synced_before_the_rename_and_the_rename_before_return(tmp_path, monkeypatch):
    assert _recorded(monkeypatch, tmp_path / "state", sync=True) == [
        ("fsync", "state.tmp", b"content"),
        ("rename", "state.tmp", "state"),
        ("fsync", tmp_path.name, None),
    ]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="file names of descriptors come from /proc")
def test_no_sync_replaces_by_rename_without_fsync(tmp_path, monkeypatch):
    assert _recorded(monkeypatch, tmp_path / "state", sync=False) == [("rename", "state.tmp", "state")]


def test_failed_write_keeps_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "state"
    replace_file(path, b"old")

    def refuse(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


def test_missing_directory_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "missing" / "state", b"x")
    with pytest.raises(FileNotFoundError):
        fsync_directory(tmp_path / "missing")


def test_make_directories_syncs_the_name_of_each_new_directory(tmp_path, monkeypatch):
    watch = SyncWatch(monkeypatch)
    make_directories(tmp_path / "a" / "b")
    make_directories(tmp_path / "a" / "b")
    assert [path.name for path in (tmp_path, tmp_path / "a") if not watch.is_synced(path)] == []
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_directories(tmp_path / "file")


def test_fsync_tree_syncs_all_files_and_names(tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    watch = SyncWatch(monkeypatch)
    fsync_tree(tmp_path)
    assert [path for path in (tmp_path, tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/file")
            if not watch.is_synced(path)] == []  # fmt: skip


def test_link_with_the_temporary_name_is_not_followed(tmp_path):
    victim, target = tmp_path / "victim", tmp_path / "checkpoint"
    victim.write_bytes(b"untouched")
    target.with_name("checkpoint.tmp").symlink_to(victim)
    replace_file(target, b"new")
    assert (victim.read_bytes(), target.read_bytes()) == (b"untouched", b"new")


def test_private_file_is_never_readable_by_others(tmp_path, monkeypatch):
    modes, real = [], os.open

    def watched_open(path, flags, mode=0o777, **options):
        if flags & os.O_CREAT:
            modes.append(mode)
        return real(path, flags, mode, **options)

    monkeypatch.setattr(os, "open", watched_open)
    replace_file(tmp_path / "passwords", b"secret", private=True)
    assert modes == [0o600]
    assert (tmp_path / "passwords").stat().st_mode & 0o777 == 0o600
