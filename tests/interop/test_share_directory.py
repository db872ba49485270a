"""A directory with share groups moves from Apache Kafka to our broker and back."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.testing import RunningBroker
from kafkalog_broker.testing_support.client_requests import ask
from tests.broker.api.helpers.plain_entities import plain, request_entity
from tests.broker.share.helpers.share_script import earliest
from tests.interop.real_kafka import RealKafka, available
from tests.interop.share_workers import ShareWorker, compiled
from tests.interop.test_share_consumers import GROUP, TOPIC, all_said, offsets, produce, until

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

PROPERTIES = {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 2,
    "share.coordinator.snapshot.update.records.per.snapshot": 5,
}
PARTITIONS = 3


def asked(bootstrap: str, key: int, version: int, **values: Any) -> Any:
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        return plain(ask(connection, request_entity(key, version, values, {})))


def described(bootstrap: str) -> tuple[Any, Any]:
    """The group, and where it is: (partition, start offset, lag). A broker that has just started is asked again until
    it has read its groups and their share state; before that it answers as if nothing had been delivered."""
    end = time.monotonic() + 60
    while True:
        (group,) = asked(bootstrap, 77, 1, group_ids=[GROUP], include_authorized_operations=False)["groups"]
        (found,) = asked(bootstrap, 90, 1, groups=[{"group_id": GROUP, "topics": None}])["groups"]
        places = [
            (one["partition_index"], one["start_offset"], one["lag"])
            for topic in found["topics"]
            for one in topic["partitions"]
        ]
        loaded = len(places) == PARTITIONS and all(start >= 0 for _, start, _ in places)
        if group["error_code"] == "none" and loaded:
            break
        assert time.monotonic() < end, (group, found)
        time.sleep(0.2)
    return {key: group[key] for key in ("error_code", "group_state", "group_epoch", "assignment_epoch")}, sorted(places)


def member(bootstrap: str) -> None:
    """A member accepts, releases and rejects some of what it gets, and leaves."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:

        def said(key: int, version: int, **values: Any) -> Any:
            return ask(connection, request_entity(key, version, {"group_id": GROUP, "member_id": "m", **values}, {}))

        def beat(epoch: int) -> Any:
            topics = None if epoch else [TOPIC]
            return said(76, 1, member_epoch=epoch, rack_id=None, subscribed_topic_names=topics)

        ask(connection, request_entity(10, 6, {"key_type": 0, "coordinator_keys": [GROUP]}, {}))  # makes its topic
        epoch, end = 0, time.monotonic() + 60
        topic = None
        while topic is None:
            assert time.monotonic() < end
            answer = beat(epoch)
            epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                (topic,) = answer.assignment.topic_partitions
            time.sleep(0.1)
        for index in topic.partitions:
            asked_for = [{"topic_id": str(topic.topic_id), "partitions": [
                {"partition_index": index, "acknowledgement_batches": []}]}]  # fmt: skip
            fetched = said(
                78, 2, share_session_epoch=0, max_wait=10_000, min_bytes=1, max_bytes=1 << 20, max_records=20,
                batch_size=9, share_acquire_mode=1, is_renew_ack=False, topics=asked_for, forgotten_topics_data=[],
            )  # fmt: skip
            (found,) = fetched.responses[0].partitions
            batches = [
                {"first_offset": one.first_offset, "last_offset": one.last_offset,
                 "acknowledge_types": [_TYPES[at % len(_TYPES)] for at in range(one.first_offset, one.last_offset + 1)]}
                for one in found.acquired_records
            ]  # fmt: skip
            assert batches
            named = [{**asked_for[0], "partitions": [{"partition_index": index, "acknowledgement_batches": batches}]}]
            answer = said(79, 2, share_session_epoch=1, is_renew_ack=False, topics=named)
            assert not answer.responses[0].partitions[0].error_code, answer
        beat(-1)


_TYPES = (1, 1, 2, 1, 3, 2, 1)


def read(classes: Path, bootstrap: str, records: int) -> None:
    """Let a Java member accept `count` records."""
    with ShareWorker(classes, bootstrap, GROUP, TOPIC) as worker:
        until(lambda: len(offsets(all_said(worker), "A")) >= records, lambda: worker.lines[-3:])


def test_share_groups_continue_after_a_move_from_kafka_and_back(tmp_path: Path) -> None:
    classes = compiled(tmp_path / "classes")
    kafka = RealKafka(tmp_path / "kafka", PROPERTIES, short_lived=True)
    kafka.start()
    kafka.create_topic(TOPIC, PARTITIONS)
    _earliest(kafka.bootstrap)
    produce(kafka.bootstrap, 300, PARTITIONS)
    member(kafka.bootstrap)
    before = described(kafka.bootstrap)
    kafka.stop()

    ours = RunningBroker(kafka.data_dir, {"node.id": 1, **PROPERTIES})
    ours.start()
    try:
        assert described(ours.bootstrap) == before
        _earliest(ours.bootstrap)
        member(ours.bootstrap)
        assert described(ours.bootstrap)[0]["group_epoch"] > before[0]["group_epoch"]
        ours.kill()
        ours.start()
        between = described(ours.bootstrap)
    finally:
        ours.stop()

    kafka.start()
    try:
        assert described(kafka.bootstrap) == between
        left = sum(lag for _, _, lag in between[1])
        assert 0 < left < 300
        read(classes, kafka.bootstrap, left)
        assert [lag for _, _, lag in described(kafka.bootstrap)[1]] == [0] * PARTITIONS
        for log in sorted(kafka.data_dir.glob("__share_group_state-*/*.log")):
            if log.stat().st_size:
                text = kafka.tool("DumpLogSegments", "--deep-iteration", "--share-group-state-decoder", "--files", log)
                assert "Error" not in text
                assert "invalid" not in text.replace("isvalid", "")
    finally:
        kafka.stop()


def _earliest(bootstrap: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        earliest(connection, GROUP)
