"""Schemas of a registry, with their ids, the subjects and versions that they are, and what they refer to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafkalog_spark.errors import SchemaRegistryError

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"


@dataclass(frozen=True)
class Reference:
    """Schema that another one names, as `name` (Avro type, .proto file): a registered version of a subject."""

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
    def of_json(cls, answer: Mapping[str, Any], id_: int | None = None) -> RegisteredSchema:
        """From a registry's answer, or its topic, which leave AVRO out. Raises KeyError, TypeError, ValueError."""
        references = tuple(
            Reference(str(reference["name"]), str(reference["subject"]), int(reference["version"]))
            for reference in answer.get("references") or ()
        )
        return cls(
            int(answer["id"]) if id_ is None else id_,
            str(answer.get("schemaType") or AVRO),
            str(answer["schema"]),
            references,
            str(answer.get("subject") or ""),
            int(answer.get("version") or 0),
            str(answer.get("guid") or "").lower(),
        )


# Schemas by the records of a registry's own topic, `_schemas`, which is a table: the last record of a key counts.
#
# Keys are JSON with a `keytype`. SCHEMA is one version of a subject (value null: deleted for good; `deleted`: for
# those who ask for the latest); DELETE_SUBJECT deletes all versions up to one; CONFIG, MODE, NOOP, CONTEXT and
# CLEAR_SUBJECT say nothing of schemas. What is deleted is found by its id all the same, as in a registry.

Record = tuple[bytes | None, bytes | None]


class SchemaRecords:
    """The schemas that some records leave. `described`: what these are of, for messages."""

    def __init__(self, records: Iterable[Record], described: str) -> None:
        """Raises SchemaRegistryError for a record that no registry writes."""
        self.described = described
        self._versions: dict[tuple[str, int], RegisteredSchema] = {}
        self._deleted: set[tuple[str, int]] = set()
        for i, (key, value) in enumerate(records):
            try:
                self._take(None if key is None else json.loads(key), None if value is None else json.loads(value))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise SchemaRegistryError(
                    f"record {i} of {described} is not what a schema registry writes: {type(error).__name__}: {error}",
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
            gone = {key for key in self._versions if key[0] == value["subject"] and key[1] <= int(value["version"])}
            self._deleted |= gone

    def by_id(self, id_: int) -> RegisteredSchema | None:
        return self._ids.get(id_)

    def by_guid(self, guid: str) -> RegisteredSchema | None:
        return self._guids.get(guid)

    def by_version(self, subject: str, version: int | None) -> RegisteredSchema | None:
        """version: None for the latest."""
        if version is not None:
            return self._versions.get((subject, version))
        versions = [key[1] for key in self._versions if key[0] == subject and key not in self._deleted]
        return self._versions[subject, max(versions)] if versions else None


def listed_records(text: str, place: str) -> list[Record]:
    """The records of a file: a list of schemas as a registry answers `GET /schemas`, or one record of `_schemas` a
    line, {"key": ..., "value": ...}, or its key and value with a tab between them. Raises SchemaRegistryError."""
    try:
        if text.lstrip()[:1] == "[":
            return [_record(listed) for listed in json.loads(text)]
        records: list[Record] = []
        for line in filter(str.strip, text.splitlines()):
            if "\t" in line:
                key, _, value = line.partition("\t")
                records.append((key.encode(), None if value.strip() in ("", "null") else value.encode()))
            else:
                record = json.loads(line)
                value_json = record["value"]
                records.append((_bytes(record["key"]), None if value_json is None else _bytes(value_json)))
        return records
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SchemaRegistryError(
            f"{place} is no list of schemas: {type(error).__name__}: {error}",
            hint="it is what a registry answers to GET /schemas, or the records of its topic, one a line",
        ) from error


def _record(schema: dict[str, Any]) -> Record:
    key = {"keytype": "SCHEMA", "subject": schema["subject"], "version": schema["version"]}
    return json.dumps(key).encode(), json.dumps(schema).encode()


def _bytes(value: Any) -> bytes:
    return (value if isinstance(value, str) else json.dumps(value)).encode()
