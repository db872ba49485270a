"""Options of kafkalog-cat, parsed from its command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import MAX_INT64, MIN_INT64
from kafkalog_spark.log.decode.scan_request import RecordPredicate, ScanRequest
from kafkalog_spark.options import day_if_seconds


class Start(NamedTuple):
    """Position at which reading a partition begins.

    `value` is an offset, the number of last records, or a timestamp in ms, depending on `where`.
    """

    where: Literal["beginning", "end", "offset", "tail", "timestamp"] = "beginning"
    value: int = 0


@dataclass(frozen=True, slots=True)
class CatOptions:
    """Parsed options of kafkalog-cat.

    Attributes:
        topics: Topics in the order given.
        partitions: Partition numbers; empty for all.
        start: Start of each partition.
        stop_ms: Each partition ends before its first record with this timestamp or a later one; None for no end.
        request: Conditions on records, and whether damage is skipped.
        count: Largest number of records; None for all.
        follow: True to wait for new records.
    """

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    start: Start
    stop_ms: int | None
    request: ScanRequest
    count: int | None
    follow: bool


def cat_options(arguments: argparse.Namespace) -> CatOptions:
    """Return the options of a command line. Raises OptionError."""
    if arguments.count is not None and arguments.count < 0:
        raise OptionError(f"-c takes a number of records, got {arguments.count}")
    start, stop_ms = parse_bounds(arguments.offset)
    if arguments.follow and stop_ms is not None:
        raise OptionError("-o e@TIME and --follow exclude each other: --follow does not stop at a time")
    request = ScanRequest(
        columns=(),
        timestamp_from_ms=MIN_INT64 if arguments.since is None else parse_time_ms(arguments.since, "--from"),
        timestamp_until_ms=MAX_INT64 if arguments.until is None else parse_time_ms(arguments.until, "--to"),
        read_committed=arguments.isolation_level == "read_committed",
        drop_malformed=arguments.past_damage,
        wanted=record_predicate(
            arguments.key, arguments.key_hex, arguments.key_prefix, arguments.value_contains, arguments.header
        ),
    )
    topics, partitions = tuple(dict.fromkeys(arguments.topic)), tuple(dict.fromkeys(arguments.partition))
    return CatOptions(topics, partitions, start, stop_ms, request, arguments.count, arguments.follow)


def parse_bounds(texts: Sequence[str]) -> tuple[Start, int | None]:
    """Parse the values of -o as kcat does: beginning, end, N, -N, s@MS, e@MS.

    Returns:
        The start, and the timestamp in ms to stop at, if one is given.

    Raises:
        OptionError: For an invalid value, or two values for the same bound.
    """
    start: Start | None = None
    stop: int | None = None
    for text in texts:
        if text.startswith("e@"):
            if stop is not None:
                raise OptionError("-o e@ is given twice")
            stop = parse_time_ms(text[2:], "-o e@")
            continue
        if start is not None:
            raise OptionError(f"-o is given twice: a read has one start, got '{text}' too")
        start = _parse_start(text)
    return start or Start(), stop


def parse_time_ms(text: str, name: str) -> int:
    """Parse a time: a number of ms, or ISO 8601, in UTC if it has no zone.

    Args:
        text: The time.
        name: Option, for the error.

    Returns:
        Milliseconds since 1970.

    Raises:
        OptionError: If `text` is neither.
    """
    if re.fullmatch(r"-?\d{6,}", text):
        return max(min(int(text), MAX_INT64), MIN_INT64)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"{name} takes a time such as 2026-01-31T09:00, or ms since 1970 (six digits at least), got '{text}'"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def note_about_seconds(times: Mapping[str, int | None]) -> str | None:
    """Return a note about the first time that looks like seconds. `times`: in ms, by option."""
    for name, ms in times.items():
        if (day := day_if_seconds(ms)) is not None:
            return f"{name} is {day}: a number is in milliseconds, not in seconds"
    return None


def record_predicate(
    key: str | None, key_hex: str | None, key_prefix: str | None, value_contains: str | None, header: str | None
) -> RecordPredicate:
    """Return the conditions of a search, which are those of the options where.* of a read.

    Raises:
        OptionError: If two keys are given, or `key_hex` is not hexadecimal.
    """
    if key is not None and key_hex is not None:
        raise OptionError("--key and --key-hex are both given: a record has one key")
    try:
        hex_bytes = None if key_hex is None else bytes.fromhex(key_hex)
    except ValueError:
        raise OptionError(f"--key-hex takes pairs of hexadecimal digits, got '{key_hex}'") from None
    header_name, equals, header_value = (None, "", "") if header is None else header.partition("=")
    return RecordPredicate(
        _encoded(key) if hex_bytes is None else hex_bytes,
        _encoded(key_prefix),
        _encoded(value_contains),
        _encoded(header_name),
        _encoded(header_value) if equals else None,
    )


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _parse_start(text: str) -> Start:
    if text.startswith("s@"):
        return Start("timestamp", parse_time_ms(text[2:], "-o s@"))
    if text in ("beginning", "end"):
        return Start("end" if text == "end" else "beginning")
    if re.fullmatch(r"-?\d+", text):
        number = int(text)
        if abs(number) > MAX_INT64:
            raise OptionError(f"-o {text} is not an offset: offsets have 64 bits")
        return Start("tail", -number) if text.startswith("-") else Start("offset", number)
    hint = "committed offsets: table consumer_offsets, docs/tables.md" if text == "stored" else None
    raise OptionError(f"-o takes beginning, end, N, -N, s@TIME or e@TIME, got '{text}'", hint=hint)
