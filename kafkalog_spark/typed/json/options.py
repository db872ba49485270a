"""The options of from_json, each of which means what it means there or is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

import pyarrow as pa

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.java_text import pattern_reader, zone_of
from kafkalog_spark.typed.json.jackson import Features

OPTIONS = {
    "schema": "The columns of the values as DDL, where `.schema(...)` does not say them.",
    "columnNameOfCorruptRecord": "Name of the string column that holds a bad value's text; `_corrupt_record`.",
    "timeZone": "Zone of timestamps that name none; the session's (without Spark `UTC`).",
    "timestampFormat": "Pattern of timestamps, made of yyyy MM dd HH mm ss S XXX, quoted letters and signs.",
    "timestampNTZFormat": "The same of timestamps without a zone.",
    "dateFormat": "The same of dates.",
    "enableDateTimeParsingFallback": "Whether what fits no pattern is read as without one; `false` with a pattern.",
    "allowComments": "Java's comments; `false`.",
    "allowUnquotedFieldNames": "Names without quotes; `false`.",
    "allowSingleQuotes": "Single quotes instead of double ones; `true`.",
    "allowNumericLeadingZeros": "Numbers such as 007; `false`.",
    "allowNonNumericNumbers": "NaN, Infinity, -INF and so on; `true`.",
    "allowBackslashEscapingAnyCharacter": "A backslash before any character; `false`.",
    "allowUnquotedControlChars": "Control characters in strings; `false`.",
    "maxNestingDepth": "Refused.",
    "maxNumLen": "Refused.",
    "maxStringLen": "Refused.",
    "locale": "Only `en-US`.",
    "primitivesAsString": "No effect where there is a schema, as in from_json.",
    "prefersDecimal": "No effect where there is a schema, as in from_json.",
    "dropFieldIfAllNull": "No effect where there is a schema, as in from_json.",
    "samplingRatio": "No effect where there is a schema, as in from_json.",
    "inferTimestamp": "No effect where there is a schema, as in from_json.",
    "ignoreNullFields": "No effect on a read, as in from_json.",
    "multiLine": "No effect on values, as in from_json.",
    "lineSep": "No effect on values, as in from_json.",
    "encoding": "Refused.",
    "charset": "Refused.",
    "timeFormat": "Refused.",
    "singleVariantColumn": "Refused.",
    "compression": "Refused.",
    "pretty": "Refused.",
    "sortKeys": "Refused.",
    "writeNonAsciiCharacterAsCodePoint": "Refused.",
}
_REFUSED = tuple(name for name, meaning in OPTIONS.items() if meaning == "Refused.")


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
    given = _GivenTexts(options)
    for name in _REFUSED:
        if name.lower() in options:
            raise OptionError(f"option '{name}' is not taken here", hint="docs/typed.md lists the options of json")
    locale = options.get("locale", "en-US")
    if locale.lower() not in ("en-us", "en_us"):
        raise OptionError(f"option 'locale' must be en-US, got '{locale}'")
    return JsonOptions(
        Features(
            comments=given.truth("allowComments", default=False),
            unquoted_names=given.truth("allowUnquotedFieldNames", default=False),
            single_quotes=given.truth("allowSingleQuotes", default=True),
            leading_zeros=given.truth("allowNumericLeadingZeros", default=False),
            non_numeric=given.truth("allowNonNumericNumbers", default=True),
            any_escape=given.truth("allowBackslashEscapingAnyCharacter", default=False),
            control_characters=given.truth("allowUnquotedControlChars", default=False),
        ),
        corrupt=options.get("columnnameofcorruptrecord", JsonOptions.corrupt),
        zone=given.zone("timeZone"),
        read_timestamp=given.pattern("timestampFormat"),
        read_local=given.pattern("timestampNTZFormat"),
        read_date=given.pattern("dateFormat"),
        fallback=given.truth("enableDateTimeParsingFallback", default=None),
    )


class _GivenTexts:
    """Texts of options to values."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def truth(self, name: str, default: bool | None) -> bool:
        text = self._options.get(name.lower())
        if text is None:
            return default  # type: ignore[return-value]
        if text.lower() not in ("true", "false"):
            raise OptionError(f"option '{name}' must be true or false, got '{text}'")
        return text.lower() == "true"

    def zone(self, name: str) -> tzinfo:
        text = self._options.get(name.lower(), "UTC")
        try:
            return zone_of(text)
        except ValueError as error:
            raise OptionError(f"option '{name}': {error}") from None

    def pattern(self, name: str) -> Callable[..., tuple[int, int, tzinfo | None]] | None:
        text = self._options.get(name.lower())
        if text is None:
            return None
        try:
            return pattern_reader(text)
        except ValueError as error:
            raise OptionError(
                f"option '{name}': {error}", hint="patterns here are made of yyyy MM dd HH mm ss S XXX and signs"
            ) from None


# The types that JSON is decoded to.

INTEGERS = {pa.int8(): (-128, 255), pa.int16(): (-(1 << 15), (1 << 15) - 1), pa.int32(): (-(1 << 31), (1 << 31) - 1),
             pa.int64(): (-(1 << 63), (1 << 63) - 1)}  # fmt: skip
"""What Jackson takes for them: its bytes go to 255, and what is above 127 becomes negative."""


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
