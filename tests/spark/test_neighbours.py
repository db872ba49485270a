"""Neighbours of a broker, each of them real: what Connect, Flink and Kafka Streams write is read from its directory."""

from __future__ import annotations

import subprocess
import time
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from kafkalog_broker.testing import running_broker
from kafkalog_spark.log.log_dir import LogDirs
from tests.interop.real_kafka import QUICK_JAVA, VERSION, available, cache_dir, maven_copy

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif(available() is not None, reason=str(available())),  # Maven has the neighbours
]
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FLINK = "2.0.0"


def jars(name: str, *artifacts: tuple[str, str, str]) -> str:
    """Java's class path."""
    maven_copy(cache_dir() / name, list(artifacts))
    return f"{cache_dir() / name}/*"


def committed(spark: SparkSession, log_dir: Path, topic: str) -> list[str]:
    """Values that a read_committed consumer sees."""
    records = spark.read.format("kafkalog").option("subscribe", topic).option("isolationLevel", "read_committed")
    return [row.value for row in records.load(str(log_dir)).selectExpr("cast(value as string)").collect()]


def log_end_offset(log_dir: Path, topic: str) -> int:
    return LogDirs.open(log_dir).partition(topic, 0).log_end_offset


def test_lines_copied_by_kafka_connect_are_read(spark: SparkSession, tmp_path: Path) -> None:
    classes = jars(
        f"connect-{VERSION}",
        ("org.apache.kafka", "connect-runtime", VERSION),
        ("org.apache.kafka", "connect-file", VERSION),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
    )
    lines = [f"line {number}" for number in range(1000)]
    source = tmp_path / "lines.txt"
    source.write_text("".join(f"{line}\n" for line in lines[:600]))
    with running_broker(topics={"lines": 1}) as broker:
        worker = (EXAMPLES / "connect" / "worker.properties").read_text()
        (tmp_path / "worker.properties").write_text(worker.replace("localhost:9092", broker.bootstrap))
        command = ["java", *QUICK_JAVA, "-cp", classes, "org.apache.kafka.connect.cli.ConnectStandalone"]
        command += ["worker.properties", str(EXAMPLES / "connect" / "lines.properties")]
        with (tmp_path / "connect.log").open("wb") as log:
            connect = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
        try:
            for count in (600, 1000):
                end = time.monotonic() + 180
                while log_end_offset(broker.log_dir, "lines") < count:
                    said = (tmp_path / "connect.log").read_text(errors="replace")[-3000:]
                    assert connect.poll() is None, said
                    assert time.monotonic() < end, said
                    time.sleep(0.2)
                with source.open("a") as grows:
                    grows.writelines(f"{line}\n" for line in lines[count:])
        finally:
            connect.terminate()
            connect.wait(60)
        assert committed(spark, broker.log_dir, "lines") == lines


def test_flink_exactly_once_output_is_read_once_after_a_failure(spark: SparkSession, tmp_path: Path) -> None:
    classes = jars(
        f"flink-{FLINK}",
        ("org.apache.flink", "flink-clients", FLINK),
        ("org.apache.flink", "flink-streaming-java", FLINK),
        ("org.apache.flink", "flink-connector-base", FLINK),
        ("org.apache.flink", "flink-connector-datagen", FLINK),
        ("org.apache.flink", "flink-connector-kafka", "4.0.1-2.0"),
    )
    with running_broker(topics={"numbers": 1}) as broker:
        source = EXAMPLES / "flink" / "ExactlyOnce.java"
        subprocess.run(["javac", "-cp", classes, "-d", tmp_path, source], check=True)
        command = ["java", *QUICK_JAVA, "-cp", f"{tmp_path}:{classes}", "ExactlyOnce"]
        ran = subprocess.run(
            [*command, broker.bootstrap, "numbers", "20000"], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert "failed once: true" in ran.stdout, (ran.stdout + ran.stderr)[-3000:]
        assert sorted(map(int, committed(spark, broker.log_dir, "numbers"))) == list(range(20000))
        # The log also has the records of the transaction that the failure aborted, and markers.
        assert log_end_offset(broker.log_dir, "numbers") > 20000


def test_word_counts_of_a_killed_kafka_streams_app_are_exact(spark: SparkSession, tmp_path: Path) -> None:
    classes = jars(
        f"streams-{VERSION}",
        ("org.apache.kafka", "kafka-streams", VERSION),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
        ("org.apache.logging.log4j", "log4j-core", "2.25.4"),
    )
    subprocess.run(["javac", "-cp", classes, "-d", tmp_path, EXAMPLES / "streams" / "WordCount.java"], check=True)
    properties = {"group.streams.session.timeout.ms": 6000, "group.streams.min.session.timeout.ms": 6000}
    with running_broker(properties, topics={"words": 2, "counts": 1}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        command = [
            "java",
            *QUICK_JAVA,
            "-cp",
            f"{tmp_path}:{classes}",
            "WordCount",
            broker.bootstrap,
            "words",
            "counts",
        ]
        for lines in (300, 600):  # of two words each
            for number in range(lines - 300, lines):
                producer.produce("words", f"even{number % 2} word{number % 7}")
            assert not producer.flush(60)
            with (tmp_path / "streams.log").open("wb") as log:
                streams = subprocess.Popen(
                    [*command, broker.bootstrap, "words", "counts"], cwd=tmp_path, stdout=log, stderr=log
                )
            try:
                end = time.monotonic() + 180
                while len(found := committed(spark, broker.log_dir, "counts")) < 2 * lines:
                    said = (tmp_path / "streams.log").read_text(errors="replace")[-3000:]
                    assert streams.poll() is None, said
                    assert time.monotonic() < end, said
            finally:
                streams.kill()
                streams.wait(60)
        counts: dict[str, list[int]] = defaultdict(list)
        for word, count in map(str.split, found):
            counts[word].append(int(count))
        assert len(counts) == 9
        assert all(of_word == list(range(1, len(of_word) + 1)) for of_word in counts.values())
