"""The options of from_json, each of which means what it means there or is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import NoReturn

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, boolean, parsed, plain_text
from kafkalog_spark.typed.columns.java_text import pattern_reader, zone_of
from kafkalog_spark.typed.json.jackson import Features


def _zone(name: str, text: str) -> tzinfo:
    try:
        return zone_of(text)
    except ValueError as error:
        raise OptionError(f"option '{name}': {error}") from None


def _pattern(name: str, text: str) -> Callable[..., tuple[int, int, tzinfo | None]]:
    try:
        return pattern_reader(text)
    except ValueError as error:
        raise OptionError(
            f"option '{name}': {error}", hint="patterns here are made of yyyy MM dd HH mm ss S XXX and signs"
        ) from None


def _locale(name: str, text: str) -> str:
    if text.lower() not in ("en-us", "en_us"):
        raise OptionError(f"option '{name}' must be en-US, got '{text}'")
    return text


def _refused(name: str, text: str) -> NoReturn:
    raise OptionError(f"option '{name}' is not taken here", hint="docs/typed.md lists the options of json")


_REFUSED = (
    "maxNestingDepth", "maxNumLen", "maxStringLen", "encoding", "charset", "timeFormat", "singleVariantColumn",
    "compression", "pretty", "sortKeys", "writeNonAsciiCharacterAsCodePoint",
)  # fmt: skip
_OF_INFERENCE = ("primitivesAsString", "prefersDecimal", "dropFieldIfAllNull", "samplingRatio", "inferTimestamp")
OPTIONS = (
    OptionSpec("schema", plain_text, None, "The columns of the values as DDL, where `.schema(...)` does not say them."),
    OptionSpec(
        "columnNameOfCorruptRecord",
        plain_text,
        "_corrupt_record",
        "Name of the string column that holds a bad value's text.",
    ),
    OptionSpec("timeZone", _zone, "UTC", "Zone of timestamps that name none; in Spark the session's."),
    OptionSpec(
        "timestampFormat",
        _pattern,
        None,
        "Pattern of timestamps, made of yyyy MM dd HH mm ss S XXX, quoted letters and signs.",
    ),
    OptionSpec("timestampNTZFormat", _pattern, None, "The same of timestamps without a zone."),
    OptionSpec("dateFormat", _pattern, None, "The same of dates."),
    OptionSpec(
        "enableDateTimeParsingFallback",
        boolean,
        None,
        "Whether what fits no pattern is read as without one; `false` with a pattern.",
    ),
    OptionSpec("allowComments", boolean, "false", "Java's comments."),
    OptionSpec("allowUnquotedFieldNames", boolean, "false", "Names without quotes."),
    OptionSpec("allowSingleQuotes", boolean, "true", "Single quotes instead of double ones."),
    OptionSpec("allowNumericLeadingZeros", boolean, "false", "Numbers such as 007."),
    OptionSpec("allowNonNumericNumbers", boolean, "true", "NaN, Infinity, -INF and so on."),
    OptionSpec("allowBackslashEscapingAnyCharacter", boolean, "false", "A backslash before any character."),
    OptionSpec("allowUnquotedControlChars", boolean, "false", "Control characters in strings."),
    OptionSpec("locale", _locale, "en-US", "Only `en-US`."),
    *(OptionSpec(name, _refused, None, "Refused.") for name in _REFUSED),
    *(
        OptionSpec(name, plain_text, None, "No effect where there is a schema, as in from_json.")
        for name in _OF_INFERENCE
    ),
    OptionSpec("ignoreNullFields", plain_text, None, "No effect on a read, as in from_json."),
    OptionSpec("multiLine", plain_text, None, "No effect on values, as in from_json."),
    OptionSpec("lineSep", plain_text, None, "No effect on values, as in from_json."),
)


@dataclass(frozen=True)
class JsonOptions:
    """Options of JSON, parsed. The three readers: None for Spark's own forms."""

    features: Features = field(default_factory=Features)
    corrupt: str = "_corrupt_record"
    zone: tzinfo = UTC
    read_timestamp: Callable[..., tuple[int, int, tzinfo | None]] | None = None
    read_local: Callable[..., tuple[int, int, tzinfo | None]] | None = None
    read_date: Callable[..., tuple[int, int, tzinfo | None]] | None = None
    fallback: bool | None = None


def json_options(options: Mapping[str, str]) -> JsonOptions:
    """Names in small letters. Raises OptionError for a value that cannot be used, and for what is refused."""
    given = parsed(OPTIONS, options)
    return JsonOptions(
        Features(
            comments=given["allowComments"],
            unquoted_names=given["allowUnquotedFieldNames"],
            single_quotes=given["allowSingleQuotes"],
            leading_zeros=given["allowNumericLeadingZeros"],
            non_numeric=given["allowNonNumericNumbers"],
            any_escape=given["allowBackslashEscapingAnyCharacter"],
            control_characters=given["allowUnquotedControlChars"],
        ),
        corrupt=given["columnNameOfCorruptRecord"],
        zone=given["timeZone"],
        read_timestamp=given["timestampFormat"],
        read_local=given["timestampNTZFormat"],
        read_date=given["dateFormat"],
        fallback=given["enableDateTimeParsingFallback"],
    )


# The types that JSON is decoded to.

INTEGERS = {pa.int8(): (-128, 255), pa.int16(): (-(1 << 15), (1 << 15) - 1), pa.int32(): (-(1 << 31), (1 << 31) - 1),
             pa.int64(): (-(1 << 63), (1 << 63) - 1)}  # fmt: skip
"""Ranges that Jackson takes for them: its bytes go to 255, and what is above 127 becomes negative."""


def check_types(schema: pa.Schema) -> None:
    """Raises OptionError for a type that JSON is not decoded to here, and for two columns of one name."""
    _check_names([field.name for field in schema], "the schema")
    for one in schema:
        _check_type(one.type, one.name)


def _check_names(names: list[str], what: str) -> None:
    if len(set(names)) < len(names):
        raise OptionError(f"{what} has two fields of one name: {', '.join(names)}")


def _check_type(kind: pa.DataType, path: str) -> None:
    if pa.types.is_struct(kind):
        _check_names([field.name for field in kind], f"column '{path}'")
        for one in kind:
            _check_type(one.type, f"{path}.{one.name}")
    elif pa.types.is_map(kind):
        if kind.key_type != pa.string():
            raise OptionError(f"column '{path}': keys of a map in JSON are strings, not {kind.key_type}")
        _check_type(kind.item_type, f"{path}.value")
    elif pa.types.is_list(kind):
        _check_type(kind.value_type, f"{path}.element")
    elif not (
        kind in INTEGERS
        or kind in (pa.bool_(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32())
        or pa.types.is_decimal128(kind)
        or kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC"))
    ):
        raise OptionError(f"column '{path}': the type {kind} is not decoded from JSON here")
