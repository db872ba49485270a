"""RemoteStorage: what is copied comes back, byte for byte, in every layout, through every way of reading it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog_spark.errors import RemoteResourceNotFound, RemoteStorageError
from kafkalog_spark.log.remote import remote_blocks
from kafkalog_spark.log.remote.folder_store import FolderStore
from kafkalog_spark.log.remote.remote_index_cache import BoundedDirectory
from kafkalog_spark.log.remote.remote_storage import RemoteStorage
from kafkalog_spark.log.remote.remote_storage_options import CLASS_NAME, LOCAL_TIERED_CLASS, RemoteStorageOptions
from kafkalog_spark.log.tiered.chunk_codec import ChunkCodec
from kafkalog_spark.log.tiered.object_keys import RemoteFile
from tests.log.helpers.sync_watch import SyncWatch
from tests.log.remote.moving_log import FILES, data_of
from tests.log.tiered.aiven_writer import KEY_ID, KEYS
from tests.log.tiered.golden_tiered import CLEAN
from tests.log.tiered.reading import WITH_KEY, consumed, opened, readable, rows_of

ENCRYPTED = {
    "rsm.config.encryption.enabled": "true",
    "rsm.config.encryption.key.pair.id": KEY_ID,
    "rsm.config.encryption.key.pairs": KEY_ID,
    f"rsm.config.encryption.key.pairs.{KEY_ID}.private.key.file": str(KEYS / "one.pem"),
}
ZSTD = {"rsm.config.compression.enabled": "true"}
LAYOUTS: dict[str, dict[str, str]] = {
    "aiven": {},
    "aiven zstd": ZSTD,
    "aiven encrypted": ENCRYPTED,
    "aiven zstd encrypted": {**ZSTD, **ENCRYPTED},
    "local-tiered": {CLASS_NAME: LOCAL_TIERED_CLASS},
}
layouts = pytest.mark.parametrize("properties", LAYOUTS.values(), ids=LAYOUTS)
SEGMENTS = readable(CLEAN)
LARGEST = max(SEGMENTS, key=lambda segment: segment.size)


def storage(
    tmp_path: Path, properties: Mapping[str, str], most: Callable[[], int] = lambda: 1 << 30, **more: str
) -> RemoteStorage:
    options = RemoteStorageOptions.of({**properties, **more}, str(tmp_path / "tier"))
    made = RemoteStorage(options, BoundedDirectory(tmp_path / "remote-log-index-cache", most))
    made.mark()
    return made


@layouts
def test_copied_segment_is_fetched_and_deleted(tmp_path: Path, properties: dict[str, str]) -> None:
    remote = storage(tmp_path, properties)
    for segment in SEGMENTS:
        remote.copy(segment, data_of(segment, tmp_path / "log"))
    for segment in SEGMENTS:
        files = FILES[segment.name]
        assert remote.fetch(segment, 0, 2**40) == files[RemoteFile.LOG]
        for kind in files.keys() - {RemoteFile.LOG}:
            assert remote.fetch_index(segment, kind) == files[kind]
            assert remote.fetch_index(segment, kind) == files[kind], "from the cache"
    for segment in SEGMENTS:
        remote.delete(segment)
        remote.delete(segment)
    assert not [path for path in (tmp_path / "tier").rglob("*-*.*") if path.is_file()]
    assert not list((tmp_path / "remote-log-index-cache").iterdir())
    with pytest.raises(RemoteResourceNotFound, match=r"does not exist"):
        remote.fetch(SEGMENTS[0], 0, 1)
    remote.close()


@layouts
def test_reader_returns_the_records_of_kafkas_consumer(tmp_path: Path, properties: dict[str, str]) -> None:
    remote = storage(tmp_path, properties)
    for segment in SEGMENTS:
        remote.copy(segment, data_of(segment, tmp_path / "log"))
    for topic, partition in {(one.partition.topic, one.partition.partition) for one in SEGMENTS}:
        log = opened(remote.options.root, topic=topic, partition=partition, tier=WITH_KEY)
        start = CLEAN.log_start(topic, partition) or 0  # a tier alone does not know of DeleteRecords
        rows = rows_of(log, start=max(start, log.log_start_offset))
        assert rows == consumed(CLEAN, topic, partition, end=log.log_end_offset)
        assert rows
    remote.close()


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], RemoteStorage]]:
    """The largest golden segment in every layout, in chunks of several sizes."""
    stores = {}
    for name, properties in LAYOUTS.items():
        for size in (7, 1000, LARGEST.size, LARGEST.size + 1) if name != "local-tiered" else (0,):
            place = tmp_path_factory.mktemp("copied")
            chunk_size: dict[str, Any] = {"rsm.config.chunk.size": str(size)} if size else {}
            stores[name, str(size)] = remote = storage(place, properties, **chunk_size)
            remote.copy(LARGEST, data_of(LARGEST, place / "log"))
    yield stores
    for remote in stores.values():
        remote.close()


@given(begin=st.integers(0, LARGEST.size + 10), size=st.integers(0, LARGEST.size))
def test_any_fetched_range_equals_the_file(copied: dict[tuple[str, str], RemoteStorage], begin: int, size: int) -> None:
    expected = FILES[LARGEST.name][RemoteFile.LOG][begin : begin + size]
    for name, remote in copied.items():
        assert remote.fetch(LARGEST, begin, begin + size) == expected, name


@pytest.mark.parametrize("size", [1000, LARGEST.size], ids=["some", "one"])
def test_large_chunk_is_decoded_in_parts(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_blocks, "_LARGE_CHUNK_SIZE", 500)
    monkeypatch.setattr(remote_blocks, "DECODED_BLOCK", 300)
    monkeypatch.setattr(ChunkCodec, "decode_chunk", None)  # a whole chunk is never decoded
    remote = storage(tmp_path, {**ZSTD, "rsm.config.chunk.size": str(size)})
    remote.copy(LARGEST, data_of(LARGEST, tmp_path / "log"))
    log = FILES[LARGEST.name][RemoteFile.LOG]
    for begin, end in ((0, 1), (0, len(log)), (299, 301), (999, 1001), (1234, 2345), (len(log) - 1, len(log) + 9)):
        assert remote.fetch(LARGEST, begin, end) == log[begin:end]
    remote.close()


def test_index_cache_follows_its_current_limit(tmp_path: Path) -> None:
    most = 1 << 30
    remote = storage(tmp_path, {}, lambda: most)

    def cached() -> list[int]:
        return [path.stat().st_size for path in (tmp_path / "remote-log-index-cache").iterdir()]

    for segment in SEGMENTS:
        remote.copy(segment, data_of(segment, tmp_path / "log"))
        remote.fetch_index(segment, RemoteFile.OFFSET_INDEX)
    assert len(cached()) == 3 * len(SEGMENTS)
    remote.delete(SEGMENTS[0])
    remote.copy(SEGMENTS[0], data_of(SEGMENTS[0], tmp_path / "log"))
    most = sum(cached()) // 2
    remote.fetch_index(SEGMENTS[0], RemoteFile.OFFSET_INDEX)
    assert 0 < sum(cached()) <= most
    remote.close()


@layouts
def test_failed_copy_leaves_no_object(tmp_path: Path, properties: dict[str, str]) -> None:
    remote = storage(tmp_path, properties)
    data = data_of(LARGEST, tmp_path / "log")
    data.indexes[RemoteFile.PRODUCER_SNAPSHOT].unlink()
    with pytest.raises(RemoteStorageError):
        remote.copy(LARGEST, data)
    assert not [path for path in (tmp_path / "tier").rglob("*-*.*") if path.is_file()]
    remote.copy(LARGEST, data_of(LARGEST, tmp_path / "log"))
    assert remote.fetch(LARGEST, 0, 2**40) == FILES[LARGEST.name][RemoteFile.LOG]
    shutil.rmtree(tmp_path / "tier")
    remote.close()


@layouts
def test_truncated_object_is_refused_by_every_read(tmp_path: Path, properties: dict[str, str]) -> None:
    remote = storage(tmp_path, properties)
    remote.copy(LARGEST, data_of(LARGEST, tmp_path / "log"))
    reads: dict[str, Callable[[], bytes]] = {".log": lambda: remote.fetch(LARGEST, 0, 1)}
    if CLASS_NAME not in properties:  # LocalTieredStorage has no such object
        reads[".indexes"] = lambda: remote.fetch_index(LARGEST, RemoteFile.OFFSET_INDEX)
    for ending, read in reads.items():
        (path,) = (tmp_path / "tier").rglob(f"*{ending}")
        os.truncate(path, whole := path.stat().st_size - 1)
        with pytest.raises(RemoteStorageError, match=rf"the file has {whole} bytes, expected {whole + 1}"):
            read()
    remote.close()


def test_folders_are_equal_by_their_roots() -> None:
    assert FolderStore("/a", "/a") == FolderStore("/a", "/a")
    assert FolderStore("/a", "/a") != FolderStore("/b", "/b")


@layouts
def test_copied_segment_is_synced_with_all_its_parents(
    tmp_path: Path, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = storage(tmp_path, properties)
    # made by a thread that has not synced their names yet, or by a process that was killed
    Path(remote._objects.path(SEGMENTS[0], RemoteFile.LOG)).parent.mkdir(parents=True)
    watch = SyncWatch(monkeypatch)
    remote.mark()  # once more, so that the marker's sync is watched, too
    remote.copy(SEGMENTS[0], data_of(SEGMENTS[0], tmp_path / "log"))
    assert watch.unsynced(Path(remote.options.root)) == []
    assert watch.is_synced(Path(remote.options.root).parent)
    remote.close()


@layouts
def test_deleted_segment_loses_its_manifest_before_its_other_objects(
    tmp_path: Path, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash keeps any of the removals that were not synced: a complete segment without its .log would be damage."""
    remote = storage(tmp_path, properties)
    remote.copy(SEGMENTS[0], data_of(SEGMENTS[0], tmp_path / "log"))
    steps: list[str] = []
    real_unlink, real_fsync = os.unlink, os.fsync

    def unlink(path: str) -> None:
        real_unlink(path)
        steps.append("unlink")

    def fsync(fd: int) -> None:
        real_fsync(fd)
        steps.append("fsync")

    monkeypatch.setattr(os, "unlink", unlink)
    monkeypatch.setattr(os, "fsync", fsync)
    remote.delete(SEGMENTS[0])
    assert steps[:3] == ["unlink", "fsync", "unlink"]
    assert steps[-1] == "fsync"
    remote.close()
