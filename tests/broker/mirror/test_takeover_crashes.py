"""A crash at any step of a takeover: the next start completes it with the same result."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.config.server_properties import DEFAULTS_WITHOUT_FILE
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.mirror import takeover
from kafkalog_broker.mirror.mirror_file import MIRROR_FILE, check_source, is_mirror
from kafkalog_broker.mirror.mirrored_topics import CONFIGS
from kafkalog_broker.mirror.takeover_record import (
    TAKEOVER_FILE,
    PartitionTakeover,
    TakeoverRecord,
    read_record,
    write_record,
)
from kafkalog_broker.runtime.clock import SystemClock
from kafkalog_broker.storage.append.fetched_batches import parse_fetched_batches
from kafkalog_broker.storage.log_directories import open_log_dirs
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.follower import Follower
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.format import layout
from kafkalog_spark.format.checkpoint import LEADER_EPOCH_CHECKPOINT, read_leader_epochs
from kafkalog_spark.format.names import CLEAN_SHUTDOWN_FILE
from kafkalog_spark.format.partition_metadata import new_uuid
from kafkalog_spark.log.write.encoded_batch import build_batch
from tests.broker.mirror.helpers.mirrors import log_data
from tests.broker.storage.helpers.stored_logs import append_records
from tests.log.helpers.sync_watch import SyncWatch

INTERNAL = {"__consumer_offsets": {"cleanup.policy": "compact"}}


class Crash(Exception):
    pass


class Opened:
    """The logs of a directory, opened as by a broker that does not serve yet."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.config = BrokerConfig.from_properties(DEFAULTS_WITHOUT_FILE, {"log.dirs": str(directory)})
        self.dirs = open_log_dirs(self.config.log_dirs, self.config.node_id, 0)
        self.topics = TopicRegistry(self.dirs.all)
        self.topics.load()
        self.logs = LogManager(self.dirs, self.config, self.topics, SystemClock())
        self.logs.load()

    def close(self, *, cleanly: bool = True) -> None:
        if cleanly:
            self.logs.shutdown()
        else:
            for log in self.logs.logs():
                log.discard()
        self.dirs.close()


def batch(base_offset: int, count: int, producer_id: int = -1, *, epoch: int = 7) -> bytes:
    transaction = {
        "producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0,
        "attributes": layout.ATTRIBUTE_TRANSACTIONAL,
    }  # fmt: skip
    made = build_batch(
        [(None, b"%d" % number) for number in range(count)], 1000, base_offset=base_offset, leader_epoch=epoch,
        **(transaction if producer_id >= 0 else {}),
    )  # fmt: skip
    return bytes(made.data)


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions: in orders-0 a transaction is open from offset 10 on, its log ends at 25; orders-1 ends at 5."""
    directory = tmp_path_factory.mktemp("made") / "mirror"
    opened = Opened(directory)
    check_source(directory, "cluster", is_empty=True)
    for name, partitions in (("orders", 2), ("__consumer_offsets", 1)):
        (topic,) = opened.topics.create_all([Topic(name, new_uuid(), partitions, CONFIGS)])
        assert isinstance(topic, Topic)
        for partition in range(partitions):
            opened.logs.create(name, partition, topic.id, LogConfig.of(opened.config, CONFIGS))
    append(opened, 0, batch(0, 10) + batch(10, 5, 42) + batch(15, 10))
    append(opened, 1, batch(0, 5))
    opened.close()
    return directory


def append(opened: Opened, partition: int, data: bytes) -> None:
    log = opened.logs.get("orders", partition)
    assert log is not None
    Follower(log).append(parse_fetched_batches(memoryview(data)), 1000)


@pytest.fixture
def copy(mirror: Path, tmp_path: Path) -> Path:
    shutil.copytree(mirror, tmp_path / "mirror")
    return tmp_path / "mirror"


def take_over(directory: Path) -> bool:
    opened = Opened(directory)
    try:
        done = takeover.take_over(directory, opened.logs, opened.topics, INTERNAL)
    except BaseException:
        opened.close(cleanly=False)
        raise
    opened.close()
    return done


def state(directory: Path) -> tuple[object, ...]:
    epochs = [
        [(entry.epoch, entry.start_offset) for entry in read_leader_epochs(directory / name / LEADER_EPOCH_CHECKPOINT)]
        for name in ("orders-0", "orders-1", "__consumer_offsets-0")
    ]
    opened = Opened(directory)
    configs = {topic.name: dict(topic.configs) for topic in opened.topics}
    first = opened.logs.get("orders", 0)
    assert first is not None
    ends = first.log_end_offset, first.last_stable_offset, first.leader_epoch
    opened.close()
    return epochs, configs, ends, log_data(directory, "orders"), read_record(directory), is_mirror(directory)


@pytest.fixture(scope="module")
def expected(mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    """State after a takeover without a crash."""
    directory = tmp_path_factory.mktemp("expected") / "mirror"
    shutil.copytree(mirror, directory)
    assert take_over(directory)
    assert not take_over(directory)
    return state(directory)


def test_takeover_truncates_logs_and_aborts_transactions(expected: tuple[object, ...]) -> None:
    epochs, configs, ends, data, record, still_mirror = expected
    assert epochs == [[(7, 0), (8, 10)], [(7, 0), (8, 5)], [(1, 0)]]
    assert configs == {"orders": dict(CONFIGS), "__consumer_offsets": INTERNAL["__consumer_offsets"]}
    assert ends == (10, 10, 8)
    assert data == batch(0, 10)
    assert not still_mirror
    assert record == TakeoverRecord(
        (
            PartitionTakeover("__consumer_offsets", 0, 0, 0, 1),
            PartitionTakeover("orders", 0, 10, 25, 8),
            PartitionTakeover("orders", 1, 5, 5, 8),
        ),
        True,
    )


def steps() -> list[tuple[str, object, str, int]]:
    """Yield the crash points: before and after the nth call of each function that changes files."""
    changes = [
        (takeover, "write_record", 2), (takeover, "_truncate", 3), (takeover, "detach", 1), (Log, "lead", 3),
        (TopicRegistry, "set_all_configs", 1),
    ]  # fmt: skip
    return [
        (when, owner, name, call)
        for when in ("before", "after")
        for owner, name, calls in changes
        for call in range(calls)
    ]


@pytest.mark.parametrize(("when", "owner", "name", "call"), steps())
def test_takeover_after_a_crash_at_any_step_gives_the_same_result(copy, expected, monkeypatch, when, owner, name, call):
    original, calls = getattr(owner, name), []

    def crashing(*arguments):
        calls.append(arguments)
        if len(calls) == call + 1 and when == "before":
            raise Crash
        result = original(*arguments)
        if len(calls) == call + 1:
            raise Crash
        return result

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, crashing)
        with pytest.raises(Crash):
            take_over(copy)
    take_over(copy)
    assert state(copy) == expected


def test_takeover_has_logs_and_cuts_on_disk_before_the_mirrors_file_is_renamed(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut the logs are not truncated again, and the record has the end of each log."""
    (copy / CLEAN_SHUTDOWN_FILE).unlink()  # after a clean stop everything is on disk already
    watch, seen = SyncWatch(monkeypatch), []

    def at_rename(path: Path) -> None:
        if path.name in (TAKEOVER_FILE, f"{MIRROR_FILE}.detached"):
            unsynced = [name for part in (0, 1) for name in watch.unsynced(copy / f"orders-{part}")]
            seen.append((path.name, [name for name in unsynced if name == "." or name.endswith(".log")]))

    watch.at_rename = at_rename
    assert take_over(copy)
    assert seen == [(TAKEOVER_FILE, []), (f"{MIRROR_FILE}.detached", []), (TAKEOVER_FILE, [])]


def test_takeover_has_the_renamed_mirrors_file_on_disk_before_leader_epochs_rise(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, seen = SyncWatch(monkeypatch), []
    lead = Log.lead

    def leading(log: Log, epoch: int) -> None:
        seen.append(watch.is_synced(copy))
        lead(log, epoch)

    monkeypatch.setattr(Log, "lead", leading)
    assert take_over(copy)
    assert seen == [True, True, True]


def test_mirror_continued_after_the_crash_is_truncated_again(copy, monkeypatch):
    """Records that were truncated and copied again are not reported as truncated."""
    with monkeypatch.context() as patched:
        patched.setattr(takeover, "detach", lambda _: (_ for _ in ()).throw(Crash()))
        with pytest.raises(Crash):
            take_over(copy)
    opened = Opened(copy)
    append(opened, 0, batch(10, 30))
    opened.close()
    assert take_over(copy)
    record = read_record(copy)
    assert record is not None
    assert record.partitions[1] == PartitionTakeover("orders", 0, 40, 40, 8)


def test_corrupt_takeover_record_is_refused(tmp_path):
    assert read_record(tmp_path) is None
    write_record(tmp_path, TakeoverRecord((PartitionTakeover("t", 0, 1, 2, 3),), False))
    path = tmp_path / "kafkalog.mirror.takeover.json"
    good = path.read_text()
    path.write_text(good.replace('"version": 0', '"version": 9'))
    with pytest.raises(UnsupportedFormat):
        read_record(tmp_path)
    path.write_text(good.replace("log_end_offset", "end"))
    with pytest.raises(CorruptFile):
        read_record(tmp_path)
    assert not (tmp_path / MIRROR_FILE).exists()


@pytest.mark.parametrize("checkpointed", [2**31 - 1, 2**31])
def test_takeover_creates_no_leader_epoch_beyond_int32(copy: Path, checkpointed: int) -> None:
    """Earlier releases of the mirror copied such epochs, and earlier brokers raised them."""
    (copy / "orders-0" / LEADER_EPOCH_CHECKPOINT).write_text(f"0\n1\n{checkpointed} 0\n")
    assert take_over(copy)
    record = read_record(copy)
    assert record is not None
    write_record(copy, replace(record, is_done=False, partitions=tuple(
        replace(one, leader_epoch=2**31) for one in record.partitions
    )))  # fmt: skip
    assert take_over(copy)
    opened = Opened(copy)
    for topic, partition in (("orders", 0), ("orders", 1)):
        log = opened.logs.get(topic, partition)
        assert log is not None
        assert log.leader_epoch == 2**31 - 1
        assert append_records(log, [(None, b"written")], 2000).last_offset == log.log_end_offset - 1
    opened.close()


def test_log_without_free_offsets_refuses_records_and_all_logs_are_closed(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opened(copy)
    full, other = opened.logs.get("orders", 0), opened.logs.get("orders", 1)
    assert full is not None
    assert other is not None
    Follower(full).truncate_fully_and_start_at(2**63 - 2)
    full.lead(8)
    with pytest.raises(BrokerError, match="the log is full") as refused:
        append_records(full, [(None, b"one"), (None, b"more")], 2000)
    assert refused.value.code is ErrorCode.record_list_too_large
    assert append_records(full, [(None, b"the last one")], 2000).last_offset == 2**63 - 2
    monkeypatch.setattr(full, "close", lambda: int("no log can be closed like this"))
    opened.close()
    assert other.is_closed
    assert opened.logs.to_recover == [copy]
