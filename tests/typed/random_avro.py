"""Random Avro schemas, reader schemas that evolved from them, and values: valid, unusual and damaged."""

from __future__ import annotations

import copy
import io
import random
import struct
from dataclasses import dataclass
from typing import Any

import fastavro

from kafkalog_spark.typed.avro.defaults import is_valid_default
from kafkalog_spark.typed.avro.schema import parse_schema

Json = Any
_PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
_LOGICAL: list[dict[str, Json]] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 18},
    {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 5},
    {"type": "bytes", "logicalType": "decimal", "precision": 38},
    {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 5},
    {"type": "string", "avro.java.string": "String"},
]


_NUMBERS: list[list[list[Json]]] = [
    [["float"], ["double"]],
    [
        ["int", {"type": "int", "logicalType": "date"}, {"type": "int", "logicalType": "time-millis"}],
        ["long", *(one for one in _LOGICAL if one["type"] == "long")],
    ],
]
"""Pairs of which unions of two are read as one number, with all that the two may mean."""


@dataclass(frozen=True)
class Case:
    """A writer schema, the reader schema that its values are read with, and the values."""

    writer: Json
    reader: Json
    values: list[bytes]


class Schemas:
    """Draws schemas. Every record, enum and fixed has a name of its own."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._names = 0

    def name(self) -> str:
        self._names += 1
        return f"{self.rng.choice(['N', 'a.b.N', 'c.N'])}{self._names}"

    def record(self, depth: int) -> Json:
        fields = [
            {"name": f"{self.rng.choice('fF')}{i}", "type": self.type(depth - 1)} for i in range(self.rng.randint(1, 5))
        ]
        return {"type": "record", "name": self.name(), "fields": fields}

    def type(self, depth: int) -> Json:
        kinds = ["plain"] * 5 + ["logical"] * 3 + ["nullable"] * 4 + ["enum", "fixed", "decimal"]
        if depth > 0:
            kinds += ["record", "record", "array", "array", "map", "map", "union", "union of numbers", "null"]
        kind = self.rng.choice(kinds)
        if kind == "plain":
            return self.rng.choice(_PRIMITIVES[1:])
        if kind == "logical":
            return copy.deepcopy(self.rng.choice(_LOGICAL))
        if kind == "nullable":
            inner = self.without_union(depth)
            return self.rng.choice([["null", inner], [inner, "null"]]) if inner != "null" else ["null", "int"]
        if kind == "enum":
            return {"type": "enum", "name": self.name(), "symbols": [f"S{i}" for i in range(self.rng.randint(1, 5))]}
        if kind in ("fixed", "decimal"):
            size = self.rng.choice([1, 4, 8, 12, 16])
            found = {"type": "fixed", "name": self.name(), "size": size}
            if kind == "decimal":
                found |= {"logicalType": "decimal", "precision": self.rng.choice([2, 9, 18, 20]), "scale": 1}
            elif size == 12:
                found["logicalType"] = "duration"
            return found
        if kind == "record":
            return self.record(depth)
        if kind == "array":
            return {"type": "array", "items": self.type(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self.type(depth - 1)}
        if kind == "null":
            return ["null"]
        if kind == "union of numbers":
            branches = [copy.deepcopy(self.rng.choice(of)) for of in self.rng.choice(_NUMBERS)]
            branches += self.rng.choice([[], ["null"]])
            self.rng.shuffle(branches)
            return branches
        return self.union(depth)

    def without_union(self, depth: int) -> Json:
        while isinstance(found := self.type(depth), list):
            pass
        return found

    def union(self, depth: int) -> Json:
        branches: list[Json] = []
        for _ in range(self.rng.randint(2, 4)):
            one = self.rng.choice(["null", *[self.without_union(depth - 1)] * 5])
            if _called(one) not in [_called(other) for other in branches]:
                branches.append(one)
        return branches if any(one != "null" for one in branches) else [*branches, "int"]

    def evolved(self, schema: Json) -> Json:
        """A reader schema of which most differences are allowed by Avro's rules."""
        rng = self.rng
        if isinstance(schema, list):
            found = [self.evolved(one) for one in schema]
            if rng.random() < 0.2:
                rng.shuffle(found)
            names = [_called(one) for one in found]
            return found if len(set(names)) == len(names) else schema
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(schema, dict) and kind == "record":
            return self._evolved_record(schema)
        if isinstance(schema, dict) and kind == "enum":
            new = dict(schema)
            if rng.random() < 0.3:
                new["symbols"] = [*schema["symbols"][1:], "T", *schema["symbols"][:1]][: rng.randint(1, 6)]
                new |= {"default": new["symbols"][0]} if rng.random() < 0.5 else {}
            return new
        if isinstance(schema, dict) and kind in ("array", "map"):
            of = "items" if kind == "array" else "values"
            return {**schema, of: self.evolved(schema[of])}
        if isinstance(schema, str) and rng.random() < 0.15:
            to: dict[str, list[Json]] = {
                "int": ["long", "float", "double", ["null", "long"], ["double", "string"]],
                "long": ["float", "double"],
            }
            to |= {"float": ["double", ["null", "double"]], "string": ["bytes"], "bytes": ["string"]}
            return rng.choice(to.get(schema, [schema]))
        if isinstance(schema, str) and schema != "null" and rng.random() < 0.1:
            return ["null", schema]
        return schema

    def _evolved_record(self, schema: Json) -> Json:
        rng = self.rng
        new: Json = {**schema, "fields": []}
        if rng.random() < 0.2:
            new["name"] = self.name()
            if rng.random() < 0.5:
                new["aliases"] = [schema["name"]]
        for one in schema["fields"]:
            if rng.random() < 0.15:
                continue
            field = {**one, "type": self.evolved(one["type"])}
            if rng.random() < 0.1:
                other = rng.choice([f"{one['name']}new", one["name"].swapcase()])
                field |= {"name": other, "aliases": [one["name"]]}
                if rng.random() < 0.2:
                    del field["aliases"]
                if rng.random() < 0.5:
                    field["default"] = self.default(field["type"])
            new["fields"].append(field)
        if rng.random() < 0.4:
            type_ = self.type(1)
            new["fields"].append({"name": "added", "type": type_, "default": self.default(type_)})
        if rng.random() < 0.2:
            rng.shuffle(new["fields"])
        return new if new["fields"] else schema

    def default(self, schema: Json) -> Json:
        """JSON that a field of that type may have as its default."""
        rng = self.rng
        if isinstance(schema, list):
            while (found := self.default(rng.choice(schema))) == []:
                pass  # Java's reader fails with it: docs/typed_binary.md
            return found
        kind = schema if isinstance(schema, str) else schema["type"]
        plain: dict[str, Json] = {
            "null": None, "boolean": True, "int": rng.randint(-99, 99), "long": rng.randint(-(10**12), 10**12),
            "float": 1.5, "double": 0.1, "bytes": "\x01\u00ff", "string": "dé",
        }  # fmt: skip
        if kind in plain:
            return plain[kind]
        if kind == "enum":
            return rng.choice(schema["symbols"])
        if kind == "fixed":
            return "\x00" * schema["size"]
        if kind == "record":
            return {one["name"]: self.default(one["type"]) for one in schema["fields"]}
        if kind == "array":
            return [self.default(schema["items"]) for _ in range(rng.randint(0, 2))]
        return {f"k{i}": self.default(schema["values"]) for i in range(rng.randint(0, 2))}


def _called(schema: Json) -> str:
    if isinstance(schema, str):
        return schema
    if isinstance(schema, list):
        return "union"
    return str(schema.get("name") or schema["type"])


def varint(value: int) -> bytes:
    """A number as Avro writes an int or a long."""
    raw = (value << 1) ^ (value >> 63)
    found = bytearray()
    while raw > 127:
        found.append(raw & 127 | 128)
        raw >>= 7
    return bytes([*found, raw])


def encode(rng: random.Random, schema: Json) -> bytes:
    """A random value, with everything that a schema allows: extreme numbers, NaN, blocks with a size, keys twice."""
    if isinstance(schema, list):
        i = rng.randrange(len(schema))
        return varint(i) + encode(rng, schema[i])
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return b"".join(encode(rng, one["type"]) for one in schema["fields"])
    if kind in ("array", "map"):
        return _blocks(rng, schema, kind)
    if kind == "enum":
        return varint(rng.randrange(len(schema["symbols"])))
    if kind == "fixed":
        if schema.get("logicalType") == "decimal":
            limit = min(10 ** schema["precision"], 1 << (8 * schema["size"] - 1))
            fixed: bytes = rng.randrange(-limit, limit).to_bytes(schema["size"], "big", signed=True)
            return fixed
        return rng.randbytes(schema["size"])
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal":
        limit = 10 ** schema["precision"] + (1 if rng.random() < 0.05 else 0)
        value = rng.choice([rng.randrange(-limit + 1, limit), rng.randrange(-9, 9), limit - 1, 1 - limit])
        size = (value.bit_length() + 8) // 8 + rng.choice([0, 0, 0, 3, 20])
        written: bytes = value.to_bytes(size, "big", signed=True)
        return varint(size) + written
    return _plain(rng, kind, str(logical))


def _plain(rng: random.Random, kind: str, logical: str) -> bytes:
    if kind == "null":
        return b""
    if kind == "boolean":
        return rng.choice([b"\0", b"\1", b"\1", b"\2"]) if rng.random() < 0.1 else rng.choice([b"\0", b"\1"])
    if kind == "int":
        near = rng.randint(-200_000, 200_000)
        return varint(
            near if logical == "date" else rng.choice([near, 0, -1, 2**31 - 1, -(2**31), rng.getrandbits(30)])
        )
    if kind == "long":
        if "timestamp" in logical and rng.random() < 0.95:
            return varint(rng.randint(-(10**13), 10**13))
        edge = rng.choice([2**63 - 1, -(2**63), 0, 1])
        return varint(edge if rng.random() < 0.03 else rng.randint(-(2**40), 2**40))
    if kind == "float":
        return struct.pack("<f", rng.choice([0.0, -0.0, float("nan"), float("inf"), rng.uniform(-1e9, 1e9)]))
    if kind == "double":
        return struct.pack("<d", rng.choice([0.0, -0.0, float("nan"), float("-inf"), rng.uniform(-1e300, 1e300)]))
    text = rng.choice(["", "a", "grün", "日本語", "x" * 200, "\0", str(rng.random())]).encode()
    if kind == "bytes" or rng.random() < 0.02:
        text = rng.randbytes(rng.choice([0, 1, 5, 70]))
    return varint(len(text)) + text


def _blocks(rng: random.Random, schema: Json, kind: str) -> bytes:
    found = b""
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        count, held = rng.choice([1, 2, 3, 20]), b""
        for _ in range(count):
            if kind == "map":
                key = rng.choice(["a", "b", "key", "ключ", str(rng.random())]).encode()
                held += varint(len(key)) + key
            held += encode(rng, schema["items" if kind == "array" else "values"])
        found += varint(-count) + varint(len(held)) + held if rng.random() < 0.3 else varint(count) + held
    return found + b"\0"


def broken(rng: random.Random, value: bytes) -> bytes:
    """A value with something wrong, most of the time: cut, extended, a bit turned, a byte that lies."""
    how = rng.randrange(5)
    if how == 0 or not value:
        return value[: rng.randint(0, max(len(value) - 1, 0))]
    at = rng.randrange(len(value))
    if how == 1:
        return value + rng.randbytes(rng.randint(1, 9))
    if how == 2:
        return value[:at] + bytes([value[at] ^ (1 << rng.randrange(8))]) + value[at + 1 :]
    if how == 3:
        return value[:at] + bytes([rng.choice([0xFF, 0x80, 0x7F, 0x00, 0x01])]) + value[at + 1 :]
    return value[:at] + rng.randbytes(rng.randint(1, 6)) + value[at:]


def cases(seed: int, schemas: int, values: int) -> list[Case]:
    """`schemas` pairs of a writer and a reader schema, half of them equal, each with that many values."""
    rng = random.Random(seed)
    found: list[Case] = []
    while len(found) < schemas:
        draws = Schemas(rng)
        writer = draws.record(3)
        reader = draws.evolved(writer) if len(found) % 2 else writer
        try:
            for schema in (writer, reader):
                parse_schema(schema)
                fastavro.parse_schema(copy.deepcopy(schema))
        except (ValueError, fastavro.schema.SchemaParseException):
            continue  # a default or a union that got a type twice
        drawn = [encode(rng, writer) for _ in range(values)]
        found.append(Case(writer, reader, [broken(rng, one) if rng.random() < 0.3 else one for one in drawn]))
    return found


def by_fastavro(writer: Json, value: Any) -> bytes:
    """A value as another library writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(writer)), value)
    return out.getvalue()


__all__ = ["Case", "Schemas", "broken", "by_fastavro", "cases", "encode", "is_valid_default", "varint"]
