"""librdkafka's producer, consumer and admin client against the broker."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from kafkalog_broker.testing import RunningBroker

SECONDS = 120
"""For what takes one on an idle machine."""


def produced(broker: RunningBroker, topic: str, records: list[dict[str, Any]], **conf: Any) -> list[Message]:
    """Send `records` and wait; their delivery reports, in the order of delivery."""
    reports: list[Message] = []
    refused: list[Any] = []

    def delivered(error: Any, message: Message) -> None:
        refused.append(error) if error else reports.append(message)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 2, **conf})
    for record in records:
        producer.produce(topic, on_delivery=delivered, **record)
    assert producer.flush(SECONDS) == 0
    assert refused == []
    return reports


def consumed(
    broker: RunningBroker, topic: str, count: int, start: int = 0, partition: int = 0, **conf: Any
) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **conf,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        found: list[Message] = []
        while len(found) < count:
            batch = consumer.consume(count - len(found), SECONDS)
            assert batch, f"{len(found)} of {count} records came"
            for message in batch:
                assert message.error() is None, message.error()
            found += batch
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("codec", "idempotent"), [("none", False), *((codec, True) for codec in ("none", "gzip", "snappy", "lz4", "zstd"))]
)
def test_consumer_gets_records_as_they_were_produced(broker: RunningBroker, codec: str, idempotent: bool) -> None:
    topic = f"codec-{codec}-{idempotent}".lower()
    records: list[dict[str, Any]] = [
        {
            "key": None if n % 3 == 0 else b"key %d" % n,
            "value": None if n % 5 == 4 else b"value %d " % n * 20,
            "headers": [("name", b"%d" % n), ("name", None)] if n % 2 else None,
            "timestamp": 1_700_000_000_000 + n,
            "partition": 0,
        }
        for n in range(500)
    ]
    reports = produced(broker, topic, records, **{"compression.type": codec, "enable.idempotence": idempotent})
    assert [report.offset() for report in reports] == list(range(500))
    for n, message in enumerate(consumed(broker, topic, 500)):
        sent = records[n]
        assert (message.offset(), message.key(), message.value()) == (n, sent["key"], sent["value"])
        assert message.timestamp()[1] == sent["timestamp"]
        assert message.headers() == sent["headers"]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_producer_with_each_acks_setting_gets_delivery_reports(broker: RunningBroker, acks: str) -> None:
    topic = f"acks-{acks}"
    produced(broker, topic, [{"value": b"%d" % n, "partition": 0} for n in range(100)], acks=acks)
    assert [message.value() for message in consumed(broker, topic, 100)] == [b"%d" % n for n in range(100)]


def test_record_above_the_size_limit_is_refused(broker: RunningBroker) -> None:
    value = b"x" * 990_000  # librdkafka counts some bytes of its own
    produced(broker, "large", [{"value": value, "partition": 0}])
    assert consumed(broker, "large", 1)[0].value() == value
    errors = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 4_000_000})
    producer.produce("large", b"x" * 2_000_000, on_delivery=lambda error, _: errors.append(error.name()))
    assert producer.flush(SECONDS) == 0
    assert errors == ["MSG_SIZE_TOO_LARGE"]


def test_consumer_at_log_end_gets_records_produced_later(broker: RunningBroker) -> None:
    produced(broker, "later", [{"value": b"first", "partition": 0}])
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "later", "fetch.wait.max.ms": 5000})
    consumer.assign([TopicPartition("later", 0, 0)])
    first = consumer.poll(SECONDS)
    assert first is not None
    assert first.value() == b"first"
    produced(broker, "later", [{"value": b"second", "partition": 0}])
    second = consumer.poll(SECONDS)
    assert second is not None
    assert (second.offset(), second.value()) == (1, b"second")
    consumer.close()


def test_consumer_gets_offsets_for_times_and_watermarks(broker: RunningBroker) -> None:
    produced(broker, "times", [{"value": b"", "partition": 0, "timestamp": 1000 * (n + 1)} for n in range(50)])
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "times"})
    asked = [TopicPartition("times", 0, when) for when in (1, 20_000, 20_001)]
    found = [consumer.offsets_for_times([one], timeout=SECONDS)[0].offset for one in asked]
    assert found == [0, 19, 20]
    assert consumer.offsets_for_times([TopicPartition("times", 0, 60_000)], timeout=SECONDS)[0].offset == -1
    assert consumer.get_watermark_offsets(TopicPartition("times", 0), timeout=SECONDS) == (0, 50)
    consumer.close()


def test_fetch_beyond_the_log_end_is_out_of_range(broker: RunningBroker) -> None:
    produced(broker, "range", [{"value": b"", "partition": 0}])
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "range", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition("range", 0, 5)])
    message = consumer.poll(SECONDS)
    assert message is not None
    assert message.error().name() == "_AUTO_OFFSET_RESET"
    consumer.close()


def test_group_resumes_at_its_committed_offset(broker: RunningBroker) -> None:
    produced(broker, "group", [{"value": b"%d" % n, "partition": n % 2} for n in range(100)])
    conf = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    values = []
    for _ in range(2):
        consumer = Consumer(conf)
        consumer.subscribe(["group"])
        for _ in range(50):
            message = consumer.poll(SECONDS)
            assert message is not None
            assert message.error() is None, message.error()
            values.append(message.value())
        consumer.commit(asynchronous=False)
        consumer.close()
    assert sorted(values, key=int) == [b"%d" % n for n in range(100)]


def test_two_members_of_a_group_share_the_partitions(broker: RunningBroker) -> None:
    produced(broker, "shared", [{"value": b"", "partition": n % 2} for n in range(10)])
    conf = {"bootstrap.servers": broker.bootstrap, "group.id": "sharing", "auto.offset.reset": "earliest"}
    consumers = [Consumer(conf) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe(["shared"])
    end = time.monotonic() + SECONDS
    while not all(len(consumer.assignment()) == 1 for consumer in consumers):
        assert time.monotonic() < end
        for consumer in consumers:
            consumer.poll(0.1)
    assert sorted(consumer.assignment()[0].partition for consumer in consumers) == [0, 1]
    for consumer in consumers:
        consumer.close()


def test_admin_client_creates_describes_alters_enlarges_and_deletes_a_topic(broker: RunningBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = NewTopic("administered", 3, 1, config={"retention.ms": "1000000"})
    admin.create_topics([new])["administered"].result(SECONDS)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([new])["administered"].result(SECONDS)
    assert len(admin.list_topics(timeout=SECONDS).topics["administered"].partitions) == 3
    resource = ConfigResource(ResourceType.TOPIC, "administered")
    found = admin.describe_configs([resource])[resource].result(SECONDS)
    assert found["retention.ms"].value == "1000000"
    assert found["segment.bytes"].value == "1073741824"
    assert found["segment.bytes"].is_default
    admin.create_partitions([NewPartitions("administered", 5)])["administered"].result(SECONDS)
    assert len(admin.list_topics(timeout=SECONDS).topics["administered"].partitions) == 5
    admin.delete_topics(["administered"])["administered"].result(SECONDS)
    assert "administered" not in admin.list_topics(timeout=SECONDS).topics


def test_groups_are_listed_described_and_deleted(broker: RunningBroker) -> None:
    produced(broker, "described", [{"value": b"", "partition": 0}])
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "watched", "auto.offset.reset": "earliest"})
    consumer.subscribe(["described"])
    assert consumer.poll(SECONDS) is not None
    consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    group = admin.describe_consumer_groups(["watched"])["watched"].result(SECONDS)
    assert (group.state.name, len(group.members)) == ("STABLE", 1)
    assert "watched" in [listed.group_id for listed in admin.list_consumer_groups().result(SECONDS).valid]
    consumer.close()
    admin.delete_consumer_groups(["watched"])["watched"].result(SECONDS)
    assert "watched" not in [listed.group_id for listed in admin.list_consumer_groups().result(SECONDS).valid]


def test_deleted_records_are_not_fetched(broker: RunningBroker) -> None:
    produced(broker, "shortened", [{"value": b"%d" % n, "partition": 0} for n in range(10)])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    partition = TopicPartition("shortened", 0, 4)
    assert admin.delete_records([partition])[partition].result(SECONDS).low_watermark == 4
    assert consumed(broker, "shortened", 6, start=4)[0].value() == b"4"
