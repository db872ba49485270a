"""__consumer_offsets of a real Kafka, read and encoded again, and this broker's log read by Kafka's tools."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import pytest

from kafkalog_broker.coordinator.record_batch import decode_batches, encode_batch
from kafkalog_broker.groups.classic.classic_group_records import GroupKey, decode_group_value
from kafkalog_broker.groups.group_loader import load
from kafkalog_broker.groups.offset_records import OffsetKey, decode_key
from kafkalog_broker.groups.offset_requests import CommitRequest, CommittedPartition
from tests.broker.groups.helpers.commits import commit_at_once
from tests.broker.groups.helpers.virtual_time import World
from tests.broker.groups.test_offset_records import encoded
from tests.interop.real_kafka import RealKafka, available, run_tool

pytestmark = [pytest.mark.interop, pytest.mark.skipif(available() is not None, reason=str(available()))]


@pytest.fixture(scope="module")
def kafka_log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The log of a Kafka with a group of two members, one of them static, that left; and one that still had members."""
    from confluent_kafka import Consumer, TopicPartition

    with RealKafka(tmp_path_factory.mktemp("kafka"), short_lived=True) as kafka:
        kafka.create_topic("orders", 2)

        def consumer(group: str, **how: object) -> Consumer:
            settings = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "enable.auto.commit": False}
            return Consumer({**settings, **how})

        for group in ("left", "stays"):
            members = [consumer(group), consumer(group, **{"group.instance.id": "static-1"})]
            for member in members:
                member.subscribe(["orders"])
            for _ in range(300):
                for member in members:
                    member.poll(0.1)
                if all(len(member.assignment()) == 1 for member in members):
                    break
            else:
                pytest.fail("the members have not got their partitions")
            for at, member in enumerate(members):
                partition = member.assignment()[0].partition
                member.commit(offsets=[TopicPartition("orders", partition, 10 + at)], asynchronous=False)
            if group == "left":
                for member in members:
                    member.close()
            else:
                keep = members  # they stay members until Kafka has stopped
        kafka.stop()
        del keep
        return b"".join(path.read_bytes() for path in sorted(kafka.partition_dir("__consumer_offsets").glob("*.log")))


def test_every_decoded_record_is_encoded_to_the_same_bytes(kafka_log: bytes) -> None:
    records = [record for batch in decode_batches([kafka_log]) for record in batch.records]
    kinds = {type(decode_key(key)) for key, _ in records}
    assert kinds == {OffsetKey, GroupKey}
    assert any(
        decode_group_value(value).members for key, value in records if isinstance(decode_key(key), GroupKey) and value
    )
    assert [encoded(record) for record in records] == records


def test_groups_written_by_kafka_are_loaded(kafka_log: bytes) -> None:
    loaded = load(decode_batches([kafka_log]))
    assert set(loaded.groups) == {"left", "stays"}
    world = World()
    world.log.batches[0] = [kafka_log]
    assert world.state("stays") == "Stable"
    assert {member.group_instance_id for member in world.group("stays").members.values()} == {None, "static-1"}
    assert world.group("stays").topics == {"orders"}  # type: ignore[comparison-overlap]
    assert {key.partition for key in loaded.offsets.keys("left")} == {0, 1}


def test_kafka_tools_read_offsets_topic_of_this_broker(tmp_path: Path) -> None:
    world = World()
    leader, follower = world.stable(2, instance="i")
    parts = (CommittedPartition("orders", 3, 42, 5, "a note", UUID(int=0x1234)), CommittedPartition("orders", 4, 43))
    commit_at_once(world.coordinator, CommitRequest("g", parts, leader.member_id, 1))
    commit_at_once(world.coordinator, CommitRequest("old", parts[:1], retention_ms=1000))
    world.coordinator.shard("old").delete("old")
    path = tmp_path / "00000000000000000000.log"
    offset, log = 0, b""
    for batch in decode_batches(world.log.batches[0]):
        log += encode_batch(batch.records, world.time.clock.now_ms(), base_offset=offset)
        offset += len(batch.records)
    path.write_bytes(log)
    said = run_tool("DumpLogSegments", "--files", path, "--offsets-decoder", "--deep-iteration")
    assert "isvalid: false" not in said
    assert len(re.findall(r"^\| offset: ", said, re.M)) == offset
    for expected in (
        '"group":"g","topic":"orders","partition":3',
        '"offset":42,"leaderEpoch":5,"metadata":"a note"',
        '"topicId":"AAAAAAAAAAAAAAAAAAASNA"',
        '"protocolType":"consumer","generation":1,"protocol":"range"',
        f'"memberId":"{leader.member_id}","groupInstanceId":"{leader.instance}","clientId":"{leader.client_id}"',
        f'"memberId":"{follower.member_id}"',
        '"expireTimestamp":',
    ):
        assert expected in said, f"{expected} is not in: {said}"
