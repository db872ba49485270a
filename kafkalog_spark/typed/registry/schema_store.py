"""Options of a schema registry, and the store of schemas that they select."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.options import OptionSpec, parse_fields, plain_text, specs_of
from kafkalog_spark.typed import formats
from kafkalog_spark.typed.registry.contexts import subject_of_ids
from kafkalog_spark.typed.registry.registry_client import RegistryClient, RegistryOptions
from kafkalog_spark.typed.registry.schema_listing import listed_records
from kafkalog_spark.typed.registry.schema_records import Record, SchemaRecords
from kafkalog_spark.typed.registry.schemas import AVRO, JSON, PROTOBUF, RegisteredSchema
from kafkalog_spark.typed.schema_files import file_bytes

_log = logging.getLogger(__name__)

TOPIC = "_schemas"  # the registry's default topic
KIND_NAMES = {AVRO: "Avro", PROTOBUF: "Protobuf", JSON: "JSON"}
SchemaStore = RegistryClient | SchemaRecords
"""Source of schemas. A look-up returns None if there is no such schema, and raises SchemaRegistryError if the source
cannot be reached. `described` names the source in messages."""


def _version(name: str, text: str) -> int | None:
    if text != "latest" and not text.isdecimal():
        raise OptionError(f"option '{name}' is '{text}': expected a number, or latest")
    return None if text == "latest" else int(text)


REGISTRY_OPTIONS = (
    *specs_of(RegistryOptions),
    OptionSpec("schema.registry.file", plain_text),
    OptionSpec("schema.registry.topic", plain_text, TOPIC),
    OptionSpec("subject", plain_text),
    OptionSpec("subject.version", _version, "latest"),
)


def with_schema_records(format: formats.ResolvedFormat, sources: formats.SchemaSources) -> formats.ResolvedFormat:
    """Return a format with its subject, and with the records of the file or topic that contains its schemas.

    The subject is derived from the topic by TopicNameStrategy unless an option names it. Records are not read if the
    options have the URL of a registry.

    Args:
        format: The format.
        sources: Topics of the read, and access to their records.
    """
    options = dict(format.options)
    if "subject" not in options and len(sources.topics) == 1:
        options["subject"] = f"{sources.topics[0]}-{sources.side}"
    records: tuple[Record, ...] | None = None
    if "schema.registry.url" not in options:
        if "schema.registry.file" in options:
            unchecked: Iterable[Record] = _records_of_file(options["schema.registry.file"])
        else:
            unchecked = sources.records(options.get("schema.registry.topic", TOPIC))
        records = tuple((_utf8(key), _utf8(value)) for key, value in unchecked)
    resolved = replace(format, options=options, schema_records=records)
    if records is not None:
        _warn_of_ignored(store_of(resolved))
    return resolved


def store_of(format: formats.ResolvedFormat) -> SchemaStore:
    """Return the store of schemas that the options select.

    Raises:
        OptionError: If the options name no store.
        SchemaRegistryError: If a topic or file has no records of a registry.
    """
    options = format.options
    if "schema.registry.url" in options:
        return client_of(options)
    path = options.get("schema.registry.file")
    if format.schema_records is not None:
        return _records_store(format.schema_records, path or f"the topic {options.get('schema.registry.topic', TOPIC)}")
    if path is not None:
        return SchemaRecords(_records_of_file(path), path)
    raise OptionError(
        "no option says where the schemas are",
        hint="schema.registry.url names a registry, schema.registry.file a file with its schemas",
    )


def lookup_subject(format: formats.ResolvedFormat) -> str:
    """Return the subject with which the IDs in values are looked up (`subject_of_ids`)."""
    return subject_of_ids(format.options.get("subject"), format.side)


def client_of(options: Mapping[str, str]) -> RegistryClient:
    """Return the client of the registry at `schema.registry.url`.

    There is one per process, so that tasks share its cache.
    """
    return _client(RegistryOptions(**parse_fields(RegistryOptions, options)))


def subject_schema(options: Mapping[str, str], store: SchemaStore, schema_type: str) -> RegisteredSchema:
    """Return the schema of the options' subject and version.

    Args:
        options: Options of the format by lower-case name.
        store: Where the schema is looked up.
        schema_type: AVRO, PROTOBUF or JSON.

    Raises:
        OptionError: If the options have no subject, or its schema is of another kind.
        SchemaRegistryError: If the subject or version does not exist, or cannot be looked up.
    """
    subject = options.get("subject")
    if subject is None:
        raise OptionError(
            "values of several topics are read, so the subject of their schema is unknown",
            hint="option value.subject names a subject of the registry",
        )
    version = _version("subject.version", options.get("subject.version", "latest"))
    schema = store.by_version(subject, version)
    if schema is None:
        raise SchemaRegistryError(
            f"{store.described} has no subject {subject}" + ("" if version is None else f" of version {version}"),
            hint="option value.subject names another one",
        )
    if schema.kind != schema_type:
        raise OptionError(f"subject {subject} has schemas of {schema.kind}, not of {KIND_NAMES[schema_type]}")
    return schema


def check_write_options(name: str, options: Mapping[str, str]) -> None:
    """Raise OptionError if the options of a write with the format `name` lack a registry or a subject."""
    if "schema.registry.url" not in options or "subject" not in options:
        raise OptionError(f"to write {name}, options schema.registry.url and value.subject are needed")


def _warn_of_ignored(store: SchemaStore) -> None:
    """Log a warning if records of a registry's topic are ignored."""
    if isinstance(store, SchemaRecords) and store.ignored:
        _log.warning(
            "%s: %d records are ignored, as in a registry. The first: %s",
            store.described,
            len(store.ignored),
            store.ignored[0],
        )


def _records_of_file(path: str) -> list[Record]:
    return listed_records(file_bytes("schema.registry.file", path).decode("utf-8", "replace"), path)


def _utf8(value: bytes | None) -> bytes | None:
    return None if value is None else value.decode("utf-8", "replace").encode()


_client = lru_cache(8)(RegistryClient)
_records_store = lru_cache(4)(SchemaRecords)
