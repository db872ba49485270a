"""A log manager over log directories, with a manual clock."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.log_directories import LogDirectories, open_log_dirs
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.partition.log import Log
from kafkalog_broker.storage.topic import Topic
from tests.broker.manual_clock import ManualClock
from tests.broker.storage.helpers.one_topic import OneTopicRegistry
from tests.broker.storage.helpers.stored_logs import read_all, validated

NOW = 1_700_000_000_000
MARKER = ".kafka_cleanshutdown"
RECOVERY = "recovery-point-offset-checkpoint"
START = "log-start-offset-checkpoint"
HIGH = "replication-offset-checkpoint"


@dataclass
class Started:
    """The registry, logs and clock of one start of a broker."""

    dirs: LogDirectories
    topics: OneTopicRegistry
    logs: LogManager
    clock: ManualClock
    config: BrokerConfig

    def create(self, name, partitions=1, **configs):
        topic = self.topics.create(name, partitions, {key.replace("_", "."): str(v) for key, v in configs.items()})
        self.create_logs(topic)
        return topic

    def create_logs(self, topic):
        """The logs that a topic of the registry has not got yet: of a new one, or after add_partitions."""
        new = [number for number in range(topic.partitions) if (topic.name, number) not in self.logs.partitions()]
        places = self.logs.prepare_partitions({(topic.name, number): topic.id for number in new})
        config = LogConfig.of(self.config, topic.configs)
        try:
            return [self.logs.create(topic.name, number, topic.id, config, places) for number in new]
        finally:
            places.remove_unused()

    def topic(self, name="orders") -> Topic:
        topic = self.topics.get(name)
        assert topic is not None
        return topic

    def log(self, topic="orders", partition=0) -> Log:
        log = self.logs.get(topic, partition)
        assert log is not None
        return log

    def append(self, topic="orders", partition=0, count=1, **fields):
        return self.log(topic, partition).append(validated(count, **fields), self.clock.now_ms())

    def tick(self, ms=0):
        self.logs.tick(self.clock.advance(ms))

    def crash(self):
        """Release the lock without a flush, close or write, like a killed process."""
        self.dirs.close()


def started(*paths, clock=None, progress=None, properties=None, options=None) -> Started:
    clock = clock or ManualClock(NOW)
    # Small indexes: copies of 10 MB of preallocated zeros are what most of these tests would spend their time on.
    small = {"log.index.size.max.bytes": 1200}
    config = BrokerConfig.from_properties({"log.dirs": ",".join(map(str, paths)), **small, **(properties or {})})
    dirs = open_log_dirs(paths, 1, clock.now_ms())
    topics = OneTopicRegistry(dirs.all)
    topics.load()
    logs = LogManager(dirs, config, topics, clock, **(options or {}))
    logs.load(progress)
    return Started(dirs, topics, logs, clock, config)


def block_writing_aside(path: Path) -> None:
    """Let no replacement of this state file succeed any more: directories stand in its way, and are not empty."""
    for suffix in (".tmp", ".tmp.damaged"):
        (path.with_name(path.name + suffix) / "full").mkdir(parents=True)


def killed(path: Path, target: Path) -> Path:
    """A copy of a log directory while its broker runs: what is on disk when it is killed at this moment."""
    return Path(shutil.copytree(path, target))


def offsets_of(broker: Started, topic="orders", partition=0):
    log = broker.log(topic, partition)
    return log.log_start_offset, log.log_end_offset


def content(broker: Started, topic="orders", partition=0):
    return read_all(broker.log(topic, partition))


def refused(code, call, *args):
    """Return the text of the BrokerError that the call raises; assert that its code is `code`."""
    with pytest.raises(BrokerError) as caught:
        call(*args)
    assert caught.value.code.name == code
    return str(caught.value)
