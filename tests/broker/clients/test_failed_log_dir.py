"""A log directory on a disk that is full, or read-only, takes only its own partitions offline: on a real disk."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kio.schema.describe_log_dirs.v4 import request as describe_log_dirs

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.testing import RunningBroker
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.log_dir import LogDirs
from tests.broker.net.helpers.served import produce_request
from tests.log.helpers.batch_builder import V2Record, batch

pytestmark = pytest.mark.end_to_end

TOPICS = [f"t{n}" for n in range(6)]
DISK_BYTES = 24 << 20
"""Room for the preallocated indexes' pages, the broker's own files and some megabytes of records."""


def mounted(path: Path) -> bool:
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if sys.platform != "linux" or shutil.which("mount") is None:
        pytest.skip("a small disk is a tmpfs, which Linux mounts")
    path = tmp_path / "small"
    if not mounted(path):
        pytest.skip("mounting a tmpfs needs to be root")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def make_full(path: Path) -> None:
    """Fill the disk."""
    with (path / "ballast").open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


def make_read_only(path: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(path)], check=True)


def produce(broker: RunningBroker, topic: str, size: int = 60_000) -> ErrorCode:
    now = int(time.time() * 1000)
    answer = broker.ask(produce_request(topic, batch(0, [V2Record(0, now, b"k", bytes(size))], leader_epoch=-1)))
    (told,) = answer.responses[0].partition_responses
    code: ErrorCode = told.error_code
    return code


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_failed_disk_takes_only_its_partitions_offline(tmp_path: Path, small_disk: Path, how: str) -> None:
    large, small = tmp_path / "large", small_disk / "logs"
    broker = RunningBroker(tmp_path / "broker", {"log.dirs": f"{large},{small}"})
    with broker:
        for topic in TOPICS:
            broker.create_topic(topic)
        of_small = {path.name.rpartition("-")[0] for path in small.glob("t*-0")}
        assert 0 < len(of_small) < len(TOPICS)
        acknowledged = dict.fromkeys(TOPICS, 0)
        for topic in TOPICS:
            assert produce(broker, topic) is ErrorCode.none
            acknowledged[topic] += 1
        # A read-only mount is refused while files are open for writing: a broker meets it with new ones, at its start.
        if how == "read-only":
            broker.stop()
            make_read_only(small_disk)
            broker.start()
        else:
            make_full(small_disk)
        for _ in range(3):
            for topic in TOPICS:
                code = produce(broker, topic)
                assert code in (
                    (ErrorCode.none, ErrorCode.kafka_storage_error) if topic in of_small else (ErrorCode.none,)
                )
                acknowledged[topic] += code is ErrorCode.none
        assert {topic for topic in TOPICS if produce(broker, topic, 10) is ErrorCode.kafka_storage_error} == of_small
        for topic in set(TOPICS) - of_small:
            acknowledged[topic] += 1
        told = broker.ask(describe_log_dirs.DescribeLogDirsRequest(topics=None)).results
        assert {result.log_dir: result.error_code for result in told} == {
            str(large): ErrorCode.none,
            str(small): ErrorCode.kafka_storage_error,
        }
        offline = [line for line in broker.log().splitlines() if " and its partitions are offline: " in line]
        assert len(offline) == 1
        assert str(small) in offline[0]
        if how == "full":
            broker.kill()
    # What was acknowledged is in the files, on both disks.
    assert check_log_dirs([large, small]).findings.errors == 0
    for directory in (large, small):
        dirs = LogDirs.open(directory)
        for topic, _ in dirs.locations:
            assert dirs.partition(topic, 0).log_end_offset >= acknowledged[topic]


def test_broker_with_its_only_disk_full_exits_with_status_1(tmp_path: Path, small_disk: Path) -> None:
    broker = RunningBroker(tmp_path / "broker", {"log.dirs": small_disk / "logs"})
    with broker:
        broker.create_topic("t")
        assert produce(broker, "t") is ErrorCode.none
        make_full(small_disk)
        process = broker._process
        assert process is not None
        # It may go between two requests, or in the middle of one.
        with suppress(OSError):
            while process.poll() is None:
                produce(broker, "t")
        assert process.wait(120) == 1
        broker.kill()
    assert "all log directories have failed" in broker.log()
    assert "cleanly" not in broker.log()
