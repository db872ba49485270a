"""meta.properties: the node and the cluster of a log directory (MetaProperties), in Java's properties format.

    version=1    cluster.id, node.id, directory.id (KIP-858, Kafka >= 3.7)     KRaft
    version=0    cluster.id, broker.id                                         with ZooKeeper

The format is that of `load` and `store` of java.util.Properties. Lines are `key=value`, `key:value` or `key value`;
comment lines begin with # or !; a backslash at the end continues a line. The escapes are \\t \\n \\r \\f \\uXXXX; a
backslash before any other character stands for that character. `store` also escapes = : # !, for example `\\:`.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.format.atomic_file import replace_file
from kafkalog_spark.format.regular_file import read_state

META_PROPERTIES_FILE = "meta.properties"
MAX_META_PROPERTIES_BYTES = 1 << 20  # size limit of meta.properties in bytes; a broker writes a few lines
VERSION_ZOOKEEPER = 0
VERSION_KRAFT = 1

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN_ESCAPES = {value: f"\\{key}" for key, value in _ESCAPES.items()} | {char: f"\\{char}" for char in "\\=:#!"}
_WHITE = " \t\f"
_FIELD_KEYS = ("version", "cluster.id", "node.id", "broker.id", "directory.id")
_INTEGER = re.compile(r"-?[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Content of meta.properties.

    Attributes:
        version: 0 with ZooKeeper, 1 with KRaft.
        cluster_id: `cluster.id`.
        node_id: `node.id`, or `broker.id` in version 0.
        directory_id: `directory.id`.
        other: All other keys and their values.
    """

    version: int
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None
    other: Mapping[str, str] = field(default_factory=dict)


def parse_properties(data: bytes) -> dict[str, str]:
    """Parse a properties file as Java's Properties.load does.

    Args:
        data: Content in ISO-8859-1.

    Returns:
        The values by key, in the order of the lines. The last value of a repeated key wins.

    Raises:
        CorruptFile: If a \\u escape does not have four digits, the only error in Java too; with the line number.
    """
    properties: dict[str, str] = {}
    lines = re.split(r"\r\n|\n|\r", data.decode("latin-1"))
    at = 0
    while at < len(lines):
        number = at + 1
        line = lines[at].lstrip(_WHITE)
        at += 1
        # As in Java, a backslash alone on its line does not continue it, so the next line may be a comment. At the end
        # of the file Java parses such a line as an empty key with an empty value; here it is ignored.
        if line in ("", "\\") or line[0] in "#!":
            continue
        while _continues(line) and at < len(lines):
            line = line[:-1] + lines[at].lstrip(_WHITE)
            at += 1
        if _continues(line):  # Java ignores a backslash at the end of the file
            line = line[:-1]
        key, value = _split(line)
        properties[_unescape(key, number)] = _unescape(value, number)
    return properties


def format_properties(properties: Mapping[str, str], date: datetime.datetime) -> bytes:
    """Format properties as Java's Properties.store does: `#`, the date as a comment, then the keys in their order."""
    utc = date.astimezone(datetime.UTC)  # as java.util.Date.toString: `Sat Nov 21 09:13:19 UTC 2026`
    day, month = utc.ctime().split()[:2]  # in English, regardless of the locale
    lines = ["#", f"#{day} {month} {utc:%d %H:%M:%S} UTC {utc.year}"]
    lines += [f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}" for key, value in properties.items()]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Parse the content of a meta.properties file.

    Raises:
        CorruptFile: If a required key is missing or a value is malformed.
        UnsupportedFormat: If the version is neither 0 nor 1.
    """
    properties = parse_properties(data)
    version = _integer(properties, "version")
    if version is None:
        raise CorruptFile("no key 'version'", hint="a broker writes version=0 or version=1 into meta.properties")
    if version not in (VERSION_ZOOKEEPER, VERSION_KRAFT):
        raise UnsupportedFormat(f"version {version} of meta.properties, only 0 and 1 are known")
    if version == VERSION_KRAFT:
        for key in ("cluster.id", "node.id"):
            if key not in properties:
                raise CorruptFile(f"no key {key!r}, which version 1 of meta.properties requires")
    return MetaProperties(
        version,
        properties.get("cluster.id"),
        _integer(properties, "broker.id" if version == VERSION_ZOOKEEPER else "node.id"),
        properties.get("directory.id"),
        {key: value for key, value in properties.items() if key not in _FIELD_KEYS},
    )


def format_meta_properties(meta: MetaProperties, date: datetime.datetime) -> bytes:
    """Format meta.properties, with the keys in the order in which brokers write them."""
    node_key = "broker.id" if meta.version == VERSION_ZOOKEEPER else "node.id"
    keys = {
        node_key: None if meta.node_id is None else str(meta.node_id),
        "directory.id": meta.directory_id,
        "version": str(meta.version),
        "cluster.id": meta.cluster_id,
    }
    properties = {key: value for key, value in keys.items() if value is not None}
    return format_properties(properties | dict(meta.other), date)


def read_meta_properties(path: str | os.PathLike[str]) -> MetaProperties | None:
    """Return the content of the file, or None if it does not exist.

    Raises:
        CorruptFile: If the file is malformed or not a regular file.
        UnsupportedFormat: If the version is neither 0 nor 1.
        OSError: If the file cannot be read.
    """
    return read_state(path, parse_meta_properties, MAX_META_PROPERTIES_BYTES)


def write_meta_properties(path: str | os.PathLike[str], meta: MetaProperties, date: datetime.datetime) -> None:
    """Replace the file and fsync it. Raises OSError.

    Args:
        path: The meta.properties file.
        meta: The new content.
        date: Time for the comment at the top of the file.
    """
    replace_file(path, format_meta_properties(meta, date))


def _integer(properties: Mapping[str, str], key: str) -> int | None:
    text = properties.get(key)
    if text is None:
        return None
    if not _INTEGER.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
        raise CorruptFile(f"the value of {key!r} is {text[:60]!r}, expected a 32-bit integer")
    return int(text)


def _continues(line: str) -> bool:
    """Return True if the line ends with an odd number of backslashes: the last one escapes the line break."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Return key and value, still escaped. The key ends at the first unescaped `=`, `:` or white space."""
    at = 0
    while at < len(line) and line[at] not in "=:" + _WHITE:
        at += 2 if line[at] == "\\" else 1
    key, value = line[:at], line[at:].lstrip(_WHITE)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_WHITE)
    return key, value


def _unescape(text: str, line_number: int) -> str:
    def character(match: re.Match[str]) -> str:
        digits, other = match.groups()
        if digits is not None:
            return chr(int(digits, 16))
        if other == "u":
            raise CorruptFile(f"line {line_number}: \\u is not followed by four hexadecimal digits")
        return _ESCAPES.get(other, other)

    text = re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.))", character, text, flags=re.DOTALL)
    # Java strings are UTF-16: two escapes may form one character. A lone surrogate is preserved.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _escape(text: str, *, is_key: bool) -> str:
    escaped = []
    for at, char in enumerate(text):
        if char in _WRITTEN_ESCAPES:
            escaped.append(_WRITTEN_ESCAPES[char])
        elif char == " " and (is_key or at == 0):
            escaped.append("\\ ")
        elif " " <= char <= "~":
            escaped.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass").hex().upper()
            escaped.extend(f"\\u{units[unit : unit + 4]}" for unit in range(0, len(units), 4))
    return "".join(escaped)
