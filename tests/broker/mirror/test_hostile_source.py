"""A source with false responses: the mirror keeps running, and neither other partitions nor internal topics change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.log_config import LogConfig
from kafkalog_broker.config.server_properties import DEFAULTS_WITHOUT_FILE
from kafkalog_broker.mirror import source_connection as source_connection_module
from kafkalog_broker.mirror.client_properties import ClientSettings
from kafkalog_broker.mirror.mirror import Mirror
from kafkalog_broker.mirror.mirror_options import MirrorOptions
from kafkalog_broker.mirror.source_address import parse_bootstrap
from kafkalog_broker.runtime.clock import SystemClock
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.storage.log_directories import open_log_dirs
from kafkalog_broker.storage.log_manager import LogManager
from kafkalog_broker.storage.topic import Topic
from kafkalog_broker.storage.topic_registry import TopicRegistry
from kafkalog_spark.format.names import OFFSETS_TOPIC
from kafkalog_spark.format.partition_metadata import new_uuid
from tests.broker.mirror.helpers.mirrors import log_data
from tests.broker.mirror.helpers.scripted_source import (
    API_VERSIONS,
    EPOCH,
    EPOCH_ENDS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    Plain,
    ScriptedSource,
    ScriptedTopic,
)
from tests.broker.storage.helpers.loaded_logs import records
from tests.broker.storage.helpers.stored_logs import append_records

WAIT_S = 60
"""For what takes a moment on an idle machine."""
LAST = 2**63 - 1


def batches(*bases: int, count: int = 3, epoch: int = EPOCH) -> list[tuple[int, int, bytes]]:
    return [(base, base + count - 1, records(base, count, leader_epoch=epoch)) for base in bases]


def one_batch(base: int = 0, count: int = 1, epoch: int = EPOCH) -> bytes:
    """A batch with any base offset, which the CRC does not cover."""
    data: bytes = records(0, count, leader_epoch=epoch)
    return struct.pack(">q", base) + data[8:]


def honest(**more: ScriptedTopic) -> dict[str, ScriptedTopic]:
    return {"orders": ScriptedTopic([batches(0, 3), batches(0, 3)]), "clicks": ScriptedTopic([batches(0, 3)]), **more}


class Running:
    """A mirror in this process. own: internal topics of its broker, with one record each."""

    def __init__(self, source: ScriptedSource, directory: Path, *, own: bool = False, **options: Any) -> None:
        self.source, self.directory, self.own, self.options = source, directory, own, options

    async def __aenter__(self) -> Running:
        config = BrokerConfig.from_properties(DEFAULTS_WITHOUT_FILE, {"log.dirs": str(self.directory)})
        self.workers, clock = Workers(), SystemClock()
        self.dirs = open_log_dirs(config.log_dirs, config.node_id, 0)
        self.topics = TopicRegistry(self.dirs.all)
        self.topics.load()
        self.logs = LogManager(self.dirs, config, self.topics, clock)
        self.logs.load()
        if self.own and OFFSETS_TOPIC not in self.topics:
            (topic,) = self.topics.create_all([Topic(OFFSETS_TOPIC, new_uuid(), 1)])
            assert isinstance(topic, Topic)
            log = self.logs.create(topic.name, 0, topic.id, LogConfig.of(config, {}))
            append_records(log, [(b"group", b"77")], 1)
        options = MirrorOptions(
            bootstrap=parse_bootstrap(self.source.bootstrap), directory=self.directory, topics=re.compile(".*"),
            refresh_s=0.05, keeps_own_internal_topics=self.own, **self.options,
        )  # fmt: skip
        self.mirror = Mirror(options, self.logs, self.topics, self.workers, clock)
        self.running = asyncio.create_task(self.mirror.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.running
        await asyncio.to_thread(self.workers.shutdown)
        self.logs.shutdown()
        self.dirs.close()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not is_so():
                assert not self.running.done(), self.running.exception()
                await asyncio.sleep(0.01)

    def end(self, topic: str, partition: int = 0) -> int:
        log = self.logs.get(topic, partition) if topic in self.topics else None
        return -1 if log is None else log.log_end_offset

    async def until_copied(self, *keys: tuple[str, int]) -> None:
        await self.until(lambda: all(self.end(*key) == 6 for key in keys))


Lie = Callable[[Plain], None]


def setting(**fields: Any) -> Lie:
    """What is said of orders-0, in any answer that has partitions."""

    def lie(answer: Plain) -> None:
        for topic in answer["responses"] if "responses" in answer else answer["topics"]:
            if "orders" in (topic.get("topic"), topic.get("name")):
                for partition in topic["partitions"]:
                    if 0 in (partition.get("partition_index"), partition.get("partition")):
                        partition.update(fields)

    return lie


OUT_OF_RANGE = setting(error_code=1, records=b"")
LIES: dict[str, tuple[str, dict[int, Lie]]] = {
    "offset -1": ("expected 0 to", {FETCH: OUT_OF_RANGE, LIST_OFFSETS: setting(offset=-1)}),
    "offset 2^63-1": ("expected 0 to", {FETCH: OUT_OF_RANGE, LIST_OFFSETS: setting(offset=LAST)}),
    "offsets of nobody": ("UNKNOWN_SERVER_ERROR", {
        FETCH: OUT_OF_RANGE, LIST_OFFSETS: lambda answer: answer.update(topics=[])
    }),
    "base offset 2^63-1": ("offsets 9223372036854775807", {FETCH: setting(records=one_batch(LAST))}),
    "base offset 2^63-2, two records": ("expected offsets", {FETCH: setting(records=one_batch(LAST - 1, 2))}),
    "negative base offset": ("offsets -5", {FETCH: setting(records=one_batch(-5))}),
    "leader epoch 2^31-1": ("leader epoch 2147483647", {FETCH: setting(records=one_batch(epoch=2**31 - 1))}),
    "leader epoch -2": ("leader epoch -2", {FETCH: setting(records=one_batch(epoch=-2))}),
    "log start 2^63-1": ("its log start offset", {FETCH: setting(log_start_offset=LAST)}),
    "log start above the high watermark": ("above its high watermark", {FETCH: setting(log_start_offset=2**62)}),
    "high watermark -2": ("its high watermark", {FETCH: setting(high_watermark=-2)}),
    "high watermark 2^63-1": ("its high watermark", {FETCH: setting(high_watermark=LAST)}),
    "parted after epoch 2^31-1": ("the logs diverge", {
        FETCH: setting(diverging_epoch={"epoch": 2**31 - 1, "end_offset": 0}, records=b"")
    }),
    "parted at -2": ("the end offset", {FETCH: setting(diverging_epoch={"epoch": 1, "end_offset": -2}, records=b"")}),
    "no batch at all": ("zeros", {FETCH: setting(records=bytes(100))}),
    "an error nobody knows": ("CORRUPT_MESSAGE", {FETCH: setting(error_code=2)}),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_false_partition_data_stops_that_partition_only(name, tmp_path, caplog):
    said, lies = LIES[name]
    source = ScriptedSource(honest())
    source.lies = lies

    async def run() -> None:
        async with source.serving(), Running(source, tmp_path / "mirror", own=True) as made:
            await made.until_copied(("orders", 1), ("clicks", 0))
            await made.until(lambda: (one := made.mirror.partitions.get(("orders", 0))) is not None and one.has_failed)
            assert said in made.mirror.failed["orders-0"]
            assert made.end("orders", 0) == 0
            source.topics["clicks"].batches[0] += batches(6)
            await made.until(lambda: made.end("clicks") == 9)
            assert made.end(OFFSETS_TOPIC) == 1

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "Traceback" not in caplog.text
    assert caplog.text.count("orders-0 is not mirrored for now") == 1


@pytest.mark.parametrize("ending", [(2**31 - 1, 0), (3, -2), (3, LAST)])
def test_false_end_of_an_epoch_stops_that_partition_only(ending, tmp_path):
    """Before 2.7 a mirror asks where epochs end, when a leader is new."""
    source = ScriptedSource(honest(), fetch=11)

    async def run() -> None:
        async with source.serving():
            async with Running(source, tmp_path / "mirror") as made:
                await made.until_copied(("orders", 0), ("orders", 1), ("clicks", 0))
            source.lies[EPOCH_ENDS] = setting(leader_epoch=ending[0], end_offset=ending[1])
            async with Running(source, tmp_path / "mirror") as made:
                source.topics["clicks"].batches[0] += batches(6)
                await made.until(lambda: made.end("clicks") == 9)
                assert "the source says" in made.mirror.failed["orders-0"]
                assert made.end("orders") == 6

    asyncio.run(run())


HUGE_LEGACY, HUGE_COMPACT = b"\x7f\xff\xff\xfe", b"\xff\xff\xff\xff\x07"
SPOILS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "2^31-2 versions": (API_VERSIONS, lambda data: data[:6] + HUGE_LEGACY + data[10:]),
    "no versions": (API_VERSIONS, lambda data: data[:6] + b"\xff\xff\xff\xff" + data[10:]),
    "versions upside down": (API_VERSIONS, lambda data: data[:12] + b"\0\x09\0\0" + data[16:]),
    "versions cut short": (API_VERSIONS, lambda data: data[:9]),
    "2^31-2 brokers": (METADATA, lambda data: data[:9] + HUGE_COMPACT + data[10:]),
    "metadata cut short": (METADATA, lambda data: data[:-9]),
    "metadata of another request": (METADATA, lambda data: b"\0\0\x77\x77" + data[4:]),
    "an empty answer": (METADATA, lambda data: b""),
    "2^31-2 topics fetched": (FETCH, lambda data: data[:15] + HUGE_COMPACT + data[16:]),
    "a fetch cut short": (FETCH, lambda data: data[:20]),
    "tags without end": (FETCH, lambda data: data[:4] + HUGE_COMPACT + data[5:]),
}


@pytest.mark.parametrize("name", SPOILS)
def test_source_with_invalid_responses_counts_as_unavailable_until_they_are_valid(name, tmp_path, caplog):
    key, spoil = SPOILS[name]
    source = ScriptedSource(honest())
    source.spoils[key] = spoil

    async def run() -> None:
        async with source.serving(), Running(source, tmp_path / "mirror", own=True) as made:
            await made.until(lambda: source.asked[key] >= 2)
            assert f"127.0.0.1:{source.port}" in caplog.text
            source.spoils.clear()
            await made.until_copied(("orders", 0), ("orders", 1), ("clicks", 0))
            assert made.end(OFFSETS_TOPIC) == 1

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("host", ["\0", "a" * 70, "x\x1b[2J\ny", ""])
@pytest.mark.parametrize("port", [-1, 0, 70_000])
def test_unreachable_nodes_in_metadata_are_retried(host, port, tmp_path, caplog):
    source = ScriptedSource(honest())
    source.lies[METADATA] = lambda answer: answer["brokers"][0].update(host=host, port=port)

    async def run() -> None:
        async with source.serving(), Running(source, tmp_path / "mirror") as made:
            await made.until(lambda: "node 1:" in caplog.text)
            source.lies.clear()
            await made.until_copied(("orders", 0), ("orders", 1), ("clicks", 0))

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert all(record.getMessage().isprintable() for record in caplog.records)


@pytest.mark.parametrize("iterations", [1, 4095, 1_000_001, 2**62])
def test_scram_with_too_few_or_too_many_iterations_is_refused(iterations):
    """Too few give the password away, too many take a processor for years."""

    async def run() -> None:
        connection = source_connection_module._Connection(
            "127.0.0.1", 9092, security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username="me", sasl_plain_password="secret",
        )  # fmt: skip
        scram = connection.authenticator_scram()
        scram.first_message()
        with pytest.raises(ValueError, match="iterations, expected 4096 to 1000000"):
            scram.process_server_first_message(f"r={scram._nonce}abc,s=c2FsdA==,i={iterations}")

    asyncio.run(run())


@pytest.mark.parametrize("taken_id", [False, True])
def test_internal_topic_of_the_broker_is_never_overwritten_by_the_source(taken_id, tmp_path, caplog):
    """With an id of its own, and, under another name, with the id of the broker's own topic."""

    async def run() -> None:
        stolen = ScriptedTopic([batches(0, 3)])
        source = ScriptedSource(honest(**{OFFSETS_TOPIC: stolen, "__cluster_metadata": ScriptedTopic([batches(0)])}))
        async with source.serving(), Running(source, tmp_path / "mirror", own=True) as made:
            mine = made.topics.topics[OFFSETS_TOPIC]
            if taken_id:
                stolen.id = mine.id
                source.topics["other"] = ScriptedTopic([batches(0, 3)], mine.id)
            await made.until_copied(("orders", 0), ("orders", 1), ("clicks", 0))
            asked = source.asked[METADATA]
            await made.until(lambda: source.asked[METADATA] > asked + 2)
            assert made.topics.topics[OFFSETS_TOPIC] == mine
            assert made.end(OFFSETS_TOPIC) == 1
            assert sorted(made.topics.topics) == [OFFSETS_TOPIC, "clicks", "orders"]
            assert {name for name, _ in made.mirror.partitions} == {"orders", "clicks"}
            assert ("other" in made.mirror.failed) == taken_id

    asyncio.run(run())


def test_metadata_with_missing_partitions_changes_no_log(tmp_path, caplog):
    source = ScriptedSource(honest())
    other = uuid.uuid4()

    def lies(answer: Plain) -> None:
        orders, clicks = answer["topics"]
        del orders["partitions"][1]
        clicks["partitions"][0]["partition_index"] = 7
        clicks["topic_id"] = other

    async def run() -> None:
        async with source.serving(), Running(source, tmp_path / "mirror") as made:
            await made.until_copied(("orders", 0), ("orders", 1), ("clicks", 0))
            source.lies[METADATA] = lies
            await made.until(lambda: sorted(made.mirror.failed) == ["clicks", "orders"])
            assert made.mirror.partitions == {}
            source.topics["orders"].batches[1] += batches(6)
            source.lies.clear()
            await made.until(lambda: made.end("orders", 1) == 9)
            assert (made.end("orders", 0), made.end("clicks", 0)) == (6, 6)

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "its metadata lists 1 partitions, but it had 2" in caplog.text


def test_invalid_topic_name_is_logged_once(tmp_path, caplog):
    names = ["", "a\x1b[2Jb\rERROR forged", "x" * 300, "..", "../up", "/etc/passwd"]
    source = ScriptedSource(honest(**{name: ScriptedTopic([batches(0)]) for name in names}))

    async def run() -> None:
        async with source.serving(), Running(source, tmp_path / "mirror") as made:
            await made.until_copied(("orders", 0), ("orders", 1), ("clicks", 0))
            assert len(made.mirror.failed) == len(names)

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    said = [record.getMessage() for record in caplog.records if "is not mirrored" in record.getMessage()]
    assert len(said) == len(names)
    assert all(text.isprintable() and len(text) < 400 for text in said)
    assert sorted(path.name for path in (tmp_path / "mirror").iterdir() if path.is_dir()) == [
        "clicks-0", "orders-0", "orders-1",
    ]  # fmt: skip


def test_other_cluster_at_the_same_address_counts_as_unavailable(tmp_path, caplog):
    source = ScriptedSource(honest())

    async def run() -> None:
        async with source.serving(), Running(source, tmp_path / "mirror") as made:
            await made.until_copied(("orders", 0), ("orders", 1), ("clicks", 0))
            source.lies[METADATA] = lambda answer: answer.update(cluster_id="other", topics=[])
            await made.until(lambda: "cluster other responds, expected scripted" in caplog.text)
            assert not made.running.done()

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())


def test_new_topic_gets_the_configuration_in_force(tmp_path: Path) -> None:
    source = ScriptedSource(honest())

    async def run() -> None:
        async with source.serving(), Running(source, tmp_path / "mirror") as mirror:
            await mirror.until_copied(("clicks", 0))
            config = mirror.logs.config.with_dynamic({"log.segment.bytes": "2000000"}, {})
            for _ in mirror.logs.updating_config(config):
                pass
            source.topics["late"] = ScriptedTopic([batches(0, 3)])
            await mirror.until_copied(("late", 0))
            log = mirror.logs.get("late", 0)
            assert log is not None
            assert log.config.segment_bytes == 2_000_000

    asyncio.run(run())


def test_records_deleted_by_the_sources_log_start_are_logged(tmp_path, caplog):
    source = ScriptedSource(honest())

    async def run() -> None:
        async with source.serving(), Running(source, tmp_path / "mirror") as made:
            await made.until_copied(("orders", 0), ("orders", 1), ("clicks", 0))
            source.topics["clicks"].start = 4
            await made.until(lambda: (log := made.logs.get("clicks", 0)) is not None and log.log_start_offset == 4)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert "clicks-0: the source's log starts at offset 4; deleted offsets 0 to 3 (4 offsets) here too" in caplog.text


def test_once_lists_partitions_that_were_not_copied(tmp_path):
    source = ScriptedSource(honest(**{"a.b": ScriptedTopic([batches(0)]), "a_b": ScriptedTopic([batches(0)])}))
    source.lies[LIST_OFFSETS] = setting(offset=-1)

    async def run() -> None:
        async with source.serving(), Running(source, tmp_path / "mirror", once=True) as made:
            async with asyncio.timeout(WAIT_S):
                await made.running
            assert sorted(made.mirror.failed) == ["a_b", "orders-0"]

    asyncio.run(run())
    assert log_data(tmp_path / "mirror", "clicks") == b"".join(data for _, _, data in batches(0, 3))


def spoiled(chance: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    match chance.randrange(4):
        case 0:
            return data[: chance.randrange(len(data))]
        case 1:
            made[chance.randrange(len(made))] ^= 1 << chance.randrange(8)
        case 2:
            at = chance.randrange(len(made))
            made[at : at + 4] = chance.choice((HUGE_LEGACY, HUGE_COMPACT, b"\xff" * 8, b"\x80\0\0\0\0\0\0\0", b""))
        case _:
            for _ in range(chance.randrange(1, 9)):
                made[chance.randrange(4, len(made))] = chance.randrange(256)
    return bytes(made)


@pytest.mark.parametrize("fetch", [11, 12])
def test_corrupt_responses_raise_only_mirror_errors(fetch, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("kafkalog_broker.mirror.mirror._SOURCE_BACKOFF_MS", (1, 2))
    monkeypatch.setattr("kafkalog_broker.mirror.mirror._NODE_BACKOFF_MS", (1, 2))
    monkeypatch.setattr("kafkalog_broker.mirror.mirror._METADATA_RETRY_S", 0.005)
    monkeypatch.setattr("kafkalog_broker.mirror.node_fetcher._MAX_THROTTLE_S", 0.001)
    monkeypatch.setattr("kafkalog_broker.mirror.partition_mirror._RETRY_MS", 1)
    monkeypatch.setattr("kafkalog_broker.mirror.partition_mirror._FAILURE_RETRY_MS", 1)
    chance, source = random.Random(fetch), ScriptedSource(honest(), fetch=fetch)

    def sometimes(data: bytes) -> bytes:
        return spoiled(chance, data) if chance.random() < 0.3 else data

    spoils: dict[int, Callable[[bytes], bytes]] = dict.fromkeys(
        (FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, EPOCH_ENDS), sometimes
    )

    async def run() -> None:
        async with source.serving():
            for _ in range(3):
                source.spoils = spoils
                settings = ClientSettings(timeout_ms=100)  # an answer whose size is spoiled never comes
                async with Running(source, tmp_path / "mirror", own=True, settings=settings) as made:
                    source.asked = dict.fromkeys(source.asked, 0)
                    await made.until(lambda: sum(source.asked.values()) > 150)
                    assert made.end(OFFSETS_TOPIC) == 1

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "Traceback" not in caplog.text
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_mirror_cancelled_during_a_metadata_refresh_ends(tmp_path):
    async def run() -> None:
        source = ScriptedSource(honest())
        async with source.serving():
            for steps in range(4):  # of the event loop, between the one and the other
                made = Running(source, tmp_path / "mirror")
                await made.__aenter__()
                await made.until_copied(("orders", 0), ("orders", 1), ("clicks", 0))
                made.mirror._is_stale.set()
                for _ in range(steps):
                    await asyncio.sleep(0)
                made.running.cancel()
                done, _ = await asyncio.wait([made.running], timeout=10)
                assert done
                await made.__aexit__()

    asyncio.run(run())
