"""The recorder: what each way to change a file leaves in the trace, and what it refuses."""

from __future__ import annotations

import mmap
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kafkalog_spark.format.atomic_file import replace_file
from tests.crash_states.disk import Link, Rename, Send, SyncBegin, SyncEnd, Truncate, Unlink, Write, unsafe_operations
from tests.crash_states.recorder import NotRecorded, Recorder


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    root = tmp_path / "root"
    root.mkdir()
    (root / "before").write_bytes(b"before")
    return Recorder({"d": root}, sync_delay_s=0)


def root_of(recorder: Recorder) -> Path:
    return recorder.roots["d"]


def file_at(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    return os.open(path, flags, 0o644)


def write_at_the_descriptors_place(path: Path) -> None:
    fd = file_at(path / "a")
    os.write(fd, b"one")
    os.write(fd, b"two")
    os.close(fd)


def write_at_the_end(path: Path) -> None:
    fd = file_at(path / "before", os.O_WRONLY | os.O_APPEND)
    os.write(fd, b" and after")
    os.close(fd)


def write_vectors(path: Path) -> None:
    fd = file_at(path / "a")
    os.writev(fd, [b"one", b"two"])
    os.pwritev(fd, [b"three", b"four"], 20)
    os.close(fd)


def write_at_a_position(path: Path) -> None:
    fd = file_at(path / "a")
    os.pwrite(fd, np.arange(5, dtype=np.int64).data, 100)
    os.ftruncate(fd, 200)
    os.ftruncate(fd, 120)
    os.close(fd)
    os.truncate(path / "a", 3)


def write_through_a_duplicate(path: Path) -> None:
    fd = file_at(path / "a")
    copy = os.dup(fd)
    os.close(fd)
    os.write(copy, b"x")
    os.close(copy)


def store_through_a_mapping(path: Path) -> None:
    fd = file_at(path / "a")
    os.ftruncate(fd, 3 * mmap.PAGESIZE)
    with mmap.mmap(fd, 0) as mapped:
        mapped[5] = 7
        array = np.frombuffer(mapped, np.uint8)
        array[2 * mmap.PAGESIZE] = 9
        del array
    os.close(fd)


def truncate_by_opening(path: Path) -> None:
    os.close(file_at(path / "before", os.O_WRONLY | os.O_TRUNC))


def names_and_directories(path: Path) -> None:
    os.makedirs(path / "x" / "y")
    (path / "x" / "y" / "a").touch()
    os.rename(path / "x", path / "z")
    os.link(path / "z" / "y" / "a", path / "b")
    (path / "b").rename(path / "c")
    (path / "before").unlink()
    (path / "empty").mkdir()
    (path / "empty").rmdir()


def remove_a_tree(path: Path) -> None:
    names_and_directories(path)
    shutil.rmtree(path / "z")


def replace_state_file(path: Path) -> None:
    replace_file(path / "before", b"after")


@pytest.mark.parametrize(
    "change",
    [
        write_at_the_descriptors_place, write_at_the_end, write_vectors, write_at_a_position, write_through_a_duplicate,
        store_through_a_mapping, truncate_by_opening, names_and_directories, remove_a_tree, replace_state_file,
    ],
)  # fmt: skip
def test_recorder_sees_every_byte_and_name(recorder: Recorder, change: Callable[[Path], None]) -> None:
    with recorder.running():
        change(root_of(recorder))
    recorder.check()


def test_replaced_state_file_has_the_events_in_order(recorder: Recorder) -> None:
    with recorder.running():
        replace_file(root_of(recorder) / "before", b"after")
    assert [type(event) for event in recorder.events] == [Link, Write, SyncBegin, SyncEnd, Rename, SyncBegin, SyncEnd]


def test_bytes_that_pass_by_the_recorder_fail_its_check(recorder: Recorder) -> None:
    (root_of(recorder) / "unseen").write_bytes(b"x")
    with pytest.raises(NotRecorded, match="unseen: not expected"):
        recorder.check()


def test_store_through_a_mapping_is_recorded_before_an_fsync_that_covers_it(recorder: Recorder) -> None:
    with recorder.running():
        fd = file_at(root_of(recorder) / "before")
        with mmap.mmap(fd, 0) as mapped:
            mapped[0] = 66
            os.fsync(fd)
        os.close(fd)
    assert [type(event) for event in recorder.events] == [Write, SyncBegin, SyncEnd]
    assert unsafe_operations(recorder.events, 3) == []


@pytest.mark.parametrize("mode", ["wb", "ab", "r+b", "xb"])
def test_builtin_open_for_writing_below_a_root_raises(recorder: Recorder, mode: str) -> None:
    with recorder.running(), pytest.raises(NotRecorded, match=r"without os\.open"):
        open(root_of(recorder) / ("new" if mode == "xb" else "before"), mode)  # noqa: SIM115 - it raises


def test_builtin_open_elsewhere_and_for_reading_works(recorder: Recorder, tmp_path: Path) -> None:
    with recorder.running():
        (tmp_path / "elsewhere").write_bytes(b"x")
        assert (root_of(recorder) / "before").read_bytes() == b"before"
    recorder.check()


def test_unknown_function_that_changes_a_file_raises(recorder: Recorder) -> None:
    with recorder.running(), pytest.raises(NotRecorded, match="symlink"):
        os.symlink("before", root_of(recorder) / "link")


def test_functions_are_as_before_when_recording_ends(recorder: Recorder) -> None:
    before = os.open, os.fsync, mmap.mmap, socket.socket.send
    with recorder.running():
        pass
    assert (os.open, os.fsync, mmap.mmap, socket.socket.send) == before


def test_failed_call_leaves_no_event(recorder: Recorder) -> None:
    with recorder.running():
        with pytest.raises(FileNotFoundError):
            os.unlink(root_of(recorder) / "missing")
        with pytest.raises(FileExistsError):
            os.mkdir(root_of(recorder) / "before")
        with pytest.raises(FileNotFoundError):
            os.rename(root_of(recorder) / "missing", root_of(recorder) / "b")
    assert recorder.events == []
    recorder.check()


def test_reused_descriptor_of_another_file_is_not_recorded(recorder: Recorder, tmp_path: Path) -> None:
    with recorder.running():
        fd = file_at(root_of(recorder) / "before")
        os.closerange(fd, fd + 1)  # by the side of os.close
        other = os.open(tmp_path / "elsewhere", os.O_WRONLY | os.O_CREAT)
        os.write(other, b"x")
        os.close(other)
    assert recorder.events == []


def test_response_is_acknowledged_at_the_send_of_its_last_byte(recorder: Recorder) -> None:
    with recorder.running(), socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        port = client.getsockname()[1]
        served, _ = listener.accept()
        served.send(b"12345")
        os.close(file_at(root_of(recorder) / "a"))
        served.send(b"67")
        client.close()
        served.close()
    assert recorder.events[0] == Send(port, 5)
    assert isinstance(recorder.events[1], Link)
    assert [recorder.sent_at(port, end) for end in (1, 5, 6, 7)] == [0, 0, 2, 2]
    with pytest.raises(LookupError):
        recorder.sent_at(port, 8)


def test_truncate_and_unlink_have_events_of_their_own(recorder: Recorder) -> None:
    with recorder.running():
        os.truncate(root_of(recorder) / "before", 1)
        os.unlink(root_of(recorder) / "before")
    assert [type(event) for event in recorder.events] == [Truncate, Unlink]
