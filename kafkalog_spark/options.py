"""Declarations of options (OptionSpec), parsers of their values, and the options that a user gave (GivenOptions).

A parser takes the name and the text of an option, returns its value, and raises OptionError for an invalid text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import MAX_INT32, MAX_INT64

Parser = Callable[[str, str], Any]

_EARLIEST_MS = 978_307_200_000
"""2001-01-01 in ms, before any record of Kafka. Until the year 32970, times in seconds that are read as ms are before
it."""
_SIMILAR = 0.6  # similarity from which on a name is suggested; difflib's default
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")

_AMOUNT = re.compile(r"([0-9]{1,19})\s*([a-z]*)")
_BYTE_SHIFTS = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40}
_MS_PER_UNIT = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def boolean(name: str, text: str) -> bool:
    """Parse `true` or `false` in any case, as Scala's toBoolean."""
    lower = text.lower()
    if lower not in ("true", "false"):
        raise OptionError(f'For input string: "{text}"', hint=f"option '{name}' must be true or false")
    return lower == "true"


def positive(largest: int) -> Parser:
    """Return a parser of whole numbers from 1 to `largest`."""

    def parse(name: str, text: str) -> int:
        # Java's parseInt and parseLong accept these, and have this message.
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not -largest - 1 <= int(text) <= largest:
            raise OptionError(
                f'For input string: "{text}"', hint=f"option '{name}' must be a whole number of at most {largest}"
            )
        if int(text) <= 0:
            raise OptionError(f"{name} must be positive", hint=f"got {text}")
        return int(text)

    return parse


positive_int = positive(MAX_INT32)
positive_long = positive(MAX_INT64)


def choice(*values: str) -> Parser:
    """Return a parser of `values` in any case; it returns them as spelled there."""
    by_key = {value.lower(): value for value in values}

    def parse(name: str, text: str) -> str:
        if text.lower() not in by_key:
            raise OptionError(f"option '{name}' must be one of {', '.join(values)}, got '{text}'")
        return by_key[text.lower()]

    return parse


def byte_size(name: str, text: str) -> int:
    """Parse bytes, such as `134217728`, `128m`, `1g`; binary units, as Spark's byteStringAs."""
    match = _AMOUNT.fullmatch(text.lower())
    if not match or match[2] not in _BYTE_SHIFTS:
        raise OptionError(f"option '{name}' must be a size such as 134217728, 128m or 1g, got '{text}'")
    size = int(match[1]) << _BYTE_SHIFTS[match[2]]
    if not 0 < size <= MAX_INT64:
        raise OptionError(f"{name} must be positive and at most {MAX_INT64} bytes", hint=f"got {text}")
    return size


def duration_ms(name: str, text: str) -> int:
    """Parse milliseconds, such as `15m`, `30s`, `500ms`, `500`, as Spark's timeStringAsMs."""
    match = _AMOUNT.fullmatch(text.lower())
    if not match or match[2] not in _MS_PER_UNIT or int(match[1]) * _MS_PER_UNIT[match[2]] > MAX_INT64:
        raise OptionError(f"option '{name}' must be a time such as 15m, 30s or 500ms, got '{text}'")
    return int(match[1]) * _MS_PER_UNIT[match[2]]


def day_if_seconds(ms: int | None) -> date | None:
    """Return the day of a time in ms if the time was probably meant in seconds; None for any other time."""
    return datetime.fromtimestamp(ms / 1000, UTC).date() if ms is not None and 0 < ms < _EARLIEST_MS else None


def local_path(name: str, text: str, not_local: str) -> str:
    """Parse a local path or a `file:` URI. not_local: text of the error for any other URI."""
    scheme = _URI.match(text)
    path = text
    if scheme:
        # Escapes are decoded, so that the output of pathlib's as_uri() is accepted.
        try:
            uri = urlsplit(text)
        except ValueError:
            uri = None
        if uri is None or uri.scheme.lower() != "file" or uri.netloc not in ("", "localhost"):
            raise OptionError(
                f"option '{name}': {not_local}, got '{text}'",
                hint="mount or copy the log directory to a path that exists on the driver and on every executor",
            )
        # The path is not taken from urlsplit, because a file's name may contain ? and #.
        path = unquote(text[text.index(":") + 1 :])
        if path.startswith("//"):
            path = path[2 + len(uri.netloc) :]
    if "\0" in path or not path:
        raise OptionError(f"option '{name}': not a path: {text!r}")
    return path


def plain_text(name: str, text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """Declaration of an option.

    Attributes:
        name: Name of the option.
        parse: Parser of its text.
        default: Text as the user would write it. None if the value is None when the option is not given.
        meaning: One or more sentences in Markdown for users. Pages and `help()` show them.
        records_only: True if the option applies to the table `records` only. This and the following rules are for
            reads; source.option_parsing checks them.
        batch_only: Reason why a stream cannot have the option; empty if it can.
        excludes: Options that cannot be given together with this one.
        hint: Hint for the error if one of these is given. {} is replaced by its name.
    """

    name: str
    parse: Parser
    default: str | None = None
    meaning: str = ""
    records_only: bool = False
    batch_only: str = ""
    excludes: tuple[str, ...] = ()
    hint: str = ""

    def value(self, text: str | None, prefix: str = "") -> Any:
        """Return the value of `text`, or of the default if it is None.

        Args:
            text: Text that the user gave.
            prefix: Prefix of the name in errors.

        Raises:
            OptionError: If the text is invalid.
        """
        text = self.default if text is None else text
        return None if text is None else self.parse(prefix + self.name, text)


def option(
    name: str, parse: Parser, default: str | None = None, meaning: str = "", *, secret: bool = False, **rules: Any
) -> Any:
    """Declare an option as a field of a dataclass, which stores its value.

    Args:
        name: See OptionSpec, as for the next three arguments.
        parse: See OptionSpec.
        default: See OptionSpec.
        meaning: See OptionSpec.
        secret: True to leave the value out of the dataclass's repr.
        rules: Other attributes of OptionSpec.

    Returns:
        A dataclass field, None by default if the option has no default.
    """
    metadata = {"spec": OptionSpec(name, parse, default, meaning, **rules)}
    if default is not None:
        return field(metadata=metadata, repr=not secret)
    return field(default=None, metadata=metadata, repr=not secret)


def help_text(declared: Iterable[OptionSpec]) -> str:
    """Return the options with their defaults and meanings as text for `help()`."""
    lines = []
    for spec in declared:
        default = "" if spec.default is None else f" (default {spec.default})"
        lines.append(f"{spec.name}{default}\n    {spec.meaning}")
    return "\n".join(lines)


def declared_options(options: type) -> dict[str, OptionSpec]:
    """Return the options that are declared as fields of a dataclass, by the fields' names."""
    return {each.name: each.metadata["spec"] for each in fields(options) if "spec" in each.metadata}


def specs_of(options: type) -> tuple[OptionSpec, ...]:
    return tuple(declared_options(options).values())


def parse_fields(options: type, texts: Mapping[str, str], prefix: str = "") -> dict[str, Any]:
    """Return the values of the options that a dataclass declares, by field.

    Args:
        options: The dataclass.
        texts: Texts by name in lower case.
        prefix: See OptionSpec.value.

    Raises:
        OptionError: If a text is invalid.
    """
    return {name: spec.value(texts.get(spec.name.lower()), prefix) for name, spec in declared_options(options).items()}


def parse_options(specs: Iterable[OptionSpec], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the values by the options' names. texts: by name in lower case. Raises OptionError."""
    return {spec.name: spec.value(texts.get(spec.name.lower())) for spec in specs}


class GivenOptions:
    """Options as the user gave them, by name in any case. Texts are trimmed.

    `name in given` is True if the option is given. `given[name]` is its value, or that of its default, and raises
    OptionError for an invalid text. Each value is parsed once, at the first access.

    Attributes:
        texts: Texts by name in lower case.
        names: Names as given, by name in lower case.
    """

    def __init__(self, options: Mapping[str, str], declared: Iterable[OptionSpec]) -> None:
        self.texts: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self._specs = {spec.name: spec for spec in declared}
        self._values: dict[str, Any] = {}
        for name, text in options.items():
            key = name.lower()
            if key in self.names:
                raise OptionError(f"options '{self.names[key]}' and '{name}' are the same option, given twice")
            if type(text) is not str:
                raise OptionError(f"option '{name}' has no text: {text!r}")
            self.names[key] = name
            self.texts[key] = text.strip()

    def __contains__(self, name: str) -> bool:
        return name.lower() in self.texts

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = self._specs[name].value(self.texts.get(name.lower()))
        return self._values[name]

    def fields(self, options: type) -> dict[str, Any]:
        """Return the values of the options that a dataclass declares, by field. Raises OptionError."""
        return {name: self[spec.name] for name, spec in declared_options(options).items()}

    def is_table_property(self, key: str) -> bool:
        """Return True if `key`, in lower case, is a property of the created table and not an option.

        To get the schema of a table, Spark's V2SessionCatalog passes options and table properties, such as `provider`,
        together. An option X of the table is then present twice: as X and as `option.X`.
        """
        return "provider" in self.texts and (key.startswith("option.") or f"option.{key}" not in self.texts)

    def of_side(self, side: str) -> dict[str, str]:
        """Return the texts of the options of a side, "value" or "key": those with the prefix `value.` or `key.`.

        The names are in lower case and without the prefix.
        """
        prefix = f"{side}."
        return {key.removeprefix(prefix): text for key, text in self.texts.items() if key.startswith(prefix)}

    def select(self, predicate: Callable[[str], bool]) -> dict[str, str]:
        """Return the texts, by name as given, of the options whose lower-case name satisfies the predicate."""
        return {self.names[key]: text for key, text in self.texts.items() if predicate(key)}


def unknown_option(
    name: str,
    known: Iterable[str],
    other_names: Mapping[str, str],
    pages: str = "docs/options.md and docs/sink.md list",
) -> OptionError:
    """Return the error for an unknown option, which suggests the most similar known option.

    Args:
        name: Name of the unknown option.
        known: Names of the known options.
        other_names: Names in other connectors, in lower case, with the option to suggest.
        pages: Pages that list the options, for the hint.
    """
    by_key = {known_name.lower(): known_name for known_name in known}
    suggestion = other_names.get(name.lower())
    if suggestion is None:
        nearest = difflib.get_close_matches(name.lower(), by_key, n=1, cutoff=_SIMILAR)
        suggestion = by_key[nearest[0]] if nearest else None
    hint = f"did you mean '{suggestion}'?" if suggestion else f"{pages} the options"
    return OptionError(f"unknown option '{name}'", hint=hint)
