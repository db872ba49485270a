"""Options of from_json. Each option works as in Spark or is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import NoReturn

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, boolean, option, parse_fields, parse_options, plain_text, specs_of
from kafkalog_spark.typed.columns.time_patterns import pattern_reader
from kafkalog_spark.typed.columns.time_zones import zone_of


def _zone(name: str, text: str) -> tzinfo:
    try:
        return zone_of(text)
    except ValueError as error:
        raise OptionError(f"option '{name}': {error}") from None


def _pattern(name: str, text: str) -> PatternReader:
    try:
        return pattern_reader(text)
    except ValueError as error:
        raise OptionError(
            f"option '{name}': {error}", hint="kafkalog supports patterns of yyyy MM dd HH mm ss S XXX and signs"
        ) from None


def _locale(name: str, text: str) -> str:
    if text.lower() not in ("en-us", "en_us"):
        raise OptionError(f"option '{name}' must be en-US, got '{text}'")
    return text


def _refused(name: str, text: str) -> NoReturn:
    raise OptionError(f"option '{name}' is not supported", hint="docs/typed.md lists the options of json")


_REFUSED = (
    "maxNestingDepth", "maxNumLen", "maxStringLen", "encoding", "charset", "timeFormat", "singleVariantColumn",
    "compression", "pretty", "sortKeys", "writeNonAsciiCharacterAsCodePoint",
)  # fmt: skip
_WITHOUT_EFFECT = (
    "primitivesAsString", "prefersDecimal", "dropFieldIfAllNull", "samplingRatio", "inferTimestamp",
    "ignoreNullFields", "multiLine", "lineSep",
)  # fmt: skip
"""Options that have no effect on from_json, because the schema is known."""
PatternReader = Callable[..., tuple[int, int, tzinfo | None]]
"""Function from a text to (days since 1970, microseconds since midnight, zone in the text)."""


@dataclass(frozen=True, kw_only=True)
class JsonOptions:
    """Parsed options. `read_...` is None if dates and timestamps have Spark's default forms."""

    comments: bool = option("allowComments", boolean, "false")
    unquoted_names: bool = option("allowUnquotedFieldNames", boolean, "false")
    single_quotes: bool = option("allowSingleQuotes", boolean, "true")
    leading_zeros: bool = option("allowNumericLeadingZeros", boolean, "false")
    non_numeric: bool = option("allowNonNumericNumbers", boolean, "true")
    any_escape: bool = option("allowBackslashEscapingAnyCharacter", boolean, "false")
    control_characters: bool = option("allowUnquotedControlChars", boolean, "false")
    corrupt_column: str = option("columnNameOfCorruptRecord", plain_text, "_corrupt_record")
    zone: tzinfo = option("timeZone", _zone, "UTC")
    read_timestamp: PatternReader | None = option("timestampFormat", _pattern)
    read_local: PatternReader | None = option("timestampNTZFormat", _pattern)
    read_date: PatternReader | None = option("dateFormat", _pattern)
    fallback: bool | None = option("enableDateTimeParsingFallback", boolean)
    locale: str = option("locale", _locale, "en-US")


OPTIONS = (
    OptionSpec("schema", plain_text),
    *specs_of(JsonOptions),
    *(OptionSpec(name, _refused) for name in _REFUSED),
    *(OptionSpec(name, plain_text) for name in _WITHOUT_EFFECT),
)


def json_options(options: Mapping[str, str]) -> JsonOptions:
    """Parse options, by lower-case name. Raises OptionError for an invalid value or a refused option."""
    parse_options(OPTIONS, options)
    return JsonOptions(**parse_fields(JsonOptions, options))
