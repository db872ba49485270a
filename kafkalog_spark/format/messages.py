"""Messages of Kafka's internal topics, read and written by their definitions (MessageGenerator, KIP-482).

`kafka_messages.json` has the definitions by topic, and those of what consumers tell each other, in the terms of Kafka's
own: a field has a type, the versions that have it, those in which it may be null, and a tag and a default where it is
tagged. Three things differ: structs stand where they are used, a uuid that may be null is null where Kafka writes
zeros, and a number that is a state has the largest one (`most`).

A message is read as a named tuple: its fields in the order of the definition, then the tagged ones; names as in
`leader_epoch`. A field that the version does not have is its default; unknown tagged fields are passed over. Arrays are
tuples. Any sequence in that order is written, as are the arrays in it.

| record | begins with |
|---|---|
| key of a coordinator's topic | its type as i16 (`apiKey`); fields of version 0 |
| value of it | the version as i16 |
| value of a metadata topic | frame version, type and version as unsigned varints |

A definition is compiled at its first use, into functions for each of its versions.
"""

from __future__ import annotations

import json
import re
import struct
from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog_spark.errors import CorruptLog, InvalidRecord, UnsupportedFormat
from kafkalog_spark.format.varints import read_uvarint, uvarint

_Definition = dict[str, Any]


class Malformed(ValueError):
    """Bytes that do not fit the definition. position: of the first of them, in the message."""

    def __init__(self, why: str, position: int) -> None:
        super().__init__(why)
        self.position = position


class Codec(NamedTuple):
    """read(data, at): (value, position after it) of what begins at `at`; raises Malformed. write(value): its bytes;
    raises InvalidRecord for a text that is too long. least: bytes that each value has."""

    read: Callable[[bytes, int], tuple[Any, int]]
    write: Callable[[Any], bytes]
    least: int
    is_fixed: bool = False  # each value has `least` bytes


class Message:
    """A definition, compiled. name: Kafka's. read, write: by what a record begins with, as in Codec."""

    def __init__(self, definition: _Definition) -> None:
        self.name: str = definition["name"]
        is_key = definition["type"] == "coordinator-key"
        first, _, last = definition["validVersions"].partition("-")
        codecs = {}
        for version in range(int(first), int(last or first) + 1):
            begin = definition["apiKey"] if is_key else version
            head = b"" if definition["type"] == "metadata" else _INT16.pack(begin)
            flexible = _within(definition["flexibleVersions"], version)
            codecs[begin] = _struct(self.name, definition["fields"], version, flexible, head)
        self.read = {begin: codec.read for begin, codec in codecs.items()}
        self.write = {begin: codec.write for begin, codec in codecs.items()}
        self._newest = max(codecs)

    def decode(self, data: bytes, what: str = "") -> Any:
        """A coordinator's key or value; bytes after it do not count. Raises UnsupportedFormat for another type of key
        or version of a value, CorruptLog. what: it is called so, otherwise by its name."""
        what = what or self.name
        begin = _begin(data, what)
        if begin not in self.read:
            known = f"0 to {self._newest}" if len(self.read) > 1 else self._newest
            raise UnsupportedFormat(f"{what} of version {begin}, expected {known}")
        return _decoded(self.read[begin], data, what)

    def encode(self, values: Sequence[Any], version: int | None = None) -> bytes:
        """A coordinator's key or value. version: of a value, the newest unless given. Raises InvalidRecord."""
        return self.write[self._newest if version is None else version](values)


@cache
def message(name: str) -> Message:
    return next(
        Message(definition) for topic in _definitions().values() for definition in topic if definition["name"] == name
    )


def decode_key(topic: str, data: bytes) -> tuple[int, Any] | None:
    """(type, key) of a record of a coordinator's topic; None for a type that is not known. Raises CorruptLog."""
    what = "a key of " + topic
    kind = _begin(data, what)
    read = _keys(topic).get(kind)
    return None if read is None else (kind, _decoded(read, data, what))


@cache
def _definitions() -> dict[str, list[_Definition]]:
    definitions: dict[str, list[_Definition]] = json.loads(Path(__file__).with_name("kafka_messages.json").read_bytes())
    return definitions


@cache
def _keys(topic: str) -> dict[int, Callable[[bytes, int], tuple[Any, int]]]:
    keys = [(key["apiKey"], key["name"]) for key in _definitions()[topic] if key["type"] == "coordinator-key"]
    return {number: message(name).read[number] for number, name in keys}


def _begin(data: bytes, what: str) -> int:
    """The type or version that a key or value begins with."""
    if len(data) < _INT16.size:
        raise _corrupt(_short(data, 0, _INT16.size), data, what)
    return int.from_bytes(data[: _INT16.size], "big", signed=True)


def _decoded(read: Callable[[bytes, int], tuple[Any, int]], data: bytes, what: str) -> Any:
    try:
        return read(data, _INT16.size)[0]
    except Malformed as error:
        raise _corrupt(error, data, what) from None


def _corrupt(error: Malformed, data: bytes, what: str) -> CorruptLog:
    return CorruptLog(f"{what}: {error}, at byte {error.position} of {len(data)}")


def _short(data: bytes, at: int, size: int) -> Malformed:
    return Malformed(f"{size} bytes are announced, {len(data) - at} are left", at)


# ---- lengths: (length, -1 for null; position after it), and the bytes of one

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_LONGEST_STRING = 2**15 - 1


def read_unsigned_varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint of 32 bits, and the position after it. Raises Malformed."""
    try:
        return read_uvarint(data, at)
    except IndexError:
        raise _short(data, len(data), 1) from None
    except ValueError as error:
        raise Malformed(str(error), at) from None


def _read_compact(data: bytes, at: int) -> tuple[int, int]:
    length, at = read_unsigned_varint(data, at)
    return length - 1, at


def _write_compact(length: int) -> bytes:
    return uvarint(length + 1)


_FORMS = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q"}


def _codec(field: _Definition, version: int, flexible: bool) -> Codec:
    kind: str = field["type"]
    nullable = _within(field.get("nullableVersions", "none"), version)
    if kind.startswith("[]"):
        return _array({**field, "type": kind[2:], "nullableVersions": "none"}, version, flexible, nullable)
    if kind in _FORMS:
        number = _number(struct.Struct(">" + _FORMS[kind]))
        return _state(number, field) if "most" in field else number
    if kind == "uuid":
        return _uuid(nullable)
    if kind in ("string", "bytes"):
        return sized(kind == "string", flexible, nullable)
    codec = _struct(kind, field["fields"], version, flexible)
    return _marked(codec, b"\0" if "tag" in field else b"\xff") if nullable else codec


def _number(form: struct.Struct) -> Codec:
    unpack, size = form.unpack_from, form.size

    def read(data: bytes, at: int) -> tuple[Any, int]:
        try:
            return unpack(data, at)[0], at + size
        except struct.error:
            raise _short(data, at, size) from None

    return Codec(read, form.pack, size, is_fixed=True)


_read_int16, _read_int32 = _number(_INT16).read, _number(_INT32).read


def _state(number: Codec, field: _Definition) -> Codec:
    most, name = field["most"], _snake(field["name"]).replace("_", " ")

    def read(data: bytes, at: int) -> tuple[int, int]:
        value, after = number.read(data, at)
        if not 0 <= value <= most:
            raise Malformed(f"{value} is no {name}: 0 to {most} are known", at)
        return value, after

    return Codec(read, number.write, number.least)


def _uuid(nullable: bool) -> Codec:
    zeros = bytes(16)

    def read(data: bytes, at: int) -> tuple[UUID | None, int]:
        end = at + 16
        if end > len(data):
            raise _short(data, at, 16)
        uuid = data[at:end]
        return None if nullable and uuid == zeros else UUID(bytes=uuid), end

    return Codec(read, lambda value: zeros if value is None else value.bytes, 16, is_fixed=True)


def sized(is_text: bool, flexible: bool, nullable: bool) -> Codec:
    """string, or bytes. flexible: their length is compact."""
    name = "a string is" if is_text else "bytes are"
    read_length = _read_compact if flexible else _read_int16 if is_text else _read_int32
    write_length = _write_compact if flexible else _INT16.pack if is_text else _INT32.pack
    most = _LONGEST_STRING if is_text and not flexible else 2**31 - 1
    null = write_length(-1)

    def read(data: bytes, at: int) -> tuple[str | bytes | None, int]:
        size, begin = read_length(data, at)
        if size < 0:
            if not nullable:
                raise Malformed(f"{name} null that must not be", at)
            return None, begin
        end = begin + size
        if end > len(data):
            raise _short(data, begin, size)
        try:
            return data[begin:end].decode() if is_text else data[begin:end], end
        except UnicodeDecodeError:
            raise Malformed("a string is not UTF-8", at) from None

    def write(data: bytes | None) -> bytes:
        if data is None:
            return null
        if len(data) > most:
            raise InvalidRecord(f"{len(data)} bytes of text, at most {most} fit")
        return write_length(len(data)) + data

    def write_text(value: str | None) -> bytes:
        if value is None:
            return null
        data = value.encode()
        return write_length(len(data)) + data if len(data) <= most else write(data)

    return Codec(read, write_text if is_text else write, len(null))


def _array(element: _Definition, version: int, flexible: bool, nullable: bool) -> Codec:
    form = _FORMS.get(element["type"])
    read_element, write_element, least, _ = _codec(element, version, flexible)
    read_length = _read_compact if flexible else _read_int32
    write_length = _write_compact if flexible else _INT32.pack
    null = write_length(-1)

    def read(data: bytes, at: int) -> tuple[tuple[Any, ...] | None, int]:
        count, begin = read_length(data, at)
        if count < 0 and nullable:
            return None, begin
        if not 0 <= count * least <= len(data) - begin:
            raise Malformed(f"an array announces {count} elements, {len(data) - begin} bytes are left", at)
        if form is not None:
            return struct.unpack_from(f">{count}{form}", data, begin), begin + count * least
        values = []
        for _ in range(count):
            value, begin = read_element(data, begin)
            values.append(value)
        return tuple(values), begin

    def write(values: Sequence[Any] | None) -> bytes:
        if values is None:
            return null
        if form is not None:
            return write_length(len(values)) + struct.pack(f">{len(values)}{form}", *values)
        return write_length(len(values)) + b"".join([write_element(value) for value in values])

    return Codec(read, write, len(null))


def _marked(codec: Codec, null: bytes) -> Codec:
    """A struct that may be null: `null`, or 1 and its fields."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        marker, after = data[at : at + 1], at + 1
        if not marker:
            raise _short(data, at, 1)
        return (None, after) if marker == null else codec.read(data, after)

    return Codec(read, lambda value: null if value is None else b"\1" + codec.write(value), 1)


def _struct(name: str, fields: list[_Definition], version: int, flexible: bool, head: bytes = b"") -> Codec:
    """Two functions made as source, as dataclasses are: a commit of offsets is worth no loop over fields. Numbers that
    follow each other are one struct. head: what is written before the fields."""
    plain = [field for field in fields if "tag" not in field]
    tagged = [field for field in fields if "tag" in field]
    made = namedtuple(name, [_snake(field["name"]) for field in plain + tagged])  # type: ignore[misc]
    names = {field["name"]: f"f{place}" for place, field in enumerate(plain + tagged)}
    known: dict[str, Any] = {"cut": _cut, "error": struct.error, "new": tuple.__new__, "made": made}
    reads: list[str] = []
    tags: list[str] = []
    writes = [repr(head)] if head else []
    least = 0
    present = [field for field in plain if _within(field["versions"], version)]
    for is_number, some in groupby(present, lambda field: field["type"] in _FORMS and "most" not in field):
        run = list(some)
        for piece in [run] if is_number else [[field] for field in run]:
            place, values = len(writes), ", ".join(names[field["name"]] for field in piece)
            if is_number:
                form = struct.Struct(">" + "".join(_FORMS[field["type"]] for field in piece))
                known |= {f"read{place}": form.unpack_from, f"write{place}": form.pack, f"form{place}": form.format}
                reads += ["try:", f"    {values}, = read{place}(data, at)", f"except error: cut(data, at, form{place})"]
                reads.append(f"at += {form.size}")
                least += form.size
            else:
                codec = _codec(piece[0], version, flexible)
                known |= {f"read{place}": codec.read, f"write{place}": codec.write}
                reads.append(f"{values}, at = read{place}(data, at)")
                least += codec.least
            writes.append(f"write{place}({values})")
    missing = [field for field in plain if field not in present] + ([] if flexible else tagged)
    known |= {"default" + names[field["name"]]: _frozen(field["default"]) for field in missing + tagged}
    reads += [f"{names[field['name']]} = default{names[field['name']]}" for field in missing]
    if flexible:
        targets = [names[field["name"]] for field in tagged]
        codecs = [(field["tag"], _codec(field, version, True), _frozen(field["default"])) for field in tagged]
        known["read_tags"] = partial(_read_tags, codecs)
        known |= {f"tag{one}": _tagged(tag, codec) for one, (tag, codec, _) in zip(targets, codecs, strict=True)}
        reads.append("if data[at:at + 1] == b'\\0': at += 1" + "".join(f"; {one} = default{one}" for one in targets))
        reads.append(f"else: {', '.join(['at', *targets])}, = read_tags(data, at)")
        same = [f"{one} is None" if known["default" + one] is None else f"{one} == default{one}" for one in targets]
        if len(targets) > 1:
            tags = [
                f"t{one} = b'' if {is_same} else tag{one}({one})" for one, is_same in zip(targets, same, strict=True)
            ]
            writes += [f"bytes(({' + '.join(f'bool(t{one})' for one in targets)},))", *(f"t{one}" for one in targets)]
        else:
            writes.append(f"b'\\0' if {same[0]} else b'\\1' + tag{targets[0]}({targets[0]})" if targets else "b'\\0'")
        least += 1
    every = ", ".join(names.values())
    source = ["def read(data, at):", *(f"    {line}" for line in reads), f"    return new(made, ({every},)), at"]
    source += ["def write(values):", f"    {every}, = values", *(f"    {line}" for line in tags)]
    source.append(f"    return b''.join(({', '.join(writes)},))")
    exec("\n".join(source), known)
    return Codec(known["read"], known["write"], least)


def _cut(data: bytes, at: int, form: str) -> None:
    """Raise for the first number of a struct that the data do not hold."""
    for number in form[1:]:
        size = struct.calcsize(">" + number)
        if at + size > len(data):
            raise _short(data, at, size) from None
        at += size


def _read_tags(known: list[tuple[int, Codec, Any]], data: bytes, at: int) -> list[Any]:
    """The position after the tagged fields, then the values of the known ones. known: tag, codec and default."""
    fields, end = read_tagged_fields(data, at)
    values: list[Any] = [end]
    for tag, codec, default in known:
        part = fields.get(tag)
        if part is None:
            values.append(default)
            continue
        value, after = codec.read(part, 0)
        if after != len(part):
            raise Malformed(f"tagged field {tag} has {len(part)} bytes, {after} are its value", at)
        values.append(value)
    return values


def _tagged(tag: int, codec: Codec) -> Callable[[Any], bytes]:
    """The writer of one tagged field: tag, size, value."""
    head, write_value = uvarint(tag), codec.write
    if codec.is_fixed:
        head += uvarint(codec.least)
        return lambda value: head + write_value(value)

    def write(value: Any) -> bytes:
        data = write_value(value)
        return head + uvarint(len(data)) + data

    return write


def read_tagged_fields(data: bytes, at: int) -> tuple[dict[int, bytes], int]:
    """(the tagged fields at `at` by tag, position after them). Raises Malformed, also for tags that do not rise."""
    fields: dict[int, bytes] = {}
    last = -1
    count, at = read_unsigned_varint(data, at)
    for _ in range(count):
        begin = at
        tag, at = read_unsigned_varint(data, at)
        if tag <= last:
            raise Malformed(f"tag {tag} follows tag {last}", begin)
        size, at = read_unsigned_varint(data, at)
        if size > len(data) - at:
            raise _short(data, at, size)
        fields[tag] = data[at : at + size]
        last, at = tag, at + size
    return fields, at


def _within(versions: str, version: int) -> bool:
    """versions: `3+`, `0-4`, `1` or `none`."""
    if versions == "none":
        return False
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    first, _, last = versions.partition("-")
    return int(first) <= version <= int(last or first)


def _snake(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower()


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
