"""Schemas from the records of a registry's own topic, `_schemas`, which is compacted: the last record of a key counts.

Keys are JSON with a `keytype`. A record of type SCHEMA is a version of a subject. If its value is null, the version is
deleted permanently; if the value has `deleted`, the version is not the latest one, but still found by its number and
its ID. DELETE_SUBJECT does the same with all versions up to a number. The types CONFIG, MODE, NOOP, CONTEXT and
CLEAR_SUBJECT do not describe schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kafkalog_spark.errors import SchemaRegistryError
from kafkalog_spark.typed.registry.contexts import DEFAULT_CONTEXT, QualifiedSubject
from kafkalog_spark.typed.registry.schemas import RegisteredSchema

Record = tuple[bytes | None, bytes | None]


class SchemaRecords:
    """The schemas after all records of the topic were applied.

    Attributes:
        described: Where the records come from, for messages.
        ignored: For each record that is ignored its index and the reason. The same records are ignored by Confluent's
            registry (`KafkaStoreReaderThread.doWork`).
    """

    def __init__(self, records: Iterable[Record], described: str) -> None:
        """Apply records.

        Args:
            records: Key and value of each record, in order.
            described: Where they come from, for messages.

        Raises:
            SchemaRegistryError: If there are records, but none has the form of a registry's records.
        """
        self.described = described
        self.ignored: list[str] = []
        self._versions: dict[str, dict[int, RegisteredSchema]] = {}
        """The schemas of each subject, by version."""
        self._deleted: set[tuple[str, int]] = set()
        """(subject, version) of the schemas that are deleted, but not permanently."""
        self._ids: dict[tuple[str, int], dict[str, RegisteredSchema]] = {}
        """The schemas of each context and ID, by subject."""
        count = 0
        for key, value in records:
            try:
                self._apply(json.loads(_checked_key(key)), None if value is None else json.loads(value))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                self.ignored.append(f"record {count}: {type(error).__name__}: {error}")
            count += 1
        if self.ignored and len(self.ignored) == count:
            raise SchemaRegistryError(
                f"{described} has no record of a schema registry; {self.ignored[0]}",
                hint="the topic of a registry has JSON keys with a keytype",
            )
        self._contexts = sorted({context for context, _ in self._ids} - {DEFAULT_CONTEXT})
        self._guids: dict[str, RegisteredSchema] = {}
        for subject in sorted(self._versions, key=QualifiedSubject.of):  # the default context comes first
            for schema in self._versions[subject].values():
                if schema.guid:
                    self._guids.setdefault(schema.guid, schema)

    def _apply(self, key: Any, value: Any) -> None:
        """Apply the parsed JSON of a record."""
        kind = key["keytype"]
        if kind == "SCHEMA":
            subject, version = str(QualifiedSubject.of(str(key["subject"]))), int(key["version"])
            if value is None:
                self._remove(subject, version)
                return
            schema = replace(RegisteredSchema.of_json(value), subject=subject, version=version)
            self._check_id(schema)
            self._remove(subject, version)
            self._versions.setdefault(subject, {})[version] = schema
            self._ids.setdefault(_context_and_id(schema), {})[subject] = schema
            if value.get("deleted"):
                self._deleted.add((subject, version))
        elif kind == "DELETE_SUBJECT" and value is not None:
            subject, last = str(QualifiedSubject.of(str(value["subject"]))), int(value["version"])
            self._deleted |= {(subject, version) for version in self._versions.get(subject, ()) if version <= last}

    def _check_id(self, schema: RegisteredSchema) -> None:
        """Raise ValueError if the ID belongs to another schema in the same context.

        The first registration of an ID counts (`KafkaStoreMessageHandler.validateUpdate`).
        """
        for other in self._ids.get(_context_and_id(schema), {}).values():
            if other.text != schema.text:
                raise ValueError(
                    f"version {schema.version} of {schema.subject} has id {schema.id}, which is version "
                    f"{other.version} of {other.subject} already"
                )

    def _remove(self, subject: str, version: int) -> None:
        self._deleted.discard((subject, version))
        schema = self._versions.get(subject, {}).pop(version, None)
        if schema is not None:
            by_subject = self._ids[_context_and_id(schema)]
            if by_subject.get(subject) is schema:
                del by_subject[subject]
            if not by_subject:
                del self._ids[_context_and_id(schema)]

    def by_id(self, id_: int, subject: str = "") -> RegisteredSchema | None:
        """Return the schema with an ID, like Confluent's registry (`getSchemaKeyUsingContexts`).

        The first choice is the schema of the subject. If the subject has no context, the second is that of the subject
        of the same name in another context. The last is that of any other subject in the same context.

        Args:
            id_: ID of the schema.
            subject: Subject of the values, or only a context.
        """
        qualified = QualifiedSubject.of(subject)
        others = self._contexts if qualified.name and qualified.context == DEFAULT_CONTEXT else []
        for context in (qualified.context, *others):
            schema = self._ids.get((context, id_), {}).get(str(qualified._replace(context=context)))
            if schema is not None:
                return schema
        return next(iter(self._ids.get((qualified.context, id_), {}).values()), None)

    def by_guid(self, guid: str) -> RegisteredSchema | None:
        """Return the schema with a GUID."""
        return self._guids.get(guid)

    def by_version(self, subject: str, version: int | None) -> RegisteredSchema | None:
        """Return a version of a subject.

        A subject without a context is also searched in the other contexts if the default context does not have it, as
        in Confluent's registry (`getUsingContexts`).

        Args:
            subject: The subject.
            version: The version; None for the latest that is not deleted.
        """
        qualified = QualifiedSubject.of(subject)
        for context in (qualified.context, *(self._contexts if qualified.context == DEFAULT_CONTEXT else [])):
            schema = self._version_of(str(qualified._replace(context=context)), version)
            if schema is not None:
                return schema
        return None

    def _version_of(self, subject: str, version: int | None) -> RegisteredSchema | None:
        schemas = self._versions.get(subject, {})
        if version is None:
            version = max((number for number in schemas if (subject, number) not in self._deleted), default=0)
        return schemas.get(version)


def _checked_key(key: bytes | None) -> bytes:
    if key is None:
        raise ValueError("it has no key")
    return key


def _context_and_id(schema: RegisteredSchema) -> tuple[str, int]:
    return QualifiedSubject.of(schema.subject).context, schema.id
