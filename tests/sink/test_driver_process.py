"""The identity of the Spark driver in /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog_spark.sink import driver_process
from kafkalog_spark.sink.driver_process import _Process, find_driver, has_ended, is_visible

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system has no /proc")

NAMES_THIS_PROCESS = """
import sys
with open("/proc/self/comm", "wb", buffering=0) as name:
    name.write(sys.argv[1].encode()[:15])
print(flush=True)
sys.stdin.read()
"""


def running(name: str) -> subprocess.Popen[bytes]:
    """Start a process with this name, which the kernel cuts after 15 bytes."""
    command = [sys.executable, "-c", NAMES_THIS_PROCESS, name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def put_ancestors(monkeypatch: pytest.MonkeyPatch, processes: dict[int, _Process]) -> None:
    """Let the parent of this process be 70, and /proc contain `processes` and this process."""
    monkeypatch.setattr(os, "getppid", lambda: 70)
    known = processes | {os.getpid(): _Process("python3", 70, 900)}
    monkeypatch.setattr(driver_process, "_read_process", known.get)


def test_nearest_jvm_is_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon, jvm, older_jvm = _Process("python3", 50, 3), _Process("java", 40, 2), _Process("java", 1, 1)
    put_ancestors(monkeypatch, {70: daemon, 50: jvm, 40: older_jvm, 1: _Process("systemd", 0, 0)})
    driver = find_driver()
    assert driver is not None
    assert (driver.pid, driver.start) == (50, 2)


def test_jvm_that_is_the_first_process_of_a_container_is_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """`docker run IMAGE spark-submit ...`: every script on the way executes the next program in its place."""
    put_ancestors(monkeypatch, {70: _Process("python3", 1, 3), 1: _Process("java", 0, 2)})
    driver = find_driver()
    assert driver is not None
    assert (driver.pid, driver.start) == (1, 2)


def test_process_without_a_jvm_is_its_own_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    put_ancestors(monkeypatch, {70: _Process("bash", 1, 3), 1: _Process("systemd", 0, 2)})
    driver = find_driver()
    assert driver is not None
    assert (driver.pid, driver.start) == (os.getpid(), 900)
    assert is_visible(driver)


def test_process_with_a_name_cut_within_a_character_is_found() -> None:
    process = running("kafkalog-abcde\N{LATIN SMALL LETTER E WITH ACUTE}")
    with process:
        found = driver_process._read_process(process.pid)
        assert found is not None
        assert found.name.startswith("kafkalog-abcde")
        assert found.parent == os.getpid()
        this = find_driver()
        assert this is not None
        assert not has_ended(this)
        process.kill()
    assert driver_process._read_process(process.pid) is None
