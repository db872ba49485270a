"""Make tests/golden/kafka-4.3.0-tiered again: what Kafka with LocalTieredStorage writes, and what consumers read.

    python -m tests.tiered.make_golden WORK_DIR [clean] [killed] [leaders]

Needs Java and Maven, as the interop tests do. Three clusters: `clean` is stopped as it should be, `killed` is killed
while it copies a segment, in `leaders` two brokers of three lead in turns. Of each: `data` (the
log directory, without topics that do not matter; of the last leader), `remote` (rsm.config.dir), and `manifest` as
the other golden directories have it (tests/golden_data.py), with remote-log-metadata.txt.gz: `__remote_log_metadata` as
Kafka's formatter prints it. Topic ids, segment ids and the times of events differ from run to run; records do not.
"""

from __future__ import annotations

import base64
import ctypes
import gzip
import json
import os
import random
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.golden_data import GOLDEN
from tests.log.tiered.tiered_cluster import TieredNode
from tests.log.tiered.tiered_kafka import TIERED_TOPIC, TieredKafka

TARGET = GOLDEN / "kafka-4.3.0-tiered"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP = 1_714_521_600_000  # ms; 2024-05-01
WAIT = 60
KEPT_INTERNAL = "__remote_log_metadata"
INDEX_CACHE = "remote-log-index-cache"  # copies of indexes that a broker fetched: no partition
KEPT_CACHE_FILES = 6
IN_CREATE = 0x100  # sys/inotify.h
_TYPE_NAMES = {-1: "None", 0: "CreateTime", 1: "LogAppendTime"}


class Filler:
    """Records that are the same in every run."""

    def __init__(self, kafka: TieredKafka, seed: int) -> None:
        self.kafka = kafka
        self.random = random.Random(seed)
        self.count = 0

    def producer(self, **settings: Any) -> Any:
        from confluent_kafka import Producer

        given = {name.replace("_", "."): value for name, value in settings.items()}
        # librdkafka's own log would be about a broker that this script restarts
        quiet = {
            "bootstrap.servers": self.kafka.bootstrap,
            "log_level": 0,
            "linger.ms": 200,
            "enable.idempotence": False,
        }
        return Producer({**quiet, **given})

    def send(self, producer: Any, topic: str, partition: int, count: int, *, headers: bool = False) -> None:
        """`count` records in batches of 1 to 30, and wait for each batch."""
        while count:
            for _ in range(batch := min(count, self.random.randint(1, 30))):
                producer.produce(topic, partition=partition, **self._record(headers))
            producer.flush(WAIT)
            count -= batch

    def _record(self, headers: bool) -> dict[str, Any]:
        self.count += 1
        value = self.random.choice((b"", None, *[self._text()] * 18))
        given: dict[str, Any] = {
            "key": self.random.choice((None, b"", b"key %d" % (self.count % 17))),
            "value": value,
            # mostly rising, as clocks are
            "timestamp": FIRST_TIMESTAMP + 1000 * self.count - self.random.choice((0, 0, 0, 2500)),
        }
        if headers:
            names = ("trace", "", "größe", "trace")
            given["headers"] = [
                (self.random.choice(names), self.random.choice((None, b"", b"h%d" % self.count)))
                for _ in range(self.random.randint(0, 4))
            ]
        return given

    def _text(self) -> bytes:
        words = [b"order", b"paid", b"sent", b"cancelled", b"%d" % self.count, self.random.randbytes(6)]
        return b" ".join(self.random.choice(words) for _ in range(self.random.randint(2, 30)))


def fill_plain(kafka: TieredKafka, fill: Filler) -> None:
    kafka.create_topic("plain", 2, TIERED_TOPIC)
    for partition in (0, 1):
        fill.send(fill.producer(), "plain", partition, 900)
    kafka.create_topic("headers", 1, TIERED_TOPIC)
    fill.send(fill.producer(), "headers", 0, 500, headers=True)
    kafka.create_topic("codecs", 1, TIERED_TOPIC)
    for turn in range(10):
        fill.send(fill.producer(compression_type=CODECS[turn % 5]), "codecs", 0, 160)
    kafka.create_topic("empty", 1, TIERED_TOPIC)


def fill_overlap(kafka: TieredKafka, fill: Filler) -> None:
    """Segments that are both local and remote."""
    kafka.create_topic("overlap", 1, {**TIERED_TOPIC, "local.retention.ms": -2})
    fill.send(fill.producer(), "overlap", 0, 800)


def fill_transactions(kafka: TieredKafka, fill: Filler) -> list[Any]:
    """Transactions across segments, interleaved, some aborted; the last one stays open. Returns its producer."""
    kafka.create_topic("transactions", 1, TIERED_TOPIC)
    plain = fill.producer()
    made = []
    for name in ("one", "two", "three"):
        made.append(fill.producer(transactional_id=name, enable_idempotence=True, transaction_timeout_ms=900_000))
        made[-1].init_transactions(WAIT)
    for turn in range(12):
        open_now = made[: 2 + turn % 2]
        for producer in open_now:
            producer.begin_transaction()
        for _ in range(3):
            for producer in open_now:
                fill.send(producer, "transactions", 0, 25)
            fill.send(plain, "transactions", 0, 5)
        for number, producer in enumerate(open_now):
            if (turn + number) % 2:
                producer.commit_transaction(WAIT)
            else:
                producer.abort_transaction(WAIT)
    fill.send(plain, "transactions", 0, 40)
    made[0].begin_transaction()
    fill.send(made[0], "transactions", 0, 30)
    fill.send(plain, "transactions", 0, 300)
    return made


def delete_prefix(kafka: TieredKafka, fill: Filler) -> None:
    """DeleteRecords into the middle of a remote segment."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    kafka.create_topic("deleted-prefix", 1, TIERED_TOPIC)
    fill.send(fill.producer(), "deleted-prefix", 0, 900)
    kafka.wait_until_copied("deleted-prefix")
    starts = [int(path.name[:20]) for path in kafka.remote_files("deleted-prefix", 0, ".log")]
    place = TopicPartition("deleted-prefix", 0, (starts[2] + starts[3]) // 2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.delete_records([place]).values():
        future.result(WAIT)
    kafka.wait_until(
        "segments below the log's start are gone",
        lambda: int(kafka.remote_files("deleted-prefix", 0, ".log")[0].name[:20]) == starts[2],
    )


def delete_topic(kafka: TieredKafka, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.delete_topics([topic]).values():
        future.result(WAIT)
    kafka.wait_until("the partition's directory is gone", lambda: not list(kafka.data_dir.glob(f"{topic}-*")))


def delete_whole(kafka: TieredKafka, fill: Filler) -> None:
    """A topic that is deleted with its remote log: only events are left of it."""
    kafka.create_topic("gone", 1, TIERED_TOPIC)
    fill.send(fill.producer(), "gone", 0, 500)
    kafka.wait_until_copied("gone")
    delete_topic(kafka, "gone")
    kafka.wait_until("its remote log is gone", lambda: not kafka.remote_files("gone"))


def create_again(kafka: TieredKafka, fill: Filler) -> None:
    """A topic that is deleted and created again while the plugin's deletes do nothing: objects of both ids remain."""
    kafka.create_topic("recreated", 1, TIERED_TOPIC)
    fill.send(fill.producer(), "recreated", 0, 500)
    kafka.wait_until_copied("recreated")
    kafka.stop()
    kafka.start({"rsm.config.delete.enable": "false"})
    delete_topic(kafka, "recreated")
    before = len(kafka.remote_files("recreated", 0, ".snapshot"))
    kafka.create_topic("recreated", 1, TIERED_TOPIC)
    fill.send(fill.producer(), "recreated", 0, 450)
    kafka.wait_until("the new one is copied", lambda: len(kafka.remote_files("recreated", 0, ".snapshot")) > before)
    kafka.wait_until("and left the local log", lambda: len(kafka.local_segments("recreated")) == 1)


def make_clean(work: Path) -> None:
    kafka = TieredKafka(work / "clean")
    with kafka:
        fill = Filler(kafka, 15)
        fill_plain(kafka, fill)
        fill_overlap(kafka, fill)
        producers = fill_transactions(kafka, fill)
        delete_prefix(kafka, fill)
        delete_whole(kafka, fill)
        create_again(kafka, fill)
        for topic, partition in (("plain", 0), ("plain", 1), ("headers", 0), ("codecs", 0), ("deleted-prefix", 0)):
            kafka.wait_until_copied(topic, partition)
        kafka.wait_until_copied("overlap", 0, None)
        kafka.wait_until("open transaction", lambda: len(kafka.local_segments("transactions")) <= 3)
        record_manifest(kafka, TARGET / "clean" / "manifest")
        del producers
    copy_cluster(kafka, TARGET / "clean")


def set_on_topic(kafka: TieredKafka, topic: str, name: str, value: object) -> Any:
    """Ask for it, without waiting. Returns the client, which must live until it is done."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    entry = ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])
    return admin


def has_stopped(pid: int) -> bool:
    """Whether SIGSTOP has come to every thread of the process."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(state in "Tt" for state in states)


def kill_while_copying(kafka: TieredKafka, topic: str) -> None:
    """Kill the broker at an instant at which a segment has some of its remote files.

    The kernel tells of every file that is made (inotify). The broker is stopped then, and looked at. A file that was
    being written just then is there with a part of its bytes.
    """
    pid = kafka.pid
    assert pid is not None
    kafka.wait_until("copying begins", lambda: bool(kafka.remote_files(topic)))
    libc = ctypes.CDLL(None)
    watch = libc.inotify_init1(0)
    folder = os.fsencode(kafka.remote_files(topic)[0].parent)
    if watch < 0 or libc.inotify_add_watch(watch, folder, IN_CREATE) < 0:
        raise RuntimeError("inotify does not work here")
    for _ in range(100):
        if not select.select([watch], [], [], 60)[0]:
            break
        os.read(watch, 65536)
        os.kill(pid, signal.SIGSTOP)
        kafka.wait_until("every thread has stopped", lambda: has_stopped(pid))
        names = [path.name for path in kafka.remote_files(topic)]
        logs = {name.removesuffix(".log") for name in names if name.endswith(".log")}
        if logs - {name.removesuffix(".snapshot") for name in names if name.endswith(".snapshot")}:
            kafka.kill()
            return
        os.kill(pid, signal.SIGCONT)
    raise RuntimeError("no copy was caught in the act: try again while the machine has less to do")


def make_killed(work: Path) -> None:
    kafka = TieredKafka(work / "killed")
    kafka.start({"log.dir.failure.timeout.ms": 30_000})
    fill = Filler(kafka, 16)
    # Copied from the moment on that tiered storage is switched on, when all is there.
    kafka.create_topic("killed", 1, {**TIERED_TOPIC, "remote.storage.enable": "false", "local.retention.ms": -2})
    fill.send(fill.producer(), "killed", 0, 3000)
    # On a busy machine it would run on while this script waits for its turn.
    for task in Path(f"/proc/{kafka.pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(task.name), 19)
    client = set_on_topic(kafka, "killed", "remote.storage.enable", "true")
    kill_while_copying(kafka, "killed")
    del client
    copy_cluster(kafka, TARGET / "killed")
    with kafka:
        record_manifest(kafka, TARGET / "killed" / "manifest")


def topics_of(kafka: TieredKafka) -> dict[str, int]:
    """Topic -> number of partitions, without internal ones."""
    from confluent_kafka.admin import AdminClient

    found = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=WAIT).topics
    return {name: len(found[name].partitions) for name in sorted(found) if not name.startswith("__")}


def record_manifest(kafka: TieredKafka, target: Path) -> None:
    """What consumers read, both isolation levels, and what the formatter prints."""
    target.mkdir(parents=True)
    said: dict[str, Any] = {}
    for topic, partitions in topics_of(kafka).items():
        rows = kafka.consume(topic)
        committed = {
            (row["partition"], row["offset"]) for row in kafka.consume(topic, isolation_level="read_committed")
        }
        check_with_kafkas_consumer(kafka, topic, rows, committed)
        lines = [as_line(row, (row["partition"], row["offset"]) in committed) for row in rows]
        write_gzip(target / f"{topic}.jsonl.gz", "".join(f"{json.dumps(line)}\n" for line in lines))
        said[topic] = {"partitions": {}}
        for partition in range(partitions):
            start, high_watermark = kafka.watermarks(topic, partition)
            said[topic]["partitions"][str(partition)] = {
                "log_start_offset": start,
                "high_watermark": high_watermark,
                "last_stable_offset": kafka.watermarks(topic, partition, "read_committed")[1],
                "records": sum(row["partition"] == partition for row in rows),
                "committed_records": sum(place[0] == partition for place in committed),
            }
    (target / "topics.json").write_text(json.dumps(said, indent=1) + "\n")
    write_gzip(target / "remote-log-metadata.txt.gz", kafka.metadata_events())


def check_with_kafkas_consumer(
    kafka: TieredKafka, topic: str, rows: list[dict[str, Any]], committed: set[tuple[int, int]]
) -> None:
    """Kafka's own consumer reads the same offsets as librdkafka's. Raises RuntimeError otherwise."""
    everything = {(row["partition"], row["offset"]) for row in rows}
    for level, expected in (("read_uncommitted", everything), ("read_committed", committed)):
        if not expected:
            continue
        printed = kafka.tool(
            "ConsoleConsumer", "--bootstrap-server", kafka.bootstrap, "--topic", topic, "--from-beginning",
            "--isolation-level", level, "--max-messages", len(expected), "--timeout-ms", 30_000,
            "--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true",
            "--formatter-property", "print.value=false",
        )  # fmt: skip
        found = {
            (int(words[0].split(":")[1]), int(words[1].split(":")[1]))
            for words in (line.split("\t") for line in printed.splitlines())
            if len(words) >= 2
        }
        if found != expected:
            raise RuntimeError(
                f"{topic}, {level}: {len(found ^ expected)} offsets differ: {sorted(found ^ expected)[:9]}"
            )


def as_line(row: dict[str, Any], committed: bool) -> dict[str, Any]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    return {
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": row["timestamp"],
        "timestamp_type": _TYPE_NAMES[row["timestampType"]],
        "key": text(row["key"]),
        "value": text(row["value"]),
        "headers": [[name, text(value)] for name, value in row["headers"]],
        "committed": committed,
    }


def write_gzip(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode("utf-8"), 9, mtime=0))


def copy_cluster(kafka: TieredKafka, target: Path) -> None:
    """Log directory and remote directory, without internal topics that say nothing of tiered storage."""

    def unwanted(folder: str, names: list[str]) -> list[str]:
        if Path(folder).name == INDEX_CACHE:
            return sorted(names)[KEPT_CACHE_FILES:]
        if Path(folder) != kafka.data_dir:
            return []
        internal = [name for name in names if name.startswith("__") and not name.startswith(KEPT_INTERNAL)]
        return [*internal, ".lock"]

    shutil.copytree(kafka.data_dir, target / "data", ignore=unwanted)
    shutil.copytree(kafka.remote, target / "remote", ignore=lambda _, names: [n for n in names if n.endswith(".lock")])


def make_leaders(work: Path) -> None:
    """Two brokers lead a partition in turns; whoever leads copies what it finds missing, by its own segments."""
    from confluent_kafka.admin import AdminClient, NewTopic

    folder = work / "leaders"
    first = TieredNode(folder, 1)
    nodes = {1: first, 2: TieredNode(folder, 2, first), 3: TieredNode(folder, 3, first)}
    try:
        for node in nodes.values():
            node.format()
            node.start()
            first.wait_until("the metadata topic is there", lambda: len(list(first.data_dir.glob("__remote*"))) >= 3)
        # Records of 2024: with a local retention the active segment would be rolled at once, full or not.
        settings = {name: str(value) for name, value in {**TIERED_TOPIC, "local.retention.ms": -2}.items()}
        admin = AdminClient({"bootstrap.servers": first.bootstrap, "log_level": 0})
        topic = NewTopic("leaders", 1, replica_assignment=[[2, 3]], config=settings)
        admin.create_topics([topic])["leaders"].result(WAIT)
        fill = Filler(first, 17)
        leader, follower = 2, 3
        for _ in range(3):
            first.wait_until("both are in sync", lambda: first.in_sync("leaders") == {2, 3})
            fill.send(fill.producer(), "leaders", 0, 250)
            nodes[leader].wait_until_copied("leaders", 0, None)
            nodes[leader].stop()
            expected = follower
            first.wait_until("the other one leads", lambda: first.leader_of("leaders") == expected)  # noqa: B023
            # What the stopped one misses it fetches in larger pieces than it was written in.
            fill.send(fill.producer(), "leaders", 0, 400)
            nodes[leader].start()
            leader, follower = follower, leader
        first.wait_until("both are in sync", lambda: first.in_sync("leaders") == {2, 3})
        client = set_on_topic(first, "leaders", "local.retention.ms", 1000)
        nodes[leader].wait_until_copied("leaders")
        del client
        record_manifest(first, TARGET / "leaders" / "manifest")
    except BaseException:
        for node in nodes.values():
            node.kill()
        raise
    for number in (3, 2, 1):
        nodes[number].stop()
    copy_cluster(nodes[leader], TARGET / "leaders")
    for directory in first.data_dir.glob(f"{KEPT_INTERNAL}-*"):
        shutil.copytree(directory, TARGET / "leaders" / "data" / directory.name)


STEPS: dict[str, Callable[[Path], None]] = {"clean": make_clean, "killed": make_killed, "leaders": make_leaders}


def main(argv: list[str]) -> int:
    if not argv or not set(argv[1:]) <= STEPS.keys():
        print("usage: python -m tests.tiered.make_golden WORK_DIR [clean] [killed] [leaders]", file=sys.stderr)
        return 2
    work = Path(argv[0]).resolve()
    for name in argv[1:] or STEPS:
        shutil.rmtree(TARGET / name, ignore_errors=True)
        began = time.monotonic()
        STEPS[name](work)
        print(f"{name}: {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
