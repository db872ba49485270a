"""Parsers of the texts of read options: paths, columns and conditions on records."""

from __future__ import annotations

import json

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import local_path
from kafkalog_spark.store.paths import is_local, normalised


def column_names(name: str, text: str) -> tuple[str, ...]:
    """Parse comma-separated column names. They are checked later, since the columns depend on the table."""
    return tuple(part.strip() for part in text.split(","))


def search_text(name: str, text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def search_hex(name: str, text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise OptionError(
            f"option '{name}' takes two hexadecimal digits a byte, such as 00ff2a, got '{text}'"
        ) from None


def search_header(name: str, text: str) -> tuple[bytes, bytes | None]:
    """Parse `name` or `name=value`; the first = ends the name. A value of None matches any value."""
    header, equals, value = text.partition("=")
    return search_text(name, header), search_text(name, value) if equals else None


def _location(name: str, text: str) -> str:
    """Parse a local path, without `file:`, or the URL of a directory in an object store, normalised."""
    if is_local(text) or text[:5].lower() == "file:":
        return local_path(name, text, "it names no directory of this machine, and no bucket")
    return normalised(text)


def paths(name: str, text: str) -> tuple[str, ...]:
    """Parse directories: one, several by comma, or a JSON list, which Spark makes of load(["a", "b"])."""
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
