"""From an option's text to its value. Every function takes the option's name and its text, and raises OptionError."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.format.layout import MAX_INT64
from kafkalog_spark.log.store.urls import is_local, normalised
from kafkalog_spark.option_text import (
    Parser,
    boolean,
    byte_size,
    choice,
    duration_ms,
    local_path,
    positive_int,
    positive_long,
)
from kafkalog_spark.source.offset_range_limit import (
    Bound,
    Earliest,
    GlobalTimestamp,
    Latest,
    SpecificTimestamps,
)
from kafkalog_spark.source.offsets_json import parse_offsets, parse_partitions, parse_timestamps
from kafkalog_spark.source.subscription import AllTopics, Assign, NotSaid, Subscribe, SubscribePattern

__all__ = ["Parser", "boolean", "byte_size", "choice", "duration_ms", "positive_int", "positive_long"]


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


def all_topics(name: str, text: str) -> AllTopics | NotSaid:
    return AllTopics() if boolean(name, text) else NotSaid()


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
    """Column names, by comma, as they are given: which there are depends on the table."""
    return tuple(part.strip() for part in text.split(","))


def known_columns(given: tuple[str, ...], known: Iterable[str]) -> tuple[str, ...]:
    """Those of option `columns`, in any case, in the order given, spelled as in the table's schema."""
    by_key = {column.lower(): column for column in known}
    unknown = [part for part in given if part.lower() not in by_key]
    if unknown:
        raise OptionError(
            f"option 'columns': no column '{unknown[0]}'", hint=f"the columns are {', '.join(by_key.values())}"
        )
    chosen = tuple(by_key[part.lower()] for part in given)
    if len(set(chosen)) != len(chosen):
        raise OptionError(f"option 'columns' names a column twice: '{','.join(given)}'")
    return chosen


def text(name: str, text: str) -> str:
    """As it is."""
    return text


def search_text(name: str, text: str) -> bytes:
    """What is looked for, as UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def search_hex(name: str, text: str) -> bytes:
    """Bytes in hexadecimal digits, two a byte; spaces may be between bytes."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise OptionError(
            f"option '{name}' takes two hexadecimal digits a byte, such as 00ff2a, got '{text}'"
        ) from None


def search_header(name: str, text: str) -> tuple[bytes, bytes | None]:
    """(Name, value); the first = ends the name. Value None: any."""
    header, equals, value = text.partition("=")
    return search_text(name, header), search_text(name, value) if equals else None


def _location(name: str, text: str) -> str:
    """A local path as it is given, `file:` taken off; or the URL of a directory in an object store, normalised."""
    if is_local(text) or text[:5].lower() == "file:":
        return local_path(name, text, "it names no directory of this machine, and no bucket")
    return normalised(text)


def paths(name: str, text: str) -> tuple[str, ...]:
    """Directories, local or as URLs: one, several by comma, or a JSON list (what Spark makes of load(["a", "b"]))."""
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
    result = tuple(dict.fromkeys(_location(name, part) for part in given if part))
    if not result:
        raise OptionError(f"option '{name}' names no path: '{text}'")
    return result
