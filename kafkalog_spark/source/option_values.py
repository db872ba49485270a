"""From an option's text to its value. Every function takes the option's name and its text, and raises OptionError."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.layout import MAX_INT32
from kafkalog_spark.log.record_schema import COLUMN_TYPES
from kafkalog_spark.source.offset_range_limit import (
    Bound,
    Earliest,
    GlobalTimestamp,
    Latest,
    SpecificTimestamps,
)
from kafkalog_spark.source.offsets_json import MAX_INT64, parse_offsets, parse_partitions, parse_timestamps
from kafkalog_spark.source.subscription import Assign, Subscribe, SubscribePattern

Parser = Callable[[str, str], Any]

_BYTES = re.compile(r"([0-9]{1,19})\s*([a-z]*)")
_BYTE_UNITS = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40}
_DURATION = re.compile(r"([0-9]{1,19})\s*([a-z]*)")
_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def boolean(name: str, text: str) -> bool:
    """`true` or `false` in any case: Scala's toBoolean."""
    lower = text.lower()
    if lower not in ("true", "false"):
        raise OptionError(f'For input string: "{text}"', hint=f"option '{name}' must be true or false")
    return lower == "true"


def positive(largest: int) -> Parser:
    """A whole number from 1 to `largest`."""

    def parse(name: str, text: str) -> int:
        number = _integer(name, text, largest)
        if number <= 0:
            raise OptionError(f"{name} must be positive", hint=f"got {text}")
        return number

    return parse


positive_int = positive(MAX_INT32)
positive_long = positive(MAX_INT64)


def _integer(name: str, text: str, largest: int) -> int:
    """What Java's parseInt and parseLong take; their message."""
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not -largest - 1 <= int(text) <= largest:
        raise OptionError(
            f'For input string: "{text}"', hint=f"option '{name}' must be a whole number of at most {largest}"
        )
    return int(text)


def choice(*values: str) -> Parser:
    """One of `values`, in any case; returned as written here."""
    by_key = {value.lower(): value for value in values}

    def parse(name: str, text: str) -> str:
        if text.lower() not in by_key:
            raise OptionError(f"option '{name}' must be one of {', '.join(values)}, got '{text}'")
        return by_key[text.lower()]

    return parse


def byte_size(name: str, text: str) -> int:
    """Bytes: `134217728`, `128m`, `1g`; binary units, as Spark's byteStringAs."""
    match = _BYTES.fullmatch(text.lower())
    if not match or match[2] not in _BYTE_UNITS:
        raise OptionError(f"option '{name}' must be a size such as 134217728, 128m or 1g, got '{text}'")
    size = int(match[1]) << _BYTE_UNITS[match[2]]
    if not 0 < size <= MAX_INT64:
        raise OptionError(f"{name} must be positive and at most {MAX_INT64} bytes", hint=f"got {text}")
    return size


def duration_ms(name: str, text: str) -> int:
    """Milliseconds: `15m`, `30s`, `500ms`, `500`; as Spark's timeStringAsMs."""
    match = _DURATION.fullmatch(text.lower())
    if not match or match[2] not in _MS or int(match[1]) * _MS[match[2]] > MAX_INT64:
        raise OptionError(f"option '{name}' must be a time such as 15m, 30s or 500ms, got '{text}'")
    return int(match[1]) * _MS[match[2]]


def topics(name: str, text: str) -> Subscribe:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise OptionError(f"No topics to subscribe to as specified value for option '{name}' is '{text}'")
    return Subscribe(names)


def pattern(name: str, text: str) -> SubscribePattern:
    """A regular expression. Java's and Python's agree on what topic names need; what only Java has is refused."""
    if not text:
        raise OptionError(f"Pattern to subscribe is empty as specified value for option '{name}' is '{text}'")
    subscribed = SubscribePattern(text)
    try:
        with warnings.catch_warnings():
            # Python warns where it may one day read [a&&b] as Java does; until then the two mean different things.
            warnings.simplefilter("error", FutureWarning)
            subscribed.regex()
    except (re.error, FutureWarning, OverflowError, RecursionError) as error:
        raise OptionError(
            f"option '{name}' is not a regular expression that can be used here: '{text}': {error}",
            hint="it is read by Python's re: \\p{...}, \\Q...\\E, (?<name>...) and [a&&b] of Java are not known",
        ) from None
    return subscribed


def assignment(name: str, text: str) -> Assign:
    if not text.startswith("{"):
        raise OptionError(f"No topicpartitions to assign as specified value for option '{name}' is '{text}'")
    return Assign(parse_partitions(name, text))


def bound_by_offset(name: str, text: str) -> Bound:
    """`earliest`, `latest` in any case, or offsets as JSON."""
    match text.lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
    return parse_offsets(name, text)


def bound_by_timestamp(name: str, text: str) -> SpecificTimestamps:
    return SpecificTimestamps(parse_timestamps(name, text))


def bound_by_global_timestamp(name: str, text: str) -> GlobalTimestamp:
    """Ms since 1970. -1 (latest) and -2 (earliest) mean in Kafka's ListOffsets what they mean as offsets."""
    hint = f"option '{name}' is in milliseconds since 1970-01-01 UTC"
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or int(text) > MAX_INT64:
        raise OptionError(f"Expected a single long value, got {' '.join(text.split())}", hint=hint)
    if int(text) < -2:
        raise OptionError(f"Expected a timestamp from 0, or -1 latest, -2 earliest, got {text}", hint=hint)
    return GlobalTimestamp(int(text))


def columns(name: str, text: str) -> tuple[str, ...]:
    """Column names, by comma, in any case; returned in the order given, spelled as in the schema."""
    known = {column.lower(): column for column in COLUMN_TYPES}
    given = [part.strip() for part in text.split(",")]
    unknown = [part for part in given if part.lower() not in known]
    if unknown:
        raise OptionError(
            f"option '{name}': no column '{unknown[0]}'", hint=f"the columns are {', '.join(COLUMN_TYPES)}"
        )
    chosen = tuple(known[part.lower()] for part in given)
    if len(set(chosen)) != len(chosen):
        raise OptionError(f"option '{name}' names a column twice: '{text}'")
    return chosen


def paths(name: str, text: str) -> tuple[str, ...]:
    """Local directories: one, several by comma, or a JSON list (what Spark makes of load(["a", "b"]))."""
    if text.startswith("["):
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            given = None
        if type(given) is not list or not all(type(part) is str for part in given):
            raise OptionError(
                f"option '{name}' must be a path, several by comma, or a JSON list of them, got '{text}'",
                hint='a path that begins with [ is written as ["[path"]',
            )
    else:
        given = [part.strip() for part in text.split(",")]
    result = tuple(dict.fromkeys(_local_path(name, part) for part in given if part))
    if not result:
        raise OptionError(f"option '{name}' names no path: '{text}'")
    return result


def _local_path(name: str, text: str) -> str:
    scheme = _URI.match(text)
    path = text
    if scheme:
        # Escapes are decoded, so that pathlib's as_uri() comes back as it was.
        try:
            uri = urlsplit(text)
        except ValueError:
            uri = None
        if uri is None or uri.scheme.lower() != "file" or uri.netloc not in ("", "localhost"):
            raise OptionError(
                f"option '{name}': only local directories can be read, got '{text}'",
                hint="mount or copy the log directory to a path that the driver and every executor see",
            )
        # By hand, because ? and # may be in the name of a file.
        path = unquote(text[text.index(":") + 1 :])
        if path.startswith("//"):
            path = path[2 + len(uri.netloc) :]
    if "\0" in path or not path:
        raise OptionError(f"option '{name}': not a path: {text!r}")
    return path
