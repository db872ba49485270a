"""Forged records in `__remote_log_metadata`: they lead to no path outside the tier, and the broker still starts."""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalog_spark.errors import CorruptManifest, CorruptRemoteMetadata, RemoteResourceNotFound, UnsafePath
from kafkalog_spark.format.checkpoint import EpochEntry
from kafkalog_spark.format.names import REMOTE_LOG_METADATA_TOPIC, is_internal
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.remote.folder_store import FolderStore
from kafkalog_spark.log.remote.remote_storage import RemoteStorage
from kafkalog_spark.log.remote.remote_storage_options import RemoteStorageOptions
from kafkalog_spark.log.tiered.chunks import ChunkIndex
from kafkalog_spark.log.tiered.custom_metadata import encode_custom_metadata
from kafkalog_spark.log.tiered.manifest import INDEX_FIELDS, IndexRange, SegmentManifest, format_manifest
from kafkalog_spark.log.tiered.metadata_partitioner import metadata_partition
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from kafkalog_spark.log.tiered.remote_log_events import (
    PartitionDeleteState,
    PartitionDeletion,
    RemoteLogEvent,
    RemoteSegmentState,
    SegmentEvent,
    SegmentUpdate,
    decode_event,
    encode_event,
)
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment, TopicIdPartition
from kafkalog_spark.store.interface import FileFacts
from tests.broker.storage.helpers.hostile_broker import (
    PARTITIONS,
    HostileBroker,
    contents,
    copy_of,
    names_in,
    unserved,
)

STARTED, FINISHED, DELETING, _ = RemoteSegmentState
FOREIGN_ID, SEGMENT_ID = uuid.UUID(int=7), uuid.UUID(int=77)


def segment(
    topic: str, partition: int = 0, topic_id: uuid.UUID = FOREIGN_ID, end: int = 9, epoch: int = 0,
    custom: bytes | None = None,
) -> RemoteSegment:  # fmt: skip
    entries = (EpochEntry(epoch, 0),)
    return RemoteSegment(
        TopicIdPartition(topic, topic_id, partition), SEGMENT_ID, 0, end, entries, 100, 1, 1, 1, custom
    )


def event(state: RemoteSegmentState, topic: str, partition: int = 0, **fields: object) -> SegmentEvent:
    return SegmentEvent(segment(topic, partition, **fields), state)  # type: ignore[arg-type]


HOSTILE: dict[str, tuple[Callable[[uuid.UUID], RemoteLogEvent], set[tuple[str, int]], str]] = {
    "segments to delete of a topic that is a path": (
        lambda _: event(DELETING, "../outside/victim"), set(), "'../outside/victim' is not a valid topic name",
    ),
    "an object key that is a path": (
        lambda _: event(
            DELETING, "pwned", custom=encode_custom_metadata(None, None, "../outside/orders"),
        ), set(), "has the object key '../outside/orders'",
    ),
    "a finished segment of a topic that is a path": (
        lambda _: event(FINISHED, "../pwned"), set(), r"'\.\./pwned' is not a valid topic name",
    ),
    "the largest partition": (
        lambda _: event(FINISHED, "pwned", 2**31 - 1), set(), "1 partitions of topic pwned .* not restored",
    ),
    "a negative partition": (lambda _: event(FINISHED, "pwned", -1), set(), "partition -1 of pwned"),
    "a topic without objects": (
        lambda _: event(FINISHED, "pwned"), {("pwned", 0)}, "pwned-0 is offline .* cannot be read|does not exist",
    ),
    "an end and an epoch beyond the log's": (
        lambda topic_id: event(FINISHED, "tiered", topic_id=topic_id, end=10**9, epoch=5), {("tiered", 0)},
        "tiered-0 is offline until the next start",
    ),
    "a topic of dots": (lambda _: event(FINISHED, ".."), set(), r"'\.\.' is not a valid topic name"),
    "a topic without a name": (lambda _: event(FINISHED, ""), set(), "'' is not a valid topic name"),
    "a topic with control characters": (
        lambda _: event(FINISHED, "a\nb\x1b[31m"), set(), r"'a\\nb\\x1b\[31m' is not a valid topic name",
    ),
    "an internal topic": (
        lambda _: event(FINISHED, "__consumer_offsets"), set(), "no broker copies segments of an internal topic",
    ),
    "the metadata topic itself": (
        lambda _: event(FINISHED, REMOTE_LOG_METADATA_TOPIC), set(), "no broker copies segments of an internal topic",
    ),
    "another name for a topic's ID": (
        lambda topic_id: event(FINISHED, "pwned", topic_id=topic_id), set(), "the topic with this ID is tiered",
    ),
    "no topic ID": (lambda _: event(FINISHED, "pwned", topic_id=uuid.UUID(int=0)), set(), "without a topic ID"),
    "an end before the start": (lambda _: event(FINISHED, "pwned", end=-1), set(), "the offsets 0 to -1"),
    "a negative epoch": (lambda _: event(FINISHED, "pwned", epoch=-5), set(), "leader epochs -5 from 0"),
    "a partition to delete that is a path": (
        lambda _: PartitionDeletion(
            TopicIdPartition("../outside/victim", FOREIGN_ID, 0), 1, 1, PartitionDeleteState.DELETE_PARTITION_MARKED
        ), set(), "is not a valid topic name",
    ),
    "an update of a topic that is a path": (
        lambda _: SegmentUpdate(
            TopicIdPartition("../outside/victim", FOREIGN_ID, 0), SEGMENT_ID, 1, 1, None, DELETING
        ), set(), "is not a valid topic name",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make_event", "offline", "says"), HOSTILE.values(), ids=HOSTILE)
def test_start_with_a_hostile_metadata_record_serves_all_other_partitions_and_touches_nothing_outside(
    broker_root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    make_event: Callable[[uuid.UUID], RemoteLogEvent], offline: set[tuple[str, int]], says: str,
) -> None:  # fmt: skip
    root = copy_of(broker_root, tmp_path / "broker")
    before, names = contents(root / "outside"), names_in(root)
    with HostileBroker(root) as running:
        running.write_events(make_event(running.topic_id("tiered")))
    with caplog.at_level(logging.INFO), HostileBroker(root) as running:
        assert unserved(running, [key for key in PARTITIONS if key not in offline]) == {}
        for key in offline:
            assert running.produce(*key) == "kafka_storage_error"
        running.copy_segments()
    assert re.search(says, "\n".join(caplog.messages))
    assert "\x1b" not in caplog.text
    assert (contents(root / "outside"), names_in(root)) == (before, names)
    topics = {path.name.rpartition("-")[0] for path in (root / "data").glob("*-*") if path.is_dir()}
    assert topics <= {
        "orders", "payments", "tiered", "pwned", "__consumer_offsets", "__transaction_state", "__share_group_state",
        REMOTE_LOG_METADATA_TOPIC, "remote-log-index",
    }  # fmt: skip


def test_produce_to_the_metadata_topic_is_refused_and_the_topic_is_not_called_internal(
    broker_root: Path, tmp_path: Path
) -> None:
    """Kafka's Metadata does not call it internal either. Kafka's brokers write to it as clients; this one does not."""
    with HostileBroker(copy_of(broker_root, tmp_path / "broker")) as running:
        assert running.produce(REMOTE_LOG_METADATA_TOPIC, 0) == "invalid_topic_exception"
        assert running.fetch(REMOTE_LOG_METADATA_TOPIC, 0)[0] == "none"
        assert not is_internal(REMOTE_LOG_METADATA_TOPIC)


def test_start_with_an_unreadable_metadata_partition_keeps_its_tiered_partitions_offline(
    broker_root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without its events nothing is known of remote segments: a log could go on at an offset that was used before."""
    root = copy_of(broker_root, tmp_path / "broker")
    with HostileBroker(root) as running:
        parts = {
            number: metadata_partition(TopicIdPartition("tiered", running.topic_id("tiered"), number), 2)
            for number in (0, 1)
        }
    path = root / "data" / f"{REMOTE_LOG_METADATA_TOPIC}-{parts[0]}" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with HostileBroker(root) as running:
        hidden = [("tiered", number) for number in (0, 1) if parts[number] == parts[0]]
        assert unserved(running, [key for key in PARTITIONS if key not in hidden]) == {}
        assert [running.produce(*key) for key in hidden] == ["kafka_storage_error"] * len(hidden)
    assert f"{REMOTE_LOG_METADATA_TOPIC}-{parts[0]} cannot be read" in caplog.text


def test_copies_whose_end_cannot_be_read_are_not_deleted_as_unfinished(broker_root: Path, tmp_path: Path) -> None:
    """The first events of a metadata partition can be read, and those that finish the copies cannot."""
    root = copy_of(broker_root, tmp_path / "broker")
    before = contents(root / "tier")
    damaged = 0
    for path in (root / "data").glob(f"{REMOTE_LOG_METADATA_TOPIC}-*/*.log"):
        data = bytearray(path.read_bytes())
        if data:
            second = 12 + int.from_bytes(data[8:12], "big")  # each event is a batch
            data[second + 70] ^= 1
            path.write_bytes(data)
            damaged += 1
    assert damaged
    assert any(before.values())
    with HostileBroker(root) as running:
        running.copy_segments()
        running.copy_segments()
    assert contents(root / "tier") == before


@pytest.mark.parametrize(
    "odd",
    [
        segment("orders", end=-1), segment("orders", epoch=-1), replace(segment("orders"), start_offset=-1),
        replace(segment("orders"), leader_epochs=()), replace(segment("orders"), size=-1),
        replace(segment("orders"), leader_epochs=(EpochEntry(0, 5), EpochEntry(1, 2))),
        replace(segment("orders"), leader_epochs=(EpochEntry(0, 0), EpochEntry(0, 2))),
        replace(segment("orders"), leader_epochs=(EpochEntry(0, 0), EpochEntry(1, 10))),
    ],
)  # fmt: skip
def test_decode_of_a_segment_that_no_broker_copies_is_an_error(odd: RemoteSegment) -> None:
    with pytest.raises(CorruptRemoteMetadata, match=r"a segment of orders-0"):
        decode_event(encode_event(SegmentEvent(odd, FINISHED)))


@pytest.mark.parametrize("kind", ["prefix", "other topic's key"])
def test_custom_metadata_with_foreign_object_names_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "tier").mkdir()
    own = segment("orders")
    key = f"secret-{uuid_to_text(FOREIGN_ID)}/0/{own.name}"
    custom = encode_custom_metadata(None, *(("../outside/", None) if kind == "prefix" else ("", key)))
    storage = RemoteStorage(RemoteStorageOptions.of({}, str(tmp_path / "tier")))
    storage.mark()
    odd = replace(own, custom_metadata=custom)
    with pytest.raises((UnsafePath, CorruptRemoteMetadata), match=r"is no path below|expected orders-"):
        storage.delete(odd)
    with pytest.raises((UnsafePath, CorruptRemoteMetadata, RemoteResourceNotFound)):
        storage.fetch(odd, 0, 10)
    storage.close()


def test_folder_storage_neither_deletes_nor_writes_outside_its_root(tmp_path: Path) -> None:
    root, outside = tmp_path / "tier", tmp_path / "tier-outside"
    for directory in (root / "a", outside / "empty"):
        directory.mkdir(parents=True)
    (outside / "log").write_bytes(b"kept")
    (root / "link").symlink_to(outside)
    (root / "a" / "log.tmp").symlink_to(outside / "log")
    store = FolderStore(str(root), str(root))
    store.mark()
    for path in (f"{outside}/log", f"{root}/../tier-outside/log", f"{root}/link/log", f"{outside}/empty/log"):
        with pytest.raises(UnsafePath):
            store.delete([path])
        with pytest.raises(UnsafePath):
            store.upload(path, lambda: [b"new"], 3)
        with pytest.raises(UnsafePath):
            store.read_all(path, 10)
        with pytest.raises(UnsafePath):
            store.ranges(path, FileFacts(4, ""))(0, 4)
    store.upload(f"{root}/a/log", lambda: [b"new"], 3)
    assert (root / "a" / "log").read_bytes() == b"new"
    store.delete([f"{root}/a/log"])
    assert not (root / "a").exists()
    assert contents(outside) == {"empty": None, "log": b"kept"}


def test_indexes_with_an_implausible_size_in_the_manifest_are_not_fetched(tmp_path: Path) -> None:
    """A sparse object of a terabyte costs nothing to make, and would be read into memory as a whole."""
    storage = RemoteStorage(RemoteStorageOptions.of({}, str(tmp_path / "tier")))
    one = segment("orders")
    directory = tmp_path / "tier" / f"orders-{uuid_to_text(FOREIGN_ID)}" / "0"
    directory.mkdir(parents=True)
    places = dict.fromkeys(INDEX_FIELDS, IndexRange(0, 1 << 40))
    manifest = SegmentManifest(ChunkIndex.of_fixed(100, 100, 100, 100), False, None, places, one)
    (directory / f"{one.name}.rsm-manifest").write_bytes(format_manifest(manifest))
    (directory / f"{one.name}.indexes").touch()
    os.truncate(directory / f"{one.name}.indexes", 1 << 40)
    with pytest.raises(CorruptManifest, match=r"its indexes take 1099511627776 bytes"):
        storage.fetch_index(one, RemoteFile.LEADER_EPOCHS)
    storage.close()
