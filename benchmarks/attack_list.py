"""The attacks of benchmarks/attacks.py, each one request or one kind of connection of a client that needs no login."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks import attack_batches as batches
from benchmarks import attack_requests as requests
from benchmarks.attack_runs import (
    Target,
    ask,
    crowd,
    flood,
    held,
    one_by_one,
    pipeline,
    polls_and_produces,
    unread,
)


@dataclass(frozen=True)
class Attack:
    """`run(target, topic)` is the attack; `prepare` what has to be there before, not measured.

    `topic_config`: of the topic with one partition that the attack has for itself, None when it needs none.
    """

    name: str
    title: str
    run: Callable[[Target, str], object]
    prepare: Callable[[Target, str], object] | None = None
    topic_config: Mapping[str, object] | None = None


ONE: Mapping[str, object] = {}
COMPACTED: Mapping[str, object] = {"cleanup.policy": "compact"}
SIXTY_MB = 60_000_000


def asked(name: str, title: str, frame: Callable[[str], bytes], **further: object) -> Attack:
    """An attack that is one request and its answer."""
    return Attack(name, title, lambda target, topic: ask(target, frame(topic)), **further)  # type: ignore[arg-type]


def produced(name: str, title: str, batch: Callable[[], bytes], config: Mapping[str, object] = ONE) -> Attack:
    """An attack that is one batch."""
    return asked(name, title, lambda topic: requests.produce(topic, batch()), topic_config=config)


def _with_coordinator(target: Target, topic: str) -> None:
    ask(target, requests.find_coordinator())


def _nothing(target: Target, topic: str) -> None:
    one_by_one(target, [requests.api_versions()] * 2_000)


ATTACKS = [
    Attack("none", "nothing but 2,000 ApiVersions, one after the other (for comparison)", _nothing),
    asked(
        "lying_tag",
        "Fetch 17 with a tagged field whose size lies (159 bytes)",
        lambda _: requests.fetch_with_a_lying_tag(),
    ),
    Attack(
        "zero_frames",
        "40 MB of zero-length frames after a long poll",
        lambda target, topic: flood(target, requests.long_poll(topic, 1, max_wait_ms=10_000), bytes(40_000_000)),
        topic_config=ONE,
    ),
    asked(
        "list_offsets",
        "ListOffsets of 20,000 partitions",
        lambda topic: requests.list_offsets(topic, 20_000),
        topic_config=ONE,
    ),
    asked("create_topics", "CreateTopics of 10,000 names", lambda _: requests.create_topics(10_000)),
    asked("delete_topics", "DeleteTopics of 10,000 names", lambda _: requests.delete_topics(10_000)),
    asked("create_partitions", "CreatePartitions of 10,000 names", lambda _: requests.create_partitions(10_000)),
    asked(
        "assignments",
        "CreateTopics of 9,999 partitions assigned by hand",
        lambda _: requests.create_topic_with_assignments(9_999),
    ),
    asked(
        "describe_configs",
        "DescribeConfigs naming the broker 2,000 times",
        lambda _: requests.describe_configs(2_000),
    ),
    asked(
        "alter_configs",
        "IncrementalAlterConfigs of 5,000 topics",
        lambda _: requests.incremental_alter_configs(5_000),
    ),
    asked("offset_fetch", "OffsetFetch of 24,000 partitions", lambda _: requests.offset_fetch(24_000)),
    Attack(
        "offset_fetch_500000",
        "OffsetFetch of 500,000 partitions, which this broker refuses",
        lambda target, _: flood(target, requests.offset_fetch(500_000), b""),
    ),
    asked(
        "offset_fetch_tag",
        "OffsetFetch of 24,000 partitions with an unknown tagged field",
        lambda _: requests.offset_fetch_with_an_unknown_tag(24_000),
    ),
    asked(
        "fetch",
        "Fetch of 24,000 partitions",
        lambda topic: requests.fetch(topic, list(range(24_000))),
        topic_config=ONE,
    ),
    asked(
        "describe_producers",
        "DescribeProducers of 24,000 partitions",
        lambda topic: requests.describe_producers(topic, 24_000),
        topic_config=ONE,
    ),
    produced("wrong_deltas", "one batch of 671 bytes holding 1 M records: wrong deltas", batches.wrong_deltas),
    produced("log_append_time", "the same with the LogAppendTime bit", batches.log_append_time),
    produced("null_keys", "the same, null keys in a compacted topic", batches.wrong_deltas, COMPACTED),
    produced("wrong_deltas_1mb", "140,000 records in 1 MB, wrong deltas", lambda: batches.wrong_deltas_uncompressed()),
    Attack(
        "sixty_mb",
        "one batch of 58 kB that decompresses to 60 MB",
        lambda target, topic: ask(target, requests.produce(topic, batches.zeros(SIXTY_MB))),
        topic_config=ONE,
    ),
    Attack(
        "offsets_by_time",
        "ListOffsets by time over one 60 MB batch, named 50 times",
        lambda target, topic: ask(target, requests.list_offsets_by_time(topic, 50)),
        prepare=lambda target, topic: ask(target, requests.produce(topic, batches.zeros(SIXTY_MB))),
        topic_config=ONE,
    ),
    Attack(
        "lz4_blocks",
        "an lz4 batch of 1 MB in linked blocks of one byte",
        lambda target, topic: ask(target, requests.produce(topic, batches.lz4_linked_one_byte_blocks(200_000))),
        topic_config=ONE,
    ),
    Attack(
        "acks0_gzip",
        "500 Produce with acks=0, pipelined: gzip of 1 kB that decompresses to 1 MB",
        lambda target, topic: pipeline(
            target, requests.produce(topic, batches.zeros(1_000_000), acks=0), 500, requests.api_versions()
        ),
        topic_config=ONE,
    ),
    Attack(
        "acks0_plain",
        "20,000 Produce of one record with acks=0, pipelined",
        lambda target, topic: pipeline(
            target, requests.produce(topic, batches.plain(), acks=0), 20_000, requests.api_versions()
        ),
        topic_config=ONE,
    ),
    Attack(
        "pipelined",
        "20,000 ApiVersions, pipelined on one connection",
        lambda target, _: pipeline(target, requests.api_versions(), 20_000),
    ),
    Attack(
        "pipelined_unread",
        "20 MB of ApiVersions, pipelined, no answer read",
        lambda target, _: flood(target, b"", requests.api_versions() * (20_000_000 // len(requests.api_versions()))),
    ),
    Attack(
        "long_poll",
        "a long poll that names one partition 24,000 times, then 10 produces",
        lambda target, topic: polls_and_produces(
            target,
            requests.long_poll(topic, 24_000, max_wait_ms=60_000),
            1,
            requests.produce(topic, batches.plain()),
            10,
        ),
        topic_config=ONE,
    ),
    Attack(
        "long_polls_2000",
        "2,000 long polls of one partition, then 20 produces",
        lambda target, topic: polls_and_produces(
            target,
            requests.long_poll(topic, 1, max_wait_ms=60_000),
            2_000,
            requests.produce(topic, batches.plain()),
            20,
        ),
        topic_config=ONE,
    ),
    Attack(
        "half_sent",
        "three frames of 99 MB, sent but for the end",
        lambda target, _: held(target, requests.half_sent(99_000_000, 98_000_000), 3),
    ),
    Attack(
        "crowd",
        "50 clients at once, each ListOffsets of 20,000 partitions",
        lambda target, topic: crowd(target, requests.list_offsets(topic, 20_000), 50),
        topic_config=ONE,
    ),
    Attack(
        "unread_8",
        "8 connections with DescribeConfigs naming the broker 500 times, no answer read",
        lambda target, _: unread(target, requests.describe_configs(500), 8),
    ),
    Attack(
        "unread_100",
        "100 connections with DescribeConfigs naming the broker 2,000 times, no answer read",
        lambda target, _: unread(target, requests.describe_configs(2_000), 100),
    ),
    asked(
        "streams_chain",
        "StreamsGroupHeartbeat with a chain of 3,900 repartition topics in reverse order",
        lambda topic: requests.streams_chain(topic, 3_900),
        prepare=_with_coordinator,
        topic_config=ONE,
    ),
    asked(
        "streams_copartition",
        "StreamsGroupHeartbeat with 12,000 empty copartition groups and 3,900 fixed topics",
        lambda topic: requests.streams_copartition_groups(topic, 12_000, 3_900),
        prepare=_with_coordinator,
        topic_config=ONE,
    ),
    asked(
        "txn_markers",
        "WriteTxnMarkers of 24,000",
        lambda topic: requests.write_txn_markers(topic, 24_000),
        topic_config=ONE,
    ),  # last: Kafka is at it for minutes
]
