"""The options of from_csv, each of which means what it means there or is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.json_options import GivenTexts, JsonOptions, check_locale, check_refused, civil_options

_NO_EFFECT = "No effect on values, as in from_csv."
OPTIONS = {
    "schema": "The columns of the values in their order, as DDL; without it those of `.schema(...)` that are decoded.",
    "sep": "The character between fields; `,`. `\\t` and the like are written with a backslash.",
    "delimiter": "The same as `sep`.",
    "quote": 'The character around fields that hold the separator; `"`, empty for none.',
    "escape": "The character before a quote in a quoted field; `\\`, empty for none.",
    "charToEscapeQuoteEscaping": "The character before an `escape`; the escape itself.",
    "comment": "The character that a value begins with which is a comment, and so bad; none. A write quotes it; `#`.",
    "nullValue": "The text that is null; the empty one.",
    "emptyValue": 'What `""` is read as; the empty text. What an empty text is written as; `""`.',
    "nanValue": "The text that is not a number; `NaN`.",
    "positiveInf": "The text that is infinite; `Inf`.",
    "negativeInf": "The text that is infinite below zero; `-Inf`.",
    "ignoreLeadingWhiteSpace": "Whether white space before fields is left out; `false`, on a write `true`.",
    "ignoreTrailingWhiteSpace": "The same after fields, on a read those without quotes; `false`, on a write `true`.",
    "columnNameOfCorruptRecord": "Name of the string column that holds a bad value's text; `_corrupt_record`.",
    "timeZone": "Zone of timestamps that name none; `UTC` (from_csv: the session's).",
    "timestampFormat": "Pattern of timestamps, made of yyyy MM dd HH mm ss S XXX, quoted letters and signs.",
    "timestampNTZFormat": "The same of timestamps without a zone.",
    "dateFormat": "The same of dates.",
    "enableDateTimeParsingFallback": "Whether what fits no pattern is read as without one; `false` with a pattern.",
    "unescapedQuoteHandling": "Only `STOP_AT_DELIMITER`.",
    "locale": "Only `en-US`.",
    "header": _NO_EFFECT,
    "inferSchema": _NO_EFFECT,
    "enforceSchema": _NO_EFFECT,
    "samplingRatio": _NO_EFFECT,
    "escapeQuotes": "Of a write: whether a field with a quote in it is quoted; `true`.",
    "quoteAll": "Of a write: whether all fields are quoted; `false`.",
    "multiLine": "Refused.",
    "lineSep": "Refused.",
    "maxColumns": "Refused.",
    "maxCharsPerColumn": "Refused.",
    "inputBufferSize": "Refused.",
    "preferDate": "Refused.",
    "encoding": "Refused.",
    "charset": "Refused.",
    "compression": "Refused.",
    "codec": "Refused.",
    "timeFormat": "Refused.",
    "singleVariantColumn": "Refused.",
}
_REFUSED = tuple(name for name, meaning in OPTIONS.items() if meaning == "Refused.")
_SIGNS = {"t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
NONE = "\0"
"""Instead of a character that is switched off. In a value the character U+0000 is then one, as in Spark."""


@dataclass(frozen=True)
class CsvOptions:
    """Options of CSV, parsed. civil: dates, timestamps, the name of the corrupt record's column, as of JSON."""

    separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    escape_of_escape: str = "\\"
    comment: str | None = None
    null: str = ""
    empty: str = ""
    nan: str = "NaN"
    infinity: str = "Inf"
    minus_infinity: str = "-Inf"
    trims_before: bool = False
    trims_after: bool = False
    civil: JsonOptions = field(default_factory=JsonOptions)

    @property
    def is_plain(self) -> bool:
        """Whether the kernel knows these characters: ASCII, and no white space to leave out."""
        signs = self.separator + self.quote + self.escape + (self.comment or "")
        return signs.isascii() and not self.trims_before and not self.trims_after


def csv_options(options: Mapping[str, str]) -> CsvOptions:
    """Names in small letters. Raises OptionError for a value that cannot be used, and for what is refused."""
    given = GivenTexts(options)
    check_refused(options, _REFUSED, "csv")
    check_locale(options)
    handling = options.get("unescapedquotehandling", "STOP_AT_DELIMITER")
    if handling.upper() != "STOP_AT_DELIMITER":
        raise OptionError(f"option 'unescapedQuoteHandling' must be STOP_AT_DELIMITER, got '{handling}'")
    quote, escape = _character(options, "quote", '"'), _character(options, "escape", "\\")
    comment = options.get("comment", "")
    if len(comment) > 1:
        raise OptionError(f"option 'comment' must be one character, got '{comment}'")
    of_escape = _character(options, "charToEscapeQuoteEscaping", "")
    if of_escape == NONE:
        of_escape = NONE if quote == escape else escape
    return CsvOptions(
        separator=_separator(options.get("sep", options.get("delimiter", ","))),
        quote=quote,
        escape=escape,
        escape_of_escape=of_escape,
        comment=comment or None,
        null=options.get("nullvalue", ""),
        empty=options.get("emptyvalue", ""),
        nan=options.get("nanvalue", "NaN"),
        infinity=options.get("positiveinf", "Inf"),
        minus_infinity=options.get("negativeinf", "-Inf"),
        trims_before=given.truth("ignoreLeadingWhiteSpace", default=False),
        trims_after=given.truth("ignoreTrailingWhiteSpace", default=False),
        civil=civil_options(options),
    )


def _character(options: Mapping[str, str], name: str, default: str) -> str:
    text = options.get(name.lower(), default)
    if len(text) > 1:
        raise OptionError(f"option '{name}' must be one character or empty, got '{text}'")
    return text or NONE


def _separator(text: str) -> str:
    """As Spark's CSVExprUtils.toDelimiterStr, of one character."""
    found = text
    if text == "\\u0000":
        found = "\0"
    elif len(text) == 2 and text[0] == "\\":
        found = _SIGNS.get(text[1], "")
    if len(found) != 1 or text == "\\":
        raise OptionError(
            f"option 'sep' must be one character, got '{text}'",
            hint="a tab is \\t, a backslash \\\\; separators of several characters are not taken here",
        )
    return found
