"""Whether retention has anything to do in a log that nobody has opened: seen from its first segment, not opening it.

Retention goes from the oldest segment on and stops at the first that stays (retention.decide).
"""

from __future__ import annotations

from pathlib import Path

from kafkalog_broker.config.log_config import LogConfig
from kafkalog_spark.log.format import names
from kafkalog_spark.log.format.layout import NO_TIMESTAMP
from kafkalog_spark.log.format.time_index import load_time_index
from kafkalog_spark.log.read.directory_listing import log_files


def may_be_due(directory: Path, config: LogConfig, log_start_offset: int, now_ms: int) -> bool:
    """False when `retention.decide` would drop nothing. Raises OSError."""
    segments = log_files(directory)
    bases = list(segments)
    if not bases or (len(bases) == 1 and segments[bases[0]].st_size == 0):
        return False
    first = bases[0]
    if len(bases) > 1 and bases[1] <= log_start_offset:
        return True
    if not config.is_deleted:
        return False
    total = sum(facts.st_size for facts in segments.values())
    if 0 <= config.retention_bytes <= total - segments[first].st_size:
        return True
    if config.retention_ms < 0:
        return False
    last = load_time_index(directory / (names.segment_name(first) + names.TIME_INDEX_SUFFIX), first).last
    largest = NO_TIMESTAMP if last is None else last.timestamp
    if largest == NO_TIMESTAMP:
        largest = segments[first].st_mtime_ns // 1_000_000
    return now_ms - largest > config.retention_ms
