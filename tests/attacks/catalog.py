"""Catalog of attacks: each is one request or one kind of connection of a client that needs no login."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import zstandard

from tests.attacks import batches, requests
from tests.attacks.delivery import (
    Target,
    ask,
    crowd,
    each_at_once,
    flood,
    held,
    one_by_one,
    pipeline,
    polls_and_produces,
    probed,
    pushes,
    unread,
)


@dataclass(frozen=True)
class Attack:
    """`run(target, topic)` is the attack; `prepare` what has to be there before, not measured.

    `topic_config`: of the topic with one partition that the attack has for itself, None when it needs none.
    `tier`: broker settings of the remote storage, None for a broker without it. `only_ours`: Apache Kafka is left out,
    since it does not have what is attacked.
    """

    name: str
    title: str
    run: Callable[[Target, str], object]
    prepare: Callable[[Target, str], object] | None = None
    topic_config: Mapping[str, object] | None = None
    tier: Mapping[str, object] | None = None
    only_ours: bool = False


ONE: Mapping[str, object] = {}
MILLION = 1_000_000
COMPACTED: Mapping[str, object] = {"cleanup.policy": "compact"}
SIXTY_MB = 60_000_000


def asked(name: str, title: str, frame: Callable[[str], bytes], **further: object) -> Attack:
    """Return an attack that sends one request and reads its response."""
    return Attack(name, title, lambda target, topic: ask(target, frame(topic)), **further)  # type: ignore[arg-type]


def produced(name: str, title: str, batch: Callable[[], bytes], config: Mapping[str, object] = ONE) -> Attack:
    """Return an attack that produces one batch."""
    return asked(name, title, lambda topic: requests.produce(topic, batch()), topic_config=config)


COLD = {
    "remote.storage.enable": "true", "local.retention.bytes": 1, "retention.ms": -1, "segment.bytes": 68_000_000,
    "file.delete.delay.ms": 0, "max.message.bytes": 2_000_000,
}  # fmt: skip
COLD_RECORDS = 140
"""Incompressible records of 1 MB each: two closed segments."""
LOCAL_TIERED = {
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
}
ZSTD_4_MIB = {"rsm.config.compression.enabled": "true", "rsm.config.chunk.size": 4 << 20}
ZSTD_64_MIB = {"rsm.config.compression.enabled": "true", "rsm.config.chunk.size": 64 << 20}


def _make_cold(target: Target, topic: str) -> None:
    """Produce the records, and wait until only the active segment is local."""
    one_by_one(target, [
        requests.produce(topic, batches.plain(random.Random(n).randbytes(1_000_000))) for n in range(COLD_RECORDS)
    ])  # fmt: skip
    _wait_until_cold(target, topic)


def _make_cold_zeros(target: Target, topic: str) -> None:
    """As _make_cold; the first batch of the topic is small and decompresses to 60 MB. Loads the kernel of a look-up
    and starts the threads that read remote segments: the attack measures what one batch takes."""
    one_by_one(target, [requests.produce(topic, batches.zeros(SIXTY_MB))])
    ask(target, requests.list_offsets_by_time(topic, 1))
    _make_cold(target, topic)
    each_at_once(target, _fetches(topic, 20, 1))


def _wait_until_cold(target: Target, topic: str) -> None:
    assert target.log_dir is not None
    end = time.monotonic() + 60
    while len(list((target.log_dir / f"{topic}-0").glob("*.log"))) > 1:
        if time.monotonic() > end:
            raise TimeoutError(f"{topic} does not leave the disk")
        time.sleep(0.1)


def _fetches(topic: str, clients: int, partition_bytes: int) -> list[bytes]:
    """Return one Fetch per client, spread over the remote segments."""
    offsets = [120 * n // clients for n in range(clients)]
    return [requests.fetch(topic, [0], offset=offset, partition_bytes=partition_bytes) for offset in offsets]


def cold(name: str, title: str, tier: Mapping[str, object], run: Callable[[Target, str], object]) -> Attack:
    """Return an attack on remote segments."""
    return Attack(name, title, run, prepare=_make_cold, topic_config=COLD, tier=tier, only_ours=True)


def cold_byte(name: str, title: str, tier: Mapping[str, object], clients: int) -> Attack:
    """So many clients fetch one byte of remote segments at once."""
    return cold(name, title, tier, lambda target, topic: each_at_once(target, _fetches(topic, clients, 1)))


def cold_unread(name: str, title: str, tier: Mapping[str, object], clients: int) -> Attack:
    """So many clients fetch as much of remote segments as a response may have, and read nothing of it."""
    return cold(name, title, tier, lambda target, topic: unread(target, _fetches(topic, clients, 50_000_000), clients))


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
        "streams_chain_1600",
        "StreamsGroupHeartbeat with a chain of 1,600 repartition topics, which is admitted",
        lambda topic: requests.streams_chain(topic, 1_600),
        prepare=_with_coordinator,
        topic_config=ONE,
    ),
    Attack(
        "telemetry_points",
        "PushTelemetry of 221 bytes with 1 M empty points",
        lambda target, _: pushes(target, zstandard.compress(requests.empty_points(MILLION)), 1),
        only_ours=True,
    ),
    Attack(
        "telemetry_attributes",
        "8 PushTelemetry at once, each with one point of 1 M empty attributes",
        lambda target, _: pushes(target, zstandard.compress(requests.empty_attributes(MILLION)), 8),
        only_ours=True,
    ),
    Attack(
        "telemetry_largest",
        "8 PushTelemetry at once, each of the largest size that is parsed: 131,000 empty points",
        lambda target, _: pushes(target, zstandard.compress(requests.empty_points(131_000)), 8),
        only_ours=True,
    ),
    Attack(
        "telemetry_ids",
        "4,096 GetTelemetrySubscriptions over one connection, client ids of 32 kB",
        lambda target, _: one_by_one(target, [requests.get_telemetry_subscriptions(client_id=b"x" * 32_000)] * 4_096),
    ),
    Attack(
        "metrics_drip",
        "32 connections to the metrics page that send a byte a second, while /healthz is requested",
        lambda target, _: probed(target, b"G", 32),
        only_ours=True,
    ),
    Attack(
        "metrics_heads",
        "16 connections to the metrics page that send 99 header lines of 64 kB",
        lambda target, _: probed(target, b"GET /metrics HTTP/1.1\r\n" + (b"x: " + b"y" * 65_000 + b"\r\n") * 99, 16),
        only_ours=True,
    ),
    cold_unread(
        "cold_unread_60", "60 clients that fetch 50 MB each from a plain tier and do not read", LOCAL_TIERED, 60
    ),
    cold_unread(
        "cold_unread_300", "300 clients that fetch 50 MB each from a plain tier and do not read", LOCAL_TIERED, 300
    ),
    cold_byte(
        "cold_zstd_byte", "60 clients that fetch one byte from a tier of zstd in chunks of 4 MiB", ZSTD_4_MIB, 60
    ),
    cold_unread(
        "cold_zstd_unread",
        "60 clients that fetch 50 MB each from a tier of zstd in chunks of 4 MiB and do not read",
        ZSTD_4_MIB,
        60,
    ),
    cold_byte(
        "cold_64_mib_byte", "60 clients that fetch one byte from a tier of zstd in chunks of 64 MiB", ZSTD_64_MIB, 60
    ),
    cold_unread(
        "cold_64_mib_unread",
        "60 clients that fetch 50 MB each from a tier of zstd in chunks of 64 MiB and do not read",
        ZSTD_64_MIB,
        60,
    ),
    Attack(
        "cold_times",
        "20 clients that look for a timestamp in one remote batch that decompresses to 60 MB",
        lambda target, topic: each_at_once(target, [requests.list_offsets_by_time(topic, 1)] * 20),
        prepare=_make_cold_zeros,
        topic_config=COLD,
        tier=LOCAL_TIERED,
        only_ours=True,
    ),
    asked(
        "txn_markers",
        "WriteTxnMarkers of 24,000",
        lambda topic: requests.write_txn_markers(topic, 24_000),
        topic_config=ONE,
    ),  # last: Kafka is at it for minutes
]
