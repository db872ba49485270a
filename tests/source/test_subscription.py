"""Which partitions are read: Spark's ConsumerStrategySuite without a broker."""

from __future__ import annotations

import pytest

from kafkalog_spark.errors import UnknownPartition
from kafkalog_spark.source.subscription import Subscription, assigned_partitions

PRESENT = [("orders", 1), ("orders", 0), ("orders-2", 0), ("users", 10), ("users", 9), ("__consumer_offsets", 0)]


def test_no_subscription_reads_every_topic_that_is_not_internal() -> None:
    assert assigned_partitions(Subscription(), [*PRESENT, ("__transaction_state", 3), ("__cluster_metadata", 0)]) == [
        ("orders", 0),
        ("orders", 1),
        ("orders-2", 0),
        ("users", 9),
        ("users", 10),
    ]


def test_subscribe_reads_all_partitions_of_the_topics_named() -> None:
    assert assigned_partitions(Subscription(topics=("users", "orders")), PRESENT) == [
        ("orders", 0),
        ("orders", 1),
        ("users", 9),
        ("users", 10),
    ]


def test_pattern_may_match_a_part_of_the_topic_name() -> None:
    assert assigned_partitions(Subscription(pattern="rder"), PRESENT) == [("orders", 0), ("orders", 1), ("orders-2", 0)]
    assert assigned_partitions(Subscription(pattern="^orders$"), PRESENT) == [("orders", 0), ("orders", 1)]
    assert assigned_partitions(Subscription(pattern="nothing"), PRESENT) == []


def test_internal_topics_are_not_read_by_name_or_pattern_but_when_assigned() -> None:
    assert assigned_partitions(Subscription(topics=("__consumer_offsets",)), PRESENT) == []
    assert assigned_partitions(Subscription(pattern="consumer|users"), PRESENT) == [("users", 9), ("users", 10)]
    named = Subscription(partitions=(("__consumer_offsets", 0),))
    assert assigned_partitions(named, PRESENT) == [("__consumer_offsets", 0)]


def test_assigned_partitions_that_do_not_exist_are_left_out() -> None:
    assert assigned_partitions(Subscription(partitions=(("orders", 1), ("orders", 7))), PRESENT) == [("orders", 1)]


@pytest.mark.parametrize(
    "subscription", [Subscription(topics=("orders", "order")), Subscription(partitions=(("order", 0),))]
)
def test_unknown_topic_names_the_existing_topics(subscription: Subscription) -> None:
    with pytest.raises(UnknownPartition) as caught:
        assigned_partitions(subscription, PRESENT)
    assert str(caught.value) == (
        "the log directory holds no topic order; did you mean orders, orders-2? "
        "It holds __consumer_offsets, orders, orders-2, users"
    )
    with pytest.raises(UnknownPartition, match="it holds no topic at all"):
        assigned_partitions(subscription, [])
