"""Parsers of the options of a read that are paths, columns or conditions on records."""

from __future__ import annotations

import json
from typing import NamedTuple

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import local_path
from kafkalog_spark.store.paths import is_local, normalised


class HeaderCondition(NamedTuple):
    """Condition that a record has a header of this name and value. A value of None matches any value."""

    name: bytes
    value: bytes | None


def column_names(name: str, text: str) -> tuple[str, ...]:
    """Parse comma-separated column names. They are checked later, because the columns depend on the table."""
    return tuple(part.strip() for part in text.split(","))


def search_text(name: str, text: str) -> bytes:
    """Parse a text to search for, as UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def search_hex(name: str, text: str) -> bytes:
    """Parse bytes to search for, in hexadecimal digits."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise OptionError(
            f"option '{name}' must have two hexadecimal digits for each byte, such as 00ff2a, got '{text}'"
        ) from None


def search_header(name: str, text: str) -> HeaderCondition:
    """Parse `name` or `name=value`. The first = ends the name."""
    header, equals, value = text.partition("=")
    return HeaderCondition(search_text(name, header), search_text(name, value) if equals else None)


def paths(name: str, text: str) -> tuple[str, ...]:
    """Parse directories: one, several separated by commas, or a JSON list, as Spark passes load(["a", "b"])."""
    if text.startswith("["):
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            given = None
        if type(given) is not list or not all(type(part) is str for part in given):
            raise OptionError(
                f"option '{name}' must be a path, several paths separated by commas, or a JSON list, got '{text}'",
                hint='a path that begins with [ is written as ["[path"]',
            )
    else:
        given = [part.strip() for part in text.split(",")]
    result = tuple(dict.fromkeys(_location(name, part) for part in given if part))
    if not result:
        raise OptionError(f"option '{name}' names no path: '{text}'")
    return result


def _location(name: str, text: str) -> str:
    """Parse a local path, or the URL of a directory in an object store. `file:` is removed, and a URL is normalised."""
    if is_local(text) or text[:5].lower() == "file:":
        return local_path(name, text, "it names neither a local directory nor one in an object store")
    return normalised(text)
