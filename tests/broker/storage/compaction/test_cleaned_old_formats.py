"""Compaction of messages v0 and v1."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from kafkalog_broker.storage.append.lz4_frame import header_checksum
from kafkalog_broker.storage.compaction.cleaner import Cleaner
from kafkalog_broker.storage.compaction.cleaning_request import CleaningRequest
from kafkalog_broker.storage.partition.log_segment import LogSegment
from kafkalog_broker.storage.partition.segment_lookup import SegmentEnd
from kafkalog_spark.errors import CorruptBatch
from tests.broker.storage.helpers.cleaned_logs import Host, transient_files
from tests.broker.storage.helpers.stored_logs import NOW, contents, log_config
from tests.log.helpers import plain_decoder
from tests.log.helpers.legacy_builder import LegacyRecord, message, message_set, wrapper


def legacy_segments(source: Path, target: Path, bases: list[int], end: int) -> list[LogSegment]:
    """The segments of a partition before its last cleaning, from the files that it left as `.deleted`."""
    target.mkdir()
    for path in source.iterdir():
        name = path.name.removesuffix(".deleted")
        replaced = (source / f"{name}.deleted").exists()
        if path.name.endswith(".deleted") or not replaced:
            shutil.copy2(path, target / name)
    return [
        LogSegment(target, base, SegmentEnd((target / f"{base:020d}.log").stat().st_size, behind), created_ms=0)
        for base, behind in zip(bases, [*bases[1:], end], strict=True)
    ]


def test_cleaned_v1_messages_equal_those_of_kafka_2_8(tmp_path, golden_legacy):
    source = golden_legacy / "v1-compacted-0"
    segments = legacy_segments(source, tmp_path / "p", [0, 1200, 1620, 1800], 1805)
    swapped = []

    class Kept(Host):
        def producers(self):
            return []

        def replace(self, cleaned, old):
            swapped.append(([segment.base_offset for segment in old], contents(cleaned[0].directory)))

    job = CleaningRequest(
        directory=tmp_path / "p", segments=segments, config=log_config(),
        first_dirty_offset=1200, first_uncleanable_offset=1800, now_ms=NOW,
    )  # fmt: skip
    Cleaner(job, Kept(None, NOW), 1 << 20, 0.9, 1 << 16).clean()  # type: ignore[arg-type]
    ((bases, files),) = swapped
    assert bases == [0, 1200, 1620]
    made = files[f"{0:020d}.log.cleaned"]
    expected = (source / f"{0:020d}.log").read_bytes()
    as_batches = [
        (b.position, b.size, b.base_offset, b.last_offset, b.max_timestamp, b.attributes, b.records)
        for b in plain_decoder.decode_batches(made)
    ]
    assert as_batches == [
        (b.position, b.size, b.base_offset, b.last_offset, b.max_timestamp, b.attributes, b.records)
        for b in plain_decoder.decode_batches(expected)
    ]
    for suffix in (".index", ".timeindex"):
        assert files[f"{0:020d}{suffix}.cleaned"] == (source / f"{0:020d}{suffix}").read_bytes()


def made_by_old_clients(tmp_path: Path, segments: dict[int, bytes], end: int) -> list[LogSegment]:
    """Closed segments and an empty active one, as files that an old broker has left."""
    directory = tmp_path / "old-0"
    directory.mkdir()
    for base, data in {**segments, end: b""}.items():
        (directory / f"{base:020d}.log").write_bytes(data)
    bases = [*segments, end]
    return [
        LogSegment(directory, base, SegmentEnd(len(segments.get(base, b"")), behind), 0)
        for base, behind in zip(bases, [*bases[1:], end], strict=True)
    ]


def cleaned_old(segments: list[LogSegment], *, first_dirty=0) -> list[list[plain_decoder.Batch]]:
    """The batches of each cleaned segment."""
    made = []

    class Kept(Host):
        def producers(self):
            return []

        def replace(self, cleaned, old):
            made.append(plain_decoder.decode_log(cleaned[0].path(".log")))
            cleaned[0].discard()

    job = CleaningRequest(
        directory=segments[0].directory, segments=segments, config=log_config(delete_retention_ms=1000),
        first_dirty_offset=first_dirty, first_uncleanable_offset=segments[-1].base_offset, now_ms=NOW,
    )  # fmt: skip
    Cleaner(job, Kept(None, NOW), 1 << 20, 0.9, 1 << 16).clean()  # type: ignore[arg-type]
    return made


def old_records(first: int, *pairs: tuple[bytes | None, bytes | None]) -> list[LegacyRecord]:
    return [LegacyRecord(first + i, key, value, NOW + first + i) for i, (key, value) in enumerate(pairs)]


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1])
def test_cleaned_legacy_messages_keep_format_codec_offsets_and_timestamps(magic, codec, tmp_path):
    def written(records):
        return wrapper(magic, codec, records) if codec else message_set(magic, records)

    whole = written(old_records(0, (b"a", b"1"), (b"b", b"1")))
    mixed = written(old_records(2, (b"c", b"1"), (None, b"no key"), (b"d", b"1"), (b"c", b"2"), (b"e", b"old")))
    gone = written(old_records(7, (b"e", b"older")))
    last = written(old_records(8, (b"e", b"new")))
    ((*found,),) = cleaned_old(made_by_old_clients(tmp_path, {0: whole + mixed + gone + last}, 9))
    records = [record for one in found for record in one.records]
    assert [(r.offset, r.key, r.value) for r in records] == [
        (0, b"a", b"1"), (1, b"b", b"1"), (4, b"d", b"1"), (5, b"c", b"2"), (8, b"e", b"new"),
    ]  # fmt: skip
    assert [r.timestamp for r in records] == [NOW + r.offset if magic else -1 for r in records]
    assert {(one.magic, one.codec) for one in found} == {(magic, codec)}
    if codec:
        assert [(one.base_offset, one.last_offset) for one in found] == [(0, 1), (4, 5), (8, 8)]
        assert [one.max_timestamp for one in found] == [NOW + 1 if magic else -1, NOW + 5 if magic else -1,
                                                        NOW + 8 if magic else -1]  # fmt: skip


def test_cleaned_lz4_wrapper_v0_has_the_header_checksum_of_clients_of_v0(tmp_path):
    """As Kafka's `Lz4BlockOutputStream` writes it: over the magic number of the frame, too (KAFKA-3160)."""
    data = wrapper(0, 3, old_records(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2")))
    made = []

    class Kept(Host):
        def producers(self):
            return []

        def replace(self, cleaned, old):
            made.append(Path(cleaned[0].path(".log")).read_bytes())
            cleaned[0].discard()

    segments = made_by_old_clients(tmp_path, {0: data}, 3)
    job = CleaningRequest(
        directory=segments[0].directory, segments=segments, config=log_config(), first_dirty_offset=0,
        first_uncleanable_offset=3, now_ms=NOW,
    )  # fmt: skip
    Cleaner(job, Kept(None, NOW), 1 << 20, 0.9, 1 << 16).clean()  # type: ignore[arg-type]
    [batch] = made
    frame = batch[batch.index(b"\x04\x22\x4d\x18") :]
    assert frame[6] == header_checksum(frame[:6]) != header_checksum(frame[4:6])


def test_cleaned_wrapper_keeps_its_log_append_time(tmp_path):
    data = wrapper(1, 1, old_records(0, (b"a", b"1"), (b"a", b"2")), log_append_time=NOW + 77)
    (((found),),) = cleaned_old(made_by_old_clients(tmp_path, {0: data}, 2))
    assert [(r.offset, r.timestamp, r.timestamp_type) for r in found.records] == [(1, NOW + 77, 1)]
    assert found.max_timestamp == NOW + 77


def test_legacy_tombstone_is_removed_by_the_age_of_its_segment(tmp_path):
    data = {base: message_set(1, old_records(base, (b"k%d" % base, None), (b"v%d" % base, b"1"))) for base in (0, 2, 4)}
    segments = made_by_old_clients(tmp_path, data, 6)
    for segment, age in zip(segments, (5000, 1000, 0, 0), strict=True):
        seconds = (NOW - age) / 1000
        os.utime(segment.log_path, (seconds, seconds))
    # The newest clean segment is 1000 ms old by its file, delete.retention.ms is 1000: what is 2000 ms old may go.
    ((*found,),) = cleaned_old(segments, first_dirty=4)
    assert [r.offset for one in found for r in one.records] == [1, 2, 3, 4, 5]


def test_damaged_wrapper_aborts_the_cleaning_before_any_file_is_written(tmp_path):
    inner = message_set(1, old_records(0, (b"a", b"1")))
    bad = message(1, 0, None, gzip.compress(inner[:-3]), NOW, attributes=1)
    with pytest.raises(CorruptBatch) as caught:
        cleaned_old(made_by_old_clients(tmp_path, {0: bad}, 1))
    assert caught.value.path is not None
    assert (caught.value.position, caught.value.offset) == (0, 0)
    assert transient_files(tmp_path / "old-0") == []
