"""A mirror of a real Kafka has the same batches, also after deletions, compaction and kills."""

from __future__ import annotations

import itertools
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from kafkalog_broker.mirror.client_properties import ClientSettings
from kafkalog_broker.protocol.mirror_messages import FETCH
from kafkalog_broker.storage.append.fetched_batches import parse_fetched_batches
from kafkalog_broker.storage.partition.follower import Follower
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.recovery.log_loader import LoadRequest, load_log
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, read_leader_epochs
from kafkalog_spark.log.tiered.remote_segment import TopicIdPartition
from tests.broker.mirror.helpers.mirrors import MirrorProcess, findings, log_data, mirror_once, same_logs
from tests.broker.storage.helpers.loaded_logs import records
from tests.broker.storage.helpers.stored_logs import NOW, TOPIC_ID, log_config
from tests.interop.compaction import active_base, cleaned_to
from tests.interop.real_kafka import RealKafka, available, run_tool

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = ClientSettings(max_bytes=30_000, max_partition_bytes=9_000, max_wait_ms=100)
WAIT = 60


def send(bootstrap: str, topic: str, count: int, *, first: int = 0, config: Mapping[str, object] | None = None) -> None:
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 1, "batch.num.messages": 20, **(config or {})}
    producer = Producer(settings)
    for number in range(first, first + count):
        producer.produce(topic, b"value %d" % number * 5, b"key %d" % (number % 50))
        producer.poll(0)
    assert producer.flush(WAIT) == 0


def transactions(bootstrap: str, topic: str) -> None:
    """Write two interleaved transactions, one committed and one aborted, and one that stays open."""

    def begun(name: str) -> Producer:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{topic} {name}", "transaction.timeout.ms": 900_000}
        )
        producer.init_transactions(WAIT)
        return producer

    producers = [begun(name) for name in ("commit", "abort", "open")]
    for round_ in range(4):
        for producer in producers[: 2 if round_ < 3 else 3]:
            producer.begin_transaction()
        for number, producer in itertools.product(range(10), producers[: 2 if round_ < 3 else 3]):
            producer.produce(topic, b"%d %d" % (round_, number))
            producer.flush(WAIT)
        producers[0].commit_transaction(WAIT)
        producers[1].abort_transaction(WAIT)
    for name in ("commit", "abort"):
        begun(name)  # waits for the last markers, which Kafka writes after its answer


def headers(directory: Path, topic: str, partition: int = 0) -> list[str]:
    """Return DumpLogSegments' line for each batch, without the position."""
    logs = sorted((directory / f"{topic}-{partition}").glob("*.log"))
    told = run_tool("DumpLogSegments", "--files", ",".join(map(str, logs)))
    lines = [line for line in told.splitlines() if line.startswith("baseOffset")]
    return [re.sub(r" position: \d+", "", line) for line in lines]


def epochs(directory: Path, topic: str) -> list[tuple[int, int]]:
    return [
        (entry.epoch, entry.start_offset)
        for entry in read_leader_epochs(directory / f"{topic}-0" / LEADER_EPOCH_CHECKPOINT)
    ]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    made = RealKafka(
        tmp_path_factory.mktemp("kafka"),
        {"log.cleaner.backoff.ms": 200, "log.retention.check.interval.ms": 500, "file.delete.delay.ms": 100},
        short_lived=True,
    )
    with made as running:
        yield running


def test_mirrored_batches_equal_those_of_kafka(kafka: RealKafka, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    topics = [f"codec-{codec}" for codec in CODECS]
    for topic, codec in zip(topics, CODECS, strict=True):
        kafka.create_topic(topic, 1, {"internal.segment.bytes": 40_000})
        send(kafka.bootstrap, topic, 2000, config={"compression.type": codec, "enable.idempotence": True})
    kafka.create_topic("moves", 1)
    transactions(kafka.bootstrap, "moves")
    names = "codec-.*|moves|__transaction_state"
    mirror_once(kafka.bootstrap, mirror, names, settings=SMALL, internal=True)
    for topic in [*topics, "moves"]:
        assert log_data(mirror, topic) == log_data(kafka.data_dir, topic), topic
        assert epochs(mirror, topic) == epochs(kafka.data_dir, topic), topic
    for topic in ("codec-zstd", "moves", "__transaction_state"):
        assert headers(mirror, topic) == headers(kafka.data_dir, topic), topic
    assert findings(mirror) == []


def test_mirror_follows_added_partitions_a_recreated_topic_and_deleted_records(
    kafka: RealKafka, tmp_path: Path
) -> None:
    mirror = tmp_path / "mirror"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    kafka.create_topic("changing", 1, {"internal.segment.bytes": 20_000})
    send(kafka.bootstrap, "changing", 1000)
    with MirrorProcess(kafka.bootstrap, mirror, "-X", "fetch.wait.max.ms=50", topics="changing") as running:
        until(lambda: same(mirror, kafka, "changing"))
        deleted = [TopicPartition("changing", 0, 600)]
        admin.delete_records(deleted)[deleted[0]].result(WAIT)
        send(kafka.bootstrap, "changing", 10)
        until(lambda: (0, 600) in [(p, o) for _, p, o in checkpoint(mirror, running)])
        admin.create_partitions([NewPartitions("changing", 2)])["changing"].result(WAIT)
        until(lambda: (mirror / "changing-1").exists())
        admin.delete_topics(["changing"])["changing"].result(WAIT)
        until(lambda: "changing" not in admin.list_topics(timeout=WAIT).topics)
        kafka.create_topic("changing", 1)
        send(kafka.bootstrap, "changing", 300, first=7000)
        until(lambda: "starting again" in running.log() and same(mirror, kafka, "changing"))
        assert running.stop() == 0
    assert not (mirror / "changing-1").exists()
    assert findings(mirror) == []


def checkpoint(mirror: Path, running: MirrorProcess) -> list[tuple[str, int, int]]:
    """The log start offsets, as the mirror writes them when it stops."""
    assert running.stop() == 0
    lines = (mirror / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    starts = running.log().count("log directory ")
    running.start()
    until(lambda: running.log().count("log directory ") > starts)  # it can be asked to stop now
    return [(topic, int(partition), int(offset)) for topic, partition, offset in map(str.split, lines)]


def same(mirror: Path, kafka: RealKafka, topic: str, partition: int = 0) -> bool:
    return same_logs(mirror, kafka.data_dir, topic, partition)


def until(is_so, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def test_compacted_log_is_copied_with_its_gaps(kafka: RealKafka, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    settings = {
        "cleanup.policy": "compact", "internal.segment.bytes": 20_000, "min.cleanable.dirty.ratio": 0.01,
        "delete.retention.ms": 100, "segment.ms": 1000,
    }  # fmt: skip
    kafka.create_topic("keyed", 1, settings)
    send(kafka.bootstrap, "keyed", 4000, config={"compression.type": "lz4"})
    time.sleep(1.1)  # segment.ms: the last segment can be cleaned, once something else comes
    send(kafka.bootstrap, "keyed", 10)
    active = active_base(kafka.partition_dir("keyed"))
    until(lambda: cleaned_to(kafka.data_dir).get("keyed", 0) == active)  # nothing is left for the cleaner
    assert len(log_data(kafka.data_dir, "keyed")) < 60_000
    mirror_once(kafka.bootstrap, mirror, "keyed", settings=SMALL)
    assert log_data(mirror, "keyed") == log_data(kafka.data_dir, "keyed")
    assert headers(mirror, "keyed") == headers(kafka.data_dir, "keyed")
    assert findings(mirror) == []


@pytest.mark.parametrize("version", [11, 12, 13])
def test_diverging_mirror_is_truncated(
    kafka: RealKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    """As after an unclean election: the mirror has batches that no leader has any more, and the next leader epoch goes
    on before them. Fetch 11 does not say so; OffsetForLeaderEpoch does."""
    mirror, topic = tmp_path / "mirror", f"parted-{version}"
    kafka.create_topic(topic)
    send(kafka.bootstrap, topic, 300)
    mirror_once(kafka.bootstrap, mirror, topic, settings=SMALL)
    directory = mirror / f"{topic}-0"
    log = Log(
        TopicIdPartition(topic, TOPIC_ID, 0), log_config(), load_log(LoadRequest(directory=directory, clean=True)), NOW
    )
    end = log.log_end_offset
    lost = b"".join(records(end + i, leader_epoch=log.leader_epoch) for i in range(500))
    Follower(log).append(parse_fetched_batches(memoryview(lost)), NOW)
    log.close()
    kafka.stop()
    kafka.start()  # which begins a leader epoch
    send(kafka.bootstrap, topic, 700)
    mirror_once(kafka.bootstrap, mirror, topic, settings=SMALL, max_versions={FETCH: version})
    assert f"offsets {end} to {end + 499} here" in caplog.text
    assert log_data(mirror, topic) == log_data(kafka.data_dir, topic)
    assert epochs(mirror, topic) == epochs(kafka.data_dir, topic)
    assert findings(mirror) == []


class Load:
    """Producers, one of them transactional, until it is stopped. Whatever fails while the source is down is sent again
    by somebody else later."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        self._bootstrap = bootstrap
        self._topics = topics
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        codecs = itertools.cycle(CODECS)
        while not self._stop.is_set():
            producer = Producer(
                {"bootstrap.servers": self._bootstrap, "compression.type": next(codecs), "message.timeout.ms": 20_000,
                 "linger.ms": 2}
            )  # fmt: skip
            for number in range(1000):
                producer.produce(self._topics[number % len(self._topics)], b"%d" % number * 20, b"%d" % (number % 90))
                producer.poll(0)
            producer.flush(20)
            time.sleep(0.05)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(WAIT)


@pytest.mark.parametrize(
    ("kills", "source_kills"), [(4, 1), pytest.param(30, 5, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_kills_of_mirror_and_source_lose_and_duplicate_no_record(tmp_path: Path, kills: int, source_kills: int) -> None:
    kafka, mirror = RealKafka(tmp_path / "kafka", short_lived=True), tmp_path / "mirror"
    with kafka:
        for topic in ("orders", "clicks"):
            kafka.create_topic(topic, 2, {"internal.segment.bytes": 100_000})
        running = MirrorProcess(kafka.bootstrap, mirror, "-X", "fetch.wait.max.ms=50", topics="orders|clicks")
        kill_source_at = set(range(kills // (source_kills + 1), kills, kills // source_kills))
        with Load(kafka.bootstrap, ["orders", "clicks"]):
            for number in range(kills):
                with running:
                    before = held(mirror)
                    until(lambda before=before: held(mirror) > before)
                    if number in kill_source_at:
                        kafka.kill()
                        kafka.start()
                        before = held(mirror)
                        until(lambda before=before: held(mirror) > before)
        mirror_once(kafka.bootstrap, mirror, "orders|clicks")
        for topic, partition in itertools.product(("orders", "clicks"), range(2)):
            assert log_data(mirror, topic, partition) == log_data(kafka.data_dir, topic, partition)
        assert findings(mirror) == []
        assert headers(mirror, "orders") == headers(kafka.data_dir, "orders")


def held(mirror: Path) -> int:
    """Return the size of the logs in bytes."""
    return sum(path.stat().st_size for path in mirror.glob("*/*.log"))


def test_kafka_loads_the_mirrored_directory(tmp_path: Path) -> None:
    kafka, mirror = RealKafka(tmp_path / "kafka", short_lived=True), tmp_path / "mirror"
    with kafka:
        kafka.create_topic("orders", 1, {"internal.segment.bytes": 40_000})
        kafka.create_topic("moves", 1)
        send(kafka.bootstrap, "orders", 3000, config={"compression.type": "zstd", "enable.idempotence": True})
        transactions(kafka.bootstrap, "moves")
        before = {topic: kafka.consume(topic, isolation_level="read_committed") for topic in ("orders", "moves")}
        mirror_once(kafka.bootstrap, mirror, "orders|moves")
    for topic in before:
        shutil.rmtree(kafka.partition_dir(topic))
        shutil.copytree(mirror / f"{topic}-0", kafka.partition_dir(topic))
    kafka.start()
    try:
        for topic, rows in before.items():
            assert kafka.consume(topic, isolation_level="read_committed") == rows
        send(kafka.bootstrap, "orders", 10)
        assert len(kafka.consume("orders")) == 3010
    finally:
        kafka.stop()
    data = {topic: log_data(mirror, topic) for topic in before}
    for topic, copied in data.items():
        assert log_data(kafka.data_dir, topic).startswith(copied)
