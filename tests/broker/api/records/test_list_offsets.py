"""ListOffsets: one answer per partition, whatever a request repeats; what reads the log leaves the event loop."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog_broker.api.records import list_offsets
from kafkalog_broker.fetching import offset_query
from kafkalog_broker.storage.append.append_validation import validate_batch
from tests.broker.api.helpers.admin_broker import AdminBroker
from tests.broker.api.helpers.admin_scenario import create, new_topic
from tests.broker.api.helpers.plain_entities import request_entity
from tests.log.helpers.batch_builder import V2Record, batch

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


@pytest.fixture
def broker(tmp_path):
    with AdminBroker(tmp_path / "data") as broker:
        key, _, values = create(new_topic("t", 3), new_topic("u", 1))
        broker.ask(request_entity(key, 7, values, {}))
        yield broker


def offsets(broker, *asked, version=11):
    """(topic, partition, error, timestamp, offset) of each answer."""
    topics: list[Any] = []
    for topic, partition, timestamp in asked:
        wanted = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}
        if topics and topics[-1]["name"] == topic:
            topics[-1]["partitions"].append(wanted)
        else:
            topics.append({"name": topic, "partitions": [wanted]})
    values = {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout": 1000}
    answer = broker.ask(request_entity(2, version, values, {}))
    return [
        (topic.name, one.partition_index, one.error_code.name, round(_ms(one.timestamp)), one.offset)
        for topic in answer.topics
        for one in topic.partitions
    ]


def _ms(timestamp):
    return timestamp if isinstance(timestamp, int) else timestamp.timestamp() * 1000


def append(broker, topic, partition, times):
    log, now = broker.log(topic, partition), max(times)
    made = batch(0, [V2Record(n, time, None, b"v") for n, time in enumerate(times)], leader_epoch=-1, codec=1)
    log.append(validate_batch(made, log.config, now), now)


def test_repeated_partition_has_one_result_with_an_error(broker):
    """ListOffsetsRequest.duplicatePartitions; a topic may be named twice."""
    asked = [("t", 0, LATEST), ("t", 1, LATEST), ("t", 0, EARLIEST), ("u", 0, LATEST), ("t", 2, LATEST)]
    asked += [("t", 1, LATEST), ("x", 0, LATEST), ("x", 0, LATEST)]
    assert offsets(broker, *asked) == [
        ("t", 0, "invalid_request", -1, -1),
        ("t", 1, "invalid_request", -1, -1),
        ("t", 2, "none", -1, 0),
        ("u", 0, "none", -1, 0),
        ("x", 0, "invalid_request", -1, -1),
    ]


def test_list_offsets_searches_timestamps_in_a_thread_and_special_values_in_the_event_loop(broker, monkeypatch):
    append(broker, "t", 0, [1000, 3000, 2000])
    append(broker, "t", 1, [1500])
    outside: list[Any] = []
    run = broker.run_computing

    async def counted(function, *args, **named):
        outside.append(function)
        return await run(function, *args, **named)

    monkeypatch.setattr(broker, "run_computing", counted)
    assert offsets(broker, ("t", 0, LATEST), ("t", 1, EARLIEST)) == [("t", 0, "none", -1, 3), ("t", 1, "none", -1, 0)]
    assert not outside
    asked = [("t", 0, 1200), ("t", 1, MAX_TIMESTAMP), ("t", 2, 0), ("t", 9, 0), ("u", 0, LATEST)]
    assert offsets(broker, *asked) == [
        ("t", 0, "none", 3000, 1),
        ("t", 1, "none", 1500, 0),
        ("t", 2, "none", -1, -1),
        ("t", 9, "unknown_topic_or_partition", -1, -1),
        ("u", 0, "none", -1, 0),
    ]
    assert outside
    outside.clear()
    monkeypatch.setattr(offset_query, "QUERY_SLICE_S", 0)
    offsets(broker, *asked)
    assert len(outside) == 3, "each look-up that takes long is followed by those of other requests"


def test_list_offsets_checks_each_partition_once_and_yields_in_between(broker, monkeypatch):
    turns: list[int] = []

    class Short(list_offsets.TimeSlice):  # type: ignore[name-defined]
        is_over = property(lambda self: True)

        async def wait_turn(self):
            turns.append(1)

    monkeypatch.setattr(list_offsets, "TimeSlice", Short)
    looked_up: list[Any] = []
    log = broker.log

    def counted(*key):
        looked_up.append(key)
        return log(*key)

    monkeypatch.setattr(broker, "log", counted)
    offsets(broker, *[("x", n, LATEST) for n in range(500)], ("t", 0, LATEST))
    assert len(looked_up) == 501
    assert len(turns) == 2 * 501, "also when the answers are made"
