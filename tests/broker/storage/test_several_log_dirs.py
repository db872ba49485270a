"""Several log directories: placement of new partitions, and the effects of a failed directory."""

from __future__ import annotations

import logging
import os
import shutil

from kafkalog_broker.storage.log_dir_usage import read_log_dir_usages
from kafkalog_broker.storage.topic_registry_file import TOPICS_FILE
from tests.broker.storage.helpers.managed_logs import (
    MARKER,
    block_writing_aside,
    content,
    offsets_of,
    refused,
    started,
)


def test_new_partition_is_created_in_the_log_directory_with_the_fewest_and_found_after_a_restart(tmp_path):
    broker = started(tmp_path / "a", tmp_path / "b")
    broker.create("orders", 5)
    for partition in range(5):
        broker.append(partition=partition, count=partition + 1)
    places = {name: sorted(os.path.basename(p) for p in (tmp_path / name).glob("orders-*")) for name in "ab"}
    assert places == {"a": ["orders-0", "orders-2", "orders-4"], "b": ["orders-1", "orders-3"]}
    broker.logs.shutdown()
    again = started(tmp_path / "b", tmp_path / "a")
    assert [offsets_of(again, partition=partition) for partition in range(5)] == [(0, n) for n in range(1, 6)]
    again.logs.shutdown()


def test_failed_log_directory_takes_only_its_partitions_offline(tmp_path, caplog):
    broker = started(tmp_path / "a", tmp_path / "b")
    broker.create("orders", 4)
    log = broker.log()
    with caplog.at_level(logging.ERROR):
        assert log.on_failure is not None
        log.on_failure(log, OSError(5, "Input/output error"))
    assert caplog.text.count("and its partitions are offline") == 1
    for partition in (0, 2):
        refused("kafka_storage_error", broker.logs.get, "orders", partition)
        assert not broker.logs.is_online("orders", partition)
    broker.append(partition=1)
    broker.create("more", 2)
    assert len(list((tmp_path / "b").glob("more-*"))) == 2
    usage = read_log_dir_usages(broker.logs)
    assert [log_dir.is_online for log_dir, *_ in usage] == [False, True]
    assert usage[0][1:] == (-1, -1, {})
    assert usage[1][3]["orders", 1] == len(content(broker, partition=1))
    broker.tick(600_000)
    broker.logs.shutdown()
    assert not (tmp_path / "a" / MARKER).exists()
    assert (tmp_path / "b" / MARKER).exists()


def test_registry_write_error_takes_the_logs_of_its_directory_offline(tmp_path):
    broker = started(tmp_path / "a", tmp_path / "b")
    broker.create("orders", 2)
    woken = []
    broker.log().subscribe(lambda: woken.append(True))
    block_writing_aside(tmp_path / "a" / TOPICS_FILE)
    broker.topics.set_configs("orders", {"retention.ms": "5"})
    assert woken
    refused("kafka_storage_error", broker.append)
    broker.append(partition=1)
    broker.logs.shutdown()


def test_partition_directory_removed_externally_takes_only_that_partition_offline(tmp_path):
    broker = started(tmp_path)
    broker.create("orders", 2)
    broker.logs.shutdown()
    again = started(tmp_path)
    shutil.rmtree(tmp_path / "orders-0")
    refused("kafka_storage_error", again.logs.get, "orders", 0)
    again.append(partition=1)
    again.logs.shutdown()


def test_partition_of_an_offline_log_directory_is_not_created_in_another(tmp_path):
    broker = started(tmp_path / "a", tmp_path / "b")
    topic = broker.create("orders", 2)
    broker.append(partition=0, count=5)
    broker.logs.shutdown()
    (tmp_path / "a").rename(tmp_path / "unplugged")
    (tmp_path / "a").write_text("")
    again = started(tmp_path / "a", tmp_path / "b")
    refused("kafka_storage_error", again.logs.get, "orders", 0)
    refused("topic_already_exists", again.logs.create, "orders", 0, topic.id, None)
    assert not again.logs.is_online("orders", 0)
    assert offsets_of(again, partition=1) == (0, 0)
    again.logs.shutdown()
    (tmp_path / "a").unlink()
    (tmp_path / "unplugged").rename(tmp_path / "a")
    back = started(tmp_path / "a", tmp_path / "b")
    assert offsets_of(back) == (0, 5)
    back.logs.shutdown()


def test_topic_deleted_while_a_log_directory_is_offline_is_removed_when_it_returns(tmp_path):
    broker = started(tmp_path / "a", tmp_path / "b")
    broker.create("orders", 2)
    broker.logs.shutdown()
    (tmp_path / "a").rename(tmp_path / "unplugged")
    (tmp_path / "a").write_text("")
    again = started(tmp_path / "a", tmp_path / "b")
    again.logs.detach_topic(again.topics.delete("orders")).finish()
    again.logs.shutdown()
    (tmp_path / "a").unlink()
    (tmp_path / "unplugged").rename(tmp_path / "a")
    back = started(tmp_path / "a", tmp_path / "b")
    assert back.logs.partitions() == []
    assert "orders" not in back.topics
    assert back.topics.deleted == frozenset()
    back.logs.shutdown()


def test_partition_creation_without_a_working_log_directory_fails(tmp_path):
    broker = started(tmp_path)
    (tmp_path / "orders-0").write_text("in the way")
    topic = broker.topics.create("orders", 1)
    refused("kafka_storage_error", broker.create_logs, topic)
    broker.logs.shutdown()


def test_cordoned_log_directory_gets_no_new_partitions(tmp_path):
    broker = started(tmp_path / "a", tmp_path / "b", properties={"cordoned.log.dirs": str(tmp_path / "a")})
    broker.create("orders", 3)
    assert len(list((tmp_path / "b").glob("orders-*"))) == 3
    broker.logs.shutdown()


def test_next_log_dir_is_the_online_one_with_the_fewest_partitions(tmp_path):
    logs = started(tmp_path / "a", tmp_path / "b", tmp_path / "c").logs
    a, b, c = logs.dirs.all
    assert logs.next_log_dir() is a
    assert logs.next_log_dir({a.path: 2, b.path: 1, c.path: 1}) is b
    b.fail(OSError("gone"))
    assert logs.next_log_dir({a.path: 2, b.path: 1, c.path: 1}) is c
    a.fail(OSError("gone"))
    c.fail(OSError("gone"))
    refused("kafka_storage_error", logs.next_log_dir)
    logs.shutdown()
