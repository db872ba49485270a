"""The harness itself: a real Kafka starts, keeps its records over a clean stop and a crash, and its tools run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.golden_data import parse_dump
from tests.interop.real_kafka import RealKafka, available

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))


def test_kafka_keeps_its_records_over_a_clean_stop_and_a_crash(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    with RealKafka(tmp_path, short_lived=True) as kafka:
        kafka.create_topic("orders", 2, {"internal.segment.bytes": 2000})
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "batch.num.messages": 5})
        for n in range(100):
            headers = [("h", None), ("h", b"x")] if n % 2 else None
            producer.produce(
                "orders", key=b"k%d" % n, value=None if n % 7 == 0 else b"v" * n, partition=n % 2, headers=headers
            )
        assert producer.flush(120) == 0
        before = kafka.consume("orders")
        assert [row["key"] for row in before if row["partition"] == 1] == [b"k%d" % n for n in range(1, 100, 2)]
        assert before[1] == {
            **before[1],
            "partition": 0,
            "offset": 1,
            "value": b"vv",
            "headers": [],
            "timestampType": 0,
        }

        kafka.stop()
        assert (kafka.data_dir / ".kafka_cleanshutdown").exists()
        segments = sorted(kafka.partition_dir("orders", 1).glob("*.log"))
        assert len(segments) > 1
        dump = parse_dump(kafka.tool("DumpLogSegments", "--files", ",".join(map(str, segments))).splitlines())
        assert sum(batch.count or 0 for batches in dump.values() for batch in batches) == 50

        kafka.start()
        assert kafka.consume("orders") == before
        kafka.kill()
        assert kafka.pid is None
        kafka.start()
        assert kafka.consume("orders") == before


def test_kafka_that_cannot_start_raises_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="log\\.segment\\.bytes"):
        RealKafka(tmp_path, {"log.segment.bytes": -5}, short_lived=True).start()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_kafka_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import os, sys, tests.interop.real_kafka as k; k.RealKafka(sys.argv[1], short_lived=True).start(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, cwd=Path(__file__).parents[2])
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.1)


def is_alive(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
