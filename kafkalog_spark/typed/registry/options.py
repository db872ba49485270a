"""Options about a schema registry, and the store of schemas that they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.options import OptionSpec, parsed_fields, plain_text, specs_of
from kafkalog_spark.typed.ddl import file_bytes
from kafkalog_spark.typed.decoder import ResolvedFormat, SchemaSources
from kafkalog_spark.typed.registry import schemas
from kafkalog_spark.typed.registry.client import RegistryClient, RegistryOptions

TOPIC = "_schemas"
_KIND_NAMES = {schemas.AVRO: "Avro", schemas.PROTOBUF: "Protobuf", schemas.JSON: "JSON"}


def _version(name: str, text: str) -> int | None:
    """A version's number; None for `latest`."""
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


def with_records(format: ResolvedFormat, sources: SchemaSources) -> ResolvedFormat:
    """The format with the records of a file or of the registry's topic, unless a URL is given, and with the subject."""
    options = dict(format.options)
    if "subject" not in options and len(sources.topics) == 1:
        options["subject"] = f"{sources.topics[0]}-{sources.side}"
    records: tuple[schemas.Record, ...] | None = None
    if "schema.registry.url" not in options:
        if "schema.registry.file" in options:
            read: Iterable[schemas.Record] = _records_of_file(options["schema.registry.file"])
        else:
            read = sources.records(options.get("schema.registry.topic", TOPIC))
        records = tuple((_utf8(key), _utf8(value)) for key, value in read)
    return replace(format, options=options, schema_records=records)


def _records_of_file(path: str) -> list[schemas.Record]:
    return schemas.listed_records(file_bytes("schema.registry.file", path).decode("utf-8", "replace"), path)


def _utf8(value: bytes | None) -> bytes | None:
    return None if value is None else value.decode("utf-8", "replace").encode()


def store_of(format: ResolvedFormat) -> schemas.SchemaStore:
    """Raises OptionError where the options name no store; SchemaRegistryError for records that are not a registry's."""
    options = format.options
    if "schema.registry.url" in options:
        return client_of(options)
    path = options.get("schema.registry.file")
    if format.schema_records is not None:
        return _records_store(format.schema_records, path or f"the topic {options.get('schema.registry.topic', TOPIC)}")
    if path is not None:
        return schemas.SchemaRecords(_records_of_file(path), path)
    raise OptionError(
        "nothing says where the schemas are",
        hint="schema.registry.url is a registry, schema.registry.file a file of it",
    )


def client_of(options: Mapping[str, str]) -> RegistryClient:
    """The client of the registry of option `schema.registry.url`, one in a process: what it has asked is known to the
    next task."""
    return _client(RegistryOptions(**parsed_fields(RegistryOptions, options)))


_client = lru_cache(8)(RegistryClient)
_records_store = lru_cache(4)(schemas.SchemaRecords)


def subject_schema(options: Mapping[str, str], store: schemas.SchemaStore, kind: str) -> schemas.RegisteredSchema:
    """The schema that the values are read with, by the registry, and a schema of that kind. Raises OptionError,
    SchemaRegistryError."""
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
