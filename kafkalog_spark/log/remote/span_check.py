"""Checks a remote segment that overlaps the next one: its batches must agree with its metadata.

Segments overlap after leader changes. They also overlap if the endOffset of a manifest is too large, if a batch has a
wrong offset, or if the .log of another segment was copied over this one. In these cases, the segment is damaged, and
reading it instead of the next segment would lose records.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from kafkalog_spark.errors import CorruptLog, CorruptManifest, NotALogDirectory
from kafkalog_spark.log.read.log_end import find_log_end
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.read.segment_lookup import locate
from kafkalog_spark.log.remote.remote_segment_file import open_remote
from kafkalog_spark.log.remote.stored_segment import StoredSegment
from kafkalog_spark.log.tiered.key_ring import KeyRing
from kafkalog_spark.log.tiered.object_keys import RemoteFile

_log = logging.getLogger(__name__)


def check_span(
    stored: StoredSegment, following: int, keys: KeyRing, topic_partition: str, *, pass_over_damage: bool
) -> StoredSegment | None:
    """Check that the batches of a segment contain offset `following` and end at the segment's end offset.

    Args:
        stored: The segment.
        following: Start offset of the next segment, which is within this segment by its metadata.
        keys: Private keys, for encrypted segments.
        topic_partition: Topic-partition, for messages.
        pass_over_damage: True to log damage and shorten the segment instead of raising (mode=DROPMALFORMED).

    Returns:
        The segment. A damaged segment is shortened: it ends before the gap at `following`, or after its last batch.
        None if it begins with that gap.

    Raises:
        FileNotFoundError: If the segment was deleted.
        CorruptLog: If no batch contains `following`.
        CorruptManifest: If the last batch does not end at the segment's end offset.
        NotALogDirectory: If the segment cannot be read.
    """
    segment = stored.segment
    try:
        with open_remote(stored, keys, topic_partition, pass_over_damage=pass_over_damage) as file:
            file.next_base_offset = None
            end = find_log_end(file).offset
            gap = _find_gap(file, following)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NotALogDirectory(
            f"the segment cannot be read: {error.strerror}", topic_partition=topic_partition, path=stored.log_path
        ) from error
    if gap is not None:
        begin, until = gap
        is_empty = begin == segment.start_offset
        checked = None if is_empty else replace(stored, segment=replace(segment, end_offset=begin - 1))
        damage = CorruptLog(
            f"no batch has offsets {begin} to {until - 1}, expected some: the next segment begins at {following}",
            topic_partition=topic_partition,
            path=stored.log_path,
            hint="was another segment's .log copied over this one?" if is_empty else "a batch has a wrong offset",
        )
    elif end != segment.until:
        checked = replace(stored, segment=replace(segment, end_offset=end - 1))
        source, source_file = "__remote_log_metadata", RemoteFile.LOG
        if stored.manifest is not None:
            source, source_file = "the manifest", RemoteFile.MANIFEST
        damage = CorruptManifest(
            f"{source} says that the segment ends with offset {segment.end_offset}, but its last batch ends with "
            f"{end - 1}, and the next segment begins at {following}",
            topic_partition=topic_partition,
            path=stored.path_of(source_file),
        )
    else:
        return stored
    if not pass_over_damage:
        raise damage
    _log.warning("mode=DROPMALFORMED: %s", damage)
    return checked


def _find_gap(file: SegmentFile, offset: int) -> tuple[int, int] | None:
    """Return the gap [begin, until) between batches that contains `offset` or ends directly before it, or None."""
    position = locate(file, offset - 1)
    begin = file.base_offset if position == file.begin else None
    for header in file.headers(position):
        if header.last_offset >= offset:
            # The first offset of a v0 or v1 wrapper message is unknown, so a gap before it cannot be detected.
            is_gap = header.magic == 2 and begin is not None and begin < header.base_offset >= offset
            return (begin, header.base_offset) if is_gap and begin is not None else None
        begin = header.last_offset + 1
    return None
