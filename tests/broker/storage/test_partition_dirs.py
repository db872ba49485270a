from __future__ import annotations

import logging
import uuid
from pathlib import Path

import pytest

from kafkalog_broker.storage.log_directory import LogDirectory
from kafkalog_broker.storage.partition_dirs import PartitionDir, find_partition_dirs
from kafkalog_broker.storage.registry_reconciliation import KEPT_CONFIGS, reconcile
from kafkalog_broker.storage.topic import Topic

A, B, NEW = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=99)
HOME, OTHER = LogDirectory(Path("/a"), "a"), LogDirectory(Path("/b"), "b")
ORDERS = Topic("orders", A, 2, {"retention.ms": "5"})
INTERNAL = {"__consumer_offsets": {"cleanup.policy": "compact"}}


def place(topic, partition, topic_id=None, home=HOME):
    return PartitionDir(topic, partition, home, home.path / f"{topic}-{partition}", topic_id)


def reconciled(*places, topics=(ORDERS,), deleted=(), compacted=()):
    return reconcile(places, {t.name: t for t in topics}, frozenset(deleted), compacted, lambda: NEW, INTERNAL)


def test_partition_directory_of_a_registered_topic_is_served():
    places = [place("orders", 0, A), place("orders", 1, A)]
    found = reconciled(*places)
    assert found.serve == [(places[0], ORDERS), (places[1], ORDERS)]
    assert (found.changed, found.deleted, found.strays, found.missing) == ({}, [], [], [])


def test_registered_partition_without_a_directory_is_listed_as_missing():
    assert reconciled(place("orders", 1, A)).missing == [(ORDERS, 0)]
    assert reconciled().missing == [(ORDERS, 0), (ORDERS, 1)]


def test_partition_directory_above_the_registered_count_raises_the_count():
    found = reconciled(place("orders", 4, A))
    assert found.changed == {"orders": Topic("orders", A, 5, ORDERS.configs)}
    assert found.serve[0][1] == found.changed["orders"]
    assert [partition for _, partition in found.missing] == [0, 1, 2, 3]


def test_partition_directory_of_an_unregistered_topic_registers_it_with_its_topic_id():
    found = reconciled(place("new", 1, B), place("new", 0, B), topics=())
    assert found.changed == {"new": Topic("new", B, 2, KEPT_CONFIGS)}
    assert found.missing == []


def test_partition_directory_without_metadata_gets_the_registered_or_a_new_topic_id():
    assert reconciled(place("orders", 0)).serve[0][1] is ORDERS
    assert reconciled(place("old", 0), topics=()).changed["old"].id == NEW


@pytest.mark.parametrize(
    ("topic", "compacted", "policy"),
    [("a", (), None), ("a", ("a",), "compact"), ("__consumer_offsets", (), "compact")],
)
def test_restored_topic_that_was_compacted_keeps_the_compact_policy(topic, compacted, policy):
    assert reconciled(place(topic, 0, B), topics=(), compacted=compacted).changed[topic].configs.get(
        "cleanup.policy"
    ) == (policy)


def test_partition_directory_with_another_topic_id_is_stray():
    stray = place("orders", 0, B)
    found = reconciled(stray, place("orders", 1, A))
    assert [directory for directory, _ in found.strays] == [stray]
    assert found.missing == [(ORDERS, 0)]


def test_partition_directory_of_a_deleted_topic_is_not_registered_again():
    gone = place("gone", 0, B)
    found = reconciled(gone, topics=(), deleted=[B])
    assert (found.deleted, found.changed, found.serve) == ([gone], {}, [])


def test_partition_in_two_log_directories_is_offline_and_others_are_served():
    found = reconciled(place("orders", 0, A), place("orders", 0, A, OTHER), place("orders", 1, A))
    failures = {directory.partition: directory.failure for directory, _ in found.serve}
    assert failures == {0: "it exists in /a and in /b; move one of the two out of the log directories", 1: None}
    assert found.missing == []


def test_partition_number_far_above_the_others_does_not_raise_the_count_of_an_unregistered_topic():
    found = reconciled(place("new", 0, B), place("new", 2_000_000_000, B), topics=())
    assert found.changed == {"new": Topic("new", B, 1, KEPT_CONFIGS)}
    ((stray, why),) = found.strays
    assert (stray.partition, why) == (2_000_000_000, "more than 1000 partitions of new are missing below it")


def test_unregistered_topic_gets_the_topic_id_of_any_of_its_directories():
    """With a damaged partition.metadata of partition 0, the other partitions were treated as those of another topic."""
    found = reconciled(place("new", 0), place("new", 1, B), topics=())
    assert found.changed["new"].id == B
    assert (len(found.serve), found.strays) == (2, [])


def test_stray_copy_in_another_log_directory_is_not_a_duplicate():
    found = reconciled(place("orders", 0, A), place("orders", 0, B, OTHER))
    assert len(found.serve) == len(found.strays) == 1


def test_listing_separates_live_partition_directories_from_deleted_and_foreign_ones(tmp_path, caplog):
    for name in ("b-1", "b-0", "a-10", "a-0.id-delete", "a-1.id-future", "a-2.id-stray", "__cluster_metadata-0", "no"):
        (tmp_path / name).mkdir()
    (tmp_path / "file-0").write_text("")
    (tmp_path / "b-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {'A' * 21}Q")
    (tmp_path / "b-1" / "partition.metadata").write_text("nonsense")
    with caplog.at_level(logging.WARNING):
        live, deleted = find_partition_dirs(LogDirectory(tmp_path, "id"))
    assert [(p.topic, p.partition, p.topic_id) for p in live] == [
        ("a", 10, None),
        ("b", 0, uuid.UUID(int=1)),
        ("b", 1, None),
    ]
    assert deleted == [tmp_path / "a-0.id-delete"]
    assert "expected the lines 'version: 0'" in caplog.text
