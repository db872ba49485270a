"""Options of kafkalog-cat: texts of its command line to values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import MAX_INT64, MIN_INT64
from kafkalog_spark.log.decode.record_schema import RecordPredicate


class Where(Enum):
    """Where reading a partition begins."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    TAIL = "last records"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Start:
    """value: an offset, a number of records, or ms."""

    where: Where
    value: int = 0

    @property
    def floor(self) -> int:
        """The offset below which nothing is asked for."""
        return self.value if self.where is Where.OFFSET else 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """stop_ms: a partition ends at its first record with such a timestamp or a later one; None for its end."""

    start: Start
    stop_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CatOptions:
    """topics: in the order given. partitions: empty for all. Records with from_ms <= timestamp < until_ms, `wanted`.
    count: how many at most, None for all. past_damage: damage is passed over, and said on stderr."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    bounds: Bounds
    from_ms: int
    until_ms: int
    wanted: RecordPredicate
    count: int | None
    follow: bool
    read_committed: bool
    past_damage: bool


def bounds_of(texts: Sequence[str]) -> Bounds:
    """-o as kcat reads it: beginning, end, N, -N, s@MS, e@MS; a start and a stop. Raises OptionError."""
    start: Start | None = None
    stop: int | None = None
    for text in texts:
        if text.startswith("e@"):
            if stop is not None:
                raise OptionError("-o e@ is given twice")
            stop = moment_ms(text[2:], "-o e@")
            continue
        if start is not None:
            raise OptionError(f"-o is given twice: a read has one start, got '{text}', too")
        start = _start(text)
    return Bounds(start or Start(Where.BEGINNING), stop)


def _start(text: str) -> Start:
    if text.startswith("s@"):
        return Start(Where.TIMESTAMP, moment_ms(text[2:], "-o s@"))
    for where in (Where.BEGINNING, Where.END):
        if text == where.value:
            return Start(where)
    if re.fullmatch(r"-?\d+", text):
        number = int(text)
        if abs(number) > MAX_INT64:
            raise OptionError(f"-o {text} is no offset: offsets have 64 bits")
        return Start(Where.TAIL, -number) if text.startswith("-") else Start(Where.OFFSET, number)
    hint = "committed offsets: table consumer_offsets, docs/tables.md" if text == "stored" else None
    raise OptionError(f"-o takes beginning, end, N, -N, s@TIME or e@TIME, got '{text}'", hint=hint)


def moment_ms(text: str, name: str) -> int:
    """A time as ms: a number of ms, or 2026-01-31, 2026-01-31T09:00, 2026-01-31T09:00:00.250+01:00; in UTC where it
    does not say otherwise. Raises OptionError."""
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


def wanted_of(
    key: str | None, key_hex: str | None, key_prefix: str | None, value_contains: str | None, header: str | None
) -> RecordPredicate:
    """The conditions of a search, as the options where.* of a read (docs/reading.md). Raises OptionError."""
    if key is not None and key_hex is not None:
        raise OptionError("--key and --key-hex are both given: a record has one key")
    exact = None if key is None else key.encode()
    if key_hex is not None:
        try:
            exact = bytes.fromhex(key_hex)
        except ValueError:
            raise OptionError(f"--key-hex takes pairs of hexadecimal digits, got '{key_hex}'") from None
    name, equals, value = (None, "", "") if header is None else header.partition("=")
    return RecordPredicate(
        exact,
        None if key_prefix is None else key_prefix.encode(),
        None if value_contains is None else value_contains.encode(),
        None if name is None else name.encode(),
        value.encode() if equals else None,
    )
