"""Schemas of a registry, with their ids, the subjects and versions that they are, and the schemas they refer to."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.typed.decoder import Decoded

MOST_REFERENCES = 1000
"""Schemas that one stands on, which are as many requests: large systems have some hundred .proto files."""
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"


@dataclass(frozen=True)
class Reference:
    """A schema that another one names: as `name` (an Avro type, a .proto file), registered as a version of a
    subject."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class RegisteredSchema:
    """Schema of a registry. `kind`: AVRO, PROTOBUF or JSON; `guid`: its id of newer registries, in small letters."""

    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    subject: str = ""
    version: int = 0
    guid: str = ""

    @classmethod
    def of_json(cls, found: Mapping[str, Any], id_: int | None = None) -> RegisteredSchema:
        """From what a registry answers, and keeps in its topic: AVRO is not said. Raises KeyError, TypeError and
        ValueError for what it is not."""
        references = tuple(
            Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in found.get("references") or ()
        )
        return cls(
            int(found["id"]) if id_ is None else id_,
            str(found.get("schemaType") or AVRO),
            str(found["schema"]),
            references,
            str(found.get("subject") or ""),
            int(found.get("version") or 0),
            str(found.get("guid") or "").lower(),
        )


class SchemaStore(Protocol):
    """Where schemas come from. None: there is no such schema. Raises SchemaRegistryError when that cannot be known."""

    def by_id(self, id_: int) -> RegisteredSchema | None: ...

    def by_guid(self, guid: str) -> RegisteredSchema | None: ...

    def by_version(self, subject: str, version: int | None) -> RegisteredSchema | None:
        """version None: the latest."""
        ...

    @property
    def described(self) -> str:
        """Where this is, in a sentence."""
        ...


def referenced(schema: RegisteredSchema, store: SchemaStore) -> dict[str, RegisteredSchema]:
    """Schemas that a schema refers to, directly or not, by name: each after those that it refers to. Of two by one name
    the first counts, as in Confluent's `resolveReferences`.

    Raises OptionError for one that the store does not have; SchemaRegistryError when that cannot be known.
    """
    found: dict[str, RegisteredSchema] = {}
    seen: set[str] = set()
    open_ = [("", schema, iter(schema.references))]
    while open_:
        name, one, left = open_[-1]
        reference = next(left, None)
        if reference is None:
            open_.pop()
            if open_:
                found[name] = one
        elif reference.name not in seen:
            seen.add(reference.name)
            below = store.by_version(reference.subject, reference.version)
            if below is None:
                raise OptionError(
                    f"schema {one.id} refers to version {reference.version} of {reference.subject}, which "
                    f"{store.described} does not have"
                )
            if len(seen) > MOST_REFERENCES:
                raise OptionError(f"schema {schema.id} refers to more than {MOST_REFERENCES:,} others")
            open_.append((reference.name, below, iter(below.references)))
    return found


# The schemas that values name, each looked up and made ready once.

S = TypeVar("S")
P = TypeVar("P", bound=Hashable)

MOST_SCHEMAS = 1000
"""Writer schemas that are ready at once. Those of a batch that names more are made ready again and again."""
_REMEMBERED = 10_000
"""Schemas that cannot be had, among others: each is asked for once, unless there are more of them."""


class Reading(Protocol):
    """Interface of a reader that programs of schemas are added to."""

    @property
    def is_full(self) -> bool:
        """True if it has no room for another schema."""
        ...

    def forget(self) -> None:
        """Begin without a schema."""
        ...


class NamedSchemas(Generic[S, P]):
    """made: a schema as it is kept. entry_of: where the program for a part of it begins; a part is what a value names
    of its schema, the indexes of a message for example. Both raise OptionError where its values are bad."""

    def __init__(
        self,
        store: SchemaStore,
        reading: Reading,
        made: Callable[[RegisteredSchema], S],
        entry_of: Callable[[S, P], int],
    ) -> None:
        self._store, self._reading = store, reading
        self._made, self._entry_of = made, entry_of
        self._ready = 0
        self._schema = lru_cache(MOST_SCHEMAS)(self._looked_up)
        self.entry = lru_cache(_REMEMBERED)(self._entry)

    def decoded(self, decode: Callable[[Any, Any], Decoded], values: Any, headers: Any) -> Decoded:
        """Decode values and their headers with `decode`, which asks for an `entry`: of all at once, or in parts,
        where they name more schemas than there is room for."""
        others = self._ready
        try:
            return decode(values, headers)
        except _Full:
            self._reading.forget()
            self.entry.cache_clear()
            self._ready = 0
        if others:  # perhaps there is room without those of other batches
            return self.decoded(decode, values, headers)
        half = len(values) // 2
        first, second = (
            self.decoded(decode, values[part], None if headers is None else headers[part])
            for part in (slice(half), slice(half, None))
        )
        bad = [[False] * len(one.columns) if one.bad is None else one.bad for one in (first, second)]
        return Decoded(
            pa.concat_arrays([first.columns, second.columns]),
            np.concatenate(bad),
            lambda i: first.why(i) if i < half else second.why(i - half),
        )

    def _entry(self, id_: int | str, part: P) -> int | str:
        """Where the program for a schema, by its id or GUID, begins, or why there is none. Raises SchemaRegistryError
        where a registry cannot be asked."""
        found = self._schema(id_)
        if isinstance(found, OptionError):
            return str(found)
        if self._ready == MOST_SCHEMAS or (self._ready and self._reading.is_full):
            raise _Full
        try:
            entry = self._entry_of(found, part)
        except OptionError as error:
            return f"it names schema {id_}, which cannot be read: {error}"
        self._ready += 1
        return entry

    def _looked_up(self, id_: int | str) -> S | OptionError:
        found = self._store.by_id(id_) if isinstance(id_, int) else self._store.by_guid(id_)
        if found is None:
            return OptionError(f"it names schema {id_}, which {self._store.described} does not have")
        try:
            return self._made(found)
        except OptionError as error:
            return OptionError(f"it names schema {id_}, which cannot be read: {error}")


class _Full(Exception):
    """There is no room for the schema of a value."""


# Schemas by the records of a registry's own topic, `_schemas`, which is a table: the last record of a key counts.
#
# Keys are JSON with a `keytype`. SCHEMA is one version of a subject (value null: deleted for good; `deleted`: for
# those who ask for the latest); DELETE_SUBJECT deletes all versions up to one; CONFIG, MODE, NOOP, CONTEXT and
# CLEAR_SUBJECT say nothing of schemas. What is deleted is found by its id all the same, as in a registry.

Record = tuple[bytes | None, bytes | None]


class SchemaRecords:
    """The schemas that some records leave. `place`: what they are of, for messages."""

    def __init__(self, records: Iterable[Record], place: str) -> None:
        """Raises SchemaRegistryError for a record that no registry writes."""
        self._place = place
        self._versions: dict[tuple[str, int], RegisteredSchema] = {}
        self._deleted: set[tuple[str, int]] = set()
        for i, (key, value) in enumerate(records):
            try:
                self._take(None if key is None else json.loads(key), None if value is None else json.loads(value))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise SchemaRegistryError(
                    f"record {i} of {place} is not what a schema registry writes: {type(error).__name__}: {error}",
                    hint="the topic of a registry has JSON keys with a keytype",
                ) from error
        self._ids = {schema.id: schema for schema in self._versions.values()}
        self._guids = {schema.guid: schema for schema in self._versions.values() if schema.guid}

    def _take(self, key: Any, value: Any) -> None:
        kind = None if key is None else key["keytype"]
        if kind == "SCHEMA":
            version = str(key["subject"]), int(key["version"])
            self._deleted.discard(version)
            if value is None:
                self._versions.pop(version, None)
                return
            self._versions[version] = RegisteredSchema.of_json(value)
            if value.get("deleted"):
                self._deleted.add(version)
        elif kind == "DELETE_SUBJECT" and value is not None:
            gone = {one for one in self._versions if one[0] == value["subject"] and one[1] <= int(value["version"])}
            self._deleted |= gone

    @property
    def described(self) -> str:
        return self._place

    def by_id(self, id_: int) -> RegisteredSchema | None:
        return self._ids.get(id_)

    def by_guid(self, guid: str) -> RegisteredSchema | None:
        return self._guids.get(guid)

    def by_version(self, subject: str, version: int | None) -> RegisteredSchema | None:
        if version is not None:
            return self._versions.get((subject, version))
        versions = [one[1] for one in self._versions if one[0] == subject and one not in self._deleted]
        return self._versions[subject, max(versions)] if versions else None


def listed_records(text: str, place: str) -> list[Record]:
    """The records of a file: a list of schemas as a registry answers `GET /schemas`, or one record of `_schemas` a
    line, {"key": ..., "value": ...}, or its key and value with a tab between them. Raises SchemaRegistryError."""
    try:
        if text.lstrip()[:1] == "[":
            return [_record(one) for one in json.loads(text)]
        records: list[Record] = []
        for line in filter(str.strip, text.splitlines()):
            if "\t" in line:
                key, _, value = line.partition("\t")
                records.append((key.encode(), None if value.strip() in ("", "null") else value.encode()))
            else:
                one = json.loads(line)
                value_json = one["value"]
                records.append((_bytes(one["key"]), None if value_json is None else _bytes(value_json)))
        return records
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SchemaRegistryError(
            f"{place} is no list of schemas: {type(error).__name__}: {error}",
            hint="it is what a registry answers to GET /schemas, or the records of its topic, one a line",
        ) from error


def _record(one: dict[str, Any]) -> Record:
    key = {"keytype": "SCHEMA", "subject": one["subject"], "version": one["version"]}
    return json.dumps(key).encode(), json.dumps(one).encode()


def _bytes(value: Any) -> bytes:
    return (value if isinstance(value, str) else json.dumps(value)).encode()
