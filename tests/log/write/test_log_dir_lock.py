from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kafkalog_spark.errors import LogDirLocked
from kafkalog_spark.log.write.log_dir_lock import LogDirLock

HOLDER = """
import sys
from kafkalog_spark.log.write.log_dir_lock import LogDirLock
lock = LogDirLock.acquire(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_second_broker_is_refused_and_the_error_names_the_directory(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child:
        assert child.stdout.readline() == "held\n"
        with pytest.raises(LogDirLocked, match=r"another process holds the lock") as caught:
            LogDirLock.acquire(tmp_path)
        assert str(tmp_path) in str(caught.value)
        child.kill()  # the lock goes with the process
        child.wait()
        LogDirLock.acquire(tmp_path).release()


def test_second_broker_in_one_process_is_refused_under_any_path(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    lock = LogDirLock.acquire(tmp_path / "data")
    with pytest.raises(LogDirLocked, match="this process"):
        LogDirLock.acquire(tmp_path / "link")
    lock.release()
    lock.release()
    again = LogDirLock.acquire(tmp_path / "link")
    again.release()
    assert (tmp_path / "data" / ".lock").exists()


def test_refused_attempt_leaves_no_descriptor_open(tmp_path):
    lock = LogDirLock.acquire(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(LogDirLocked):
            LogDirLock.acquire(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
    lock.release()
    assert len(os.listdir("/proc/self/fd")) == before - 1
