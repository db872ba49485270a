"""Tests of a Kafka client against injected faults (errors, lost responses, delays) and an advanced clock:

pytest examples/test_with_a_broker.py

Requires kafkalog with the extra `broker`, pytest and confluent-kafka. docs/testing.md describes faults and the clock.
"""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kafkalog_broker.errors import ErrorCode


@pytest.mark.kafkalog(topics={"orders": 1})
def test_a_produce_request_is_tried_again(kafkalog_broker):
    """The producer retries after not_leader_or_follower."""
    fault = kafkalog_broker.faults.add(api="Produce", topic="orders", error=ErrorCode.not_leader_or_follower, times=2)
    delivered = []
    producer = Producer({"bootstrap.servers": kafkalog_broker.bootstrap, "retry.backoff.ms": 10})
    producer.produce("orders", b"one", on_delivery=lambda error, message: delivered.append(error))
    assert producer.flush(30) == 0
    assert delivered == [None]
    assert fault.met == 2


@pytest.mark.kafkalog(topics={"orders": 1})
def test_a_lost_response_makes_no_duplicate(kafkalog_broker):
    """An idempotent producer writes no duplicate after a lost response."""
    fault = kafkalog_broker.faults.add(api="Produce", drop="after")
    producer = Producer({"bootstrap.servers": kafkalog_broker.bootstrap, "enable.idempotence": True, "log_level": 0})
    producer.produce("orders", b"one")
    assert producer.flush(30) == 0
    assert fault.met == 1
    consumer = Consumer({"bootstrap.servers": kafkalog_broker.bootstrap, "group.id": "g"})
    assert consumer.get_watermark_offsets(TopicPartition("orders", 0), 30) == (0, 1)
    consumer.close()


@pytest.mark.kafkalog(topics={"orders": 1})
def test_a_message_times_out(kafkalog_broker):
    """A slow broker makes a message time out."""
    kafkalog_broker.faults.add(api="Produce", client_id="checkout", delay=5, times=None)
    delivered = []
    producer = Producer(
        {"bootstrap.servers": kafkalog_broker.bootstrap, "client.id": "checkout", "message.timeout.ms": 300}
    )
    producer.produce("orders", b"one", on_delivery=lambda error, message: delivered.append(error.code()))
    assert producer.flush(30) == 0
    assert delivered == [KafkaError._MSG_TIMED_OUT]


@pytest.mark.kafkalog(topics={"orders": {"partitions": 1, "retention.ms": 24 * 3600 * 1000}})
def test_records_are_gone_after_a_day(kafkalog_broker):
    """Retention removes records that are a day old."""
    producer = Producer({"bootstrap.servers": kafkalog_broker.bootstrap})
    producer.produce("orders", b"one")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": kafkalog_broker.bootstrap, "group.id": "g"})
    kafkalog_broker.clock.advance(hours=23)
    assert consumer.get_watermark_offsets(TopicPartition("orders", 0), 30) == (0, 1)
    kafkalog_broker.clock.advance(hours=2)
    assert consumer.get_watermark_offsets(TopicPartition("orders", 0), 30) == (1, 1)
    consumer.close()


@pytest.mark.kafkalog(topics={"orders": 1})
def test_a_transaction_times_out(kafkalog_broker):
    """An abandoned transaction is aborted, and its producer fenced."""
    settings = {
        "bootstrap.servers": kafkalog_broker.bootstrap,
        "transactional.id": "t",
        "transaction.timeout.ms": 60_000,
    }
    producer = Producer({**settings, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"one")
    assert producer.flush(30) == 0
    kafkalog_broker.clock.advance(minutes=2)
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)


@pytest.mark.kafkalog(topics={"orders": 1}, properties={"group.initial.rebalance.delay.ms": 0})
def test_a_session_expires(kafkalog_broker):
    """A consumer whose session has expired loses its partitions."""
    assigned, lost = [], []
    consumer = Consumer({"bootstrap.servers": kafkalog_broker.bootstrap, "group.id": "g", "heartbeat.interval.ms": 100})
    consumer.subscribe(
        ["orders"],
        on_assign=lambda _, partitions: assigned.append(partitions),
        on_lost=lambda _, partitions: lost.append(partitions),
    )
    while not assigned:
        consumer.poll(0.1)
    kafkalog_broker.clock.advance(minutes=5)
    while not lost:
        consumer.poll(0.1)
    assert lost[0] == assigned[0]
    consumer.close()
