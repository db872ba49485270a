"""Options of a schema registry, and the store of schemas that they select."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.options import OptionSpec, parsed_fields, plain_text, specs_of
from kafkalog_spark.typed import formats
from kafkalog_spark.typed.registry.contexts import referenced_subject, subject_of_ids
from kafkalog_spark.typed.registry.registry_client import RegistryClient, RegistryOptions
from kafkalog_spark.typed.registry.schema_listing import listed_records
from kafkalog_spark.typed.registry.schema_records import Record, SchemaRecords
from kafkalog_spark.typed.registry.schemas import AVRO, JSON, PROTOBUF, RegisteredSchema
from kafkalog_spark.typed.schema_files import file_bytes

_log = logging.getLogger(__name__)

TOPIC = "_schemas"
_KIND_NAMES = {AVRO: "Avro", PROTOBUF: "Protobuf", JSON: "JSON"}


def _version(name: str, text: str) -> int | None:
    if text != "latest" and not text.isdecimal():
        raise OptionError(f"option '{name}' is '{text}': expected a number, or latest")
    return None if text == "latest" else int(text)


SchemaStore = RegistryClient | SchemaRecords
"""Where schemas come from. Each is None where there is no such schema; SchemaRegistryError is raised when that cannot
be known. `described`: where this is, in a sentence."""
MOST_REFERENCES = 1000
"""Schemas that one stands on, which are as many requests: large systems have some hundred .proto files."""
REGISTRY_OPTIONS = (
    *specs_of(RegistryOptions),
    OptionSpec("schema.registry.file", plain_text),
    OptionSpec("schema.registry.topic", plain_text, TOPIC),
    OptionSpec("subject", plain_text),
    OptionSpec("subject.version", _version, "latest"),
)


def with_records(format: formats.ResolvedFormat, sources: formats.SchemaSources) -> formats.ResolvedFormat:
    """The format with the records of a file or of the registry's topic, unless a URL is given, and with the subject."""
    options = dict(format.options)
    if "subject" not in options and len(sources.topics) == 1:
        options["subject"] = f"{sources.topics[0]}-{sources.side}"
    records: tuple[Record, ...] | None = None
    if "schema.registry.url" not in options:
        if "schema.registry.file" in options:
            read: Iterable[Record] = _records_of_file(options["schema.registry.file"])
        else:
            read = sources.records(options.get("schema.registry.topic", TOPIC))
        records = tuple((_utf8(key), _utf8(value)) for key, value in read)
    resolved = replace(format, options=options, schema_records=records)
    if records is not None:
        _warn_of_unused(store_of(resolved))
    return resolved


def _warn_of_unused(store: SchemaStore) -> None:
    """Log, in one line, the records of a registry's topic that are not used."""
    if isinstance(store, SchemaRecords) and store.unused:
        _log.warning(
            "%s: %d records are not used, as in a registry. The first: %s",
            store.described,
            len(store.unused),
            store.unused[0],
        )


def _records_of_file(path: str) -> list[Record]:
    return listed_records(file_bytes("schema.registry.file", path).decode("utf-8", "replace"), path)


def _utf8(value: bytes | None) -> bytes | None:
    return None if value is None else value.decode("utf-8", "replace").encode()


def store_of(format: formats.ResolvedFormat) -> SchemaStore:
    """Raises OptionError where the options name no store; SchemaRegistryError for records that are not a registry's."""
    options = format.options
    if "schema.registry.url" in options:
        return client_of(options)
    path = options.get("schema.registry.file")
    if format.schema_records is not None:
        return _records_store(format.schema_records, path or f"the topic {options.get('schema.registry.topic', TOPIC)}")
    if path is not None:
        return SchemaRecords(_records_of_file(path), path)
    raise OptionError(
        "nothing says where the schemas are",
        hint="schema.registry.url is a registry, schema.registry.file a file of it",
    )


def _subject_of_ids(format: formats.ResolvedFormat) -> str:
    return subject_of_ids(format.options.get("subject"), format.side)


def client_of(options: Mapping[str, str]) -> RegistryClient:
    """Client of the registry at `schema.registry.url`, one in a process: the next task knows what it has asked."""
    return _client(RegistryOptions(**parsed_fields(RegistryOptions, options)))


_client = lru_cache(8)(RegistryClient)
_records_store = lru_cache(4)(SchemaRecords)


def subject_schema(options: Mapping[str, str], store: SchemaStore, kind: str) -> RegisteredSchema:
    """The registry's schema that values are read with, of that kind. Raises OptionError, SchemaRegistryError."""
    subject = options.get("subject")
    if subject is None:
        raise OptionError(
            "the read is of several topics, so nothing says with which schema their values are read",
            hint="option value.subject names a subject of the registry",
        )
    version = _version("subject.version", options.get("subject.version", "latest"))
    schema = store.by_version(subject, version)
    if schema is None:
        raise SchemaRegistryError(
            f"{store.described} has no subject {subject}" + ("" if version is None else f" of version {version}"),
            hint="option value.subject names another one",
        )
    if schema.kind != kind:
        raise OptionError(f"subject {subject} has schemas of {schema.kind}, not of {_KIND_NAMES[kind]}")
    return schema


def referenced(schema: RegisteredSchema, store: SchemaStore) -> dict[str, RegisteredSchema]:
    """Schemas that a schema refers to, directly or not, by name: each after those that it refers to. Of two by one name
    the first counts, as in Confluent's `resolveReferences`.

    Raises OptionError for one that the store does not have; SchemaRegistryError when that cannot be known.
    """
    result: dict[str, RegisteredSchema] = {}
    seen: set[str] = set()
    open_ = [("", schema, iter(schema.references))]
    while open_:
        name, current, left = open_[-1]
        reference = next(left, None)
        if reference is None:
            open_.pop()
            if open_:
                result[name] = current
        elif reference.name not in seen:
            seen.add(reference.name)
            subject = referenced_subject(reference.subject, current.subject)
            below = store.by_version(subject, reference.version)
            if below is None:
                raise OptionError(
                    f"schema {current.id} refers to version {reference.version} of {subject}, which "
                    f"{store.described} does not have"
                )
            if len(seen) > MOST_REFERENCES:
                raise OptionError(f"schema {schema.id} refers to more than {MOST_REFERENCES:,} others")
            open_.append((reference.name, below, iter(below.references)))
    return result
