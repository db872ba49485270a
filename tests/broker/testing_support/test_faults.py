"""Injected faults: their validation, and the requests that they affect."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Producer
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from kafkalog_broker import api
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.client_messages import create_topic_request
from kafkalog_broker.testing import RunningBroker, running_broker
from kafkalog_broker.testing_support.faults import FaultError, Faults
from kafkalog_broker.testing_support.moved_clock import MovedClock, MovedTimers
from tests.broker.manual_clock import ManualClock

api.load_all()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"api": "Prodce", "drop": "before"}, "there is no API 'Prodce'"),
        ({"api": "Produce"}, "a fault needs an error, a delay or a drop"),
        ({"api": "Produce", "drop": "soon"}, "drop must be 'before' or 'after'"),
        ({"api": "Produce", "drop": "after", "error": 6}, "no response with an error"),
        ({"error": 6}, "an error needs an API"),
        ({"api": "Metadata", "error": 5}, "an error of Metadata needs a topic"),
        ({"api": "Heartbeat", "topic": "t", "error": 27}, "omit `topic`"),
        ({"api": "Fetch", "topic": "t", "delay_ms": 1}, "omit `topic`"),
    ],
)
def test_impossible_fault_raises_with_the_reason(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(FaultError, match=said):
        Faults(cast(Broker, None)).add(asked)


def test_fault_skips_some_requests_and_ends_after_its_number_of_times() -> None:
    faults = Faults(cast(Broker, None))
    number = faults.add({"api": "produce", "drop": "before", "skip": 1, "times": 2, "client_id": "c"})
    assert faults.waiting(1, "c") == faults.waiting(0, "other") == []
    fault = faults.waiting(0, "c")[0]
    assert [fault.take() for _ in range(4)] == [False, True, True, False]
    assert faults.waiting(0, "c") == []
    assert fault.is_over
    assert faults.all[number].met == 2


class Scheduled:
    """A Scheduler whose timers are run by the test."""

    def __init__(self) -> None:
        self.timers: list[list[Any]] = []

    def __call__(self, delay_ms: int, call: Any) -> Any:
        timer = [delay_ms, call]
        self.timers.append(timer)

        class Handle:
            def cancel(_) -> None:
                if timer in self.timers:
                    self.timers.remove(timer)

        return Handle()


def test_timers_follow_a_manually_advanced_clock() -> None:
    real = ManualClock()
    clock, scheduled, ran = MovedClock(real), Scheduled(), list[str]()
    timers = MovedTimers(clock, scheduled)
    timers(5000, lambda: ran.append("b"))
    timers(3000, lambda: ran.append("a"))
    timers(4000, lambda: ran.append("never")).cancel()
    last = timers(9000, lambda: ran.append("c"))
    before = clock.now_ms()
    clock.advance(6000)
    timers.moved()
    assert (ran, clock.now_ms() - before, clock.monotonic_ms()) == (["a", "b"], 6000, 6000)
    assert [delay for delay, _ in scheduled.timers] == [3000]
    scheduled.timers[0][1]()
    assert ran == ["a", "b", "c"]
    assert scheduled.timers == []
    last.cancel()
    clock.advance(1)
    timers.moved()
    assert ran == ["a", "b", "c"]


def topics_of(broker: RunningBroker, *names: str) -> dict[str, int]:
    asked = tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in names)
    request = MetadataRequest(
        topics=asked or None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    return {topic.name: int(topic.error_code) for topic in broker.ask(request).topics}


def test_error_fault_affects_whole_requests_or_single_topics() -> None:
    """One broker serves all cases, to save time."""
    with running_broker(topics={"a": 1, "b": 1}) as broker:
        faults = broker.faults
        faults.add(api="Metadata", topic="a", error=ErrorCode.leader_not_available)
        assert topics_of(broker, "b") == {"b": 0}
        assert topics_of(broker, "a", "b") == {"a": ErrorCode.leader_not_available, "b": 0}
        assert topics_of(broker) == {"a": 0, "b": 0}

        faults.add(api="Heartbeat", error=ErrorCode.fenced_instance_id)
        beat = HeartbeatRequest(group_id=GroupId("g"), generation_id=i32(1), member_id="m", group_instance_id=None)
        assert broker.ask(beat).error_code == ErrorCode.fenced_instance_id
        assert broker.ask(beat).error_code != ErrorCode.fenced_instance_id

        # Of two topics in a request one is refused, and the other made.
        request = create_topic_request("c", 1, {})
        both = request._replace(topics=(*request.topics, request.topics[0]._replace(name="d")))
        faults.add(api="CreateTopics", topic="d", error=ErrorCode.policy_violation)
        answer = {topic.name: int(topic.error_code) for topic in broker.ask(both).topics}
        assert answer == {"c": 0, "d": ErrorCode.policy_violation}
        assert topics_of(broker).keys() == {"a", "b", "c"}

        # A request with records for two topics.
        fault = faults.add(api="Produce", topic="a", error=ErrorCode.topic_authorization_failed)
        outcomes: dict[str, Any] = {}
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50})
        for topic in ("a", "b"):
            producer.produce(topic, b"x", on_delivery=lambda error, message: outcomes.update({message.topic(): error}))
        assert producer.flush(120) == 0
        assert outcomes["a"].code() == ErrorCode.topic_authorization_failed
        assert outcomes["b"] is None
        assert fault.met == 1

        drop = faults.add(api="Heartbeat", drop="before", times=None)
        with pytest.raises(OSError, match="closed the connection"):
            broker.ask(beat)
        drop.remove()
        broker.ask(beat)
        faults.add(api="Heartbeat", drop="before")
        faults.clear()
        broker.ask(beat)
        with pytest.raises(ValueError, match="there is no API"):
            faults.add(api="Nothing", drop="before")
        with pytest.raises(ValueError, match="the clock cannot be set back"):
            broker.clock.advance(hours=-1)
    with pytest.raises(RuntimeError, match="not running"):
        faults.clear()
