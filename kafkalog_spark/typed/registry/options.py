"""Options about a schema registry, and the store of schemas that they name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache

from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.typed.ddl import file_bytes
from kafkalog_spark.typed.decoder import SchemaSources
from kafkalog_spark.typed.registry.client import RegistryClient, RegistryOptions
from kafkalog_spark.typed.registry.schemas import RegisteredSchema, SchemaRecords, SchemaStore, listed_records

TOPIC = "_schemas"
_RECORDS = "schema.registry.records"
"""Where the records of a topic or a file go, once they are read; not for users."""
REGISTRY_OPTIONS: Mapping[str, str] = {
    "schema.registry.url": "The registry, or several with a comma between them. Without it and without a file, schemas "
    "come from the topic `_schemas` of the same log directory.",
    "schema.registry.basic.auth.user.info": "`user:password`.",
    "schema.registry.bearer.auth.token": "A bearer token.",
    "schema.registry.ssl.ca.location": "PEM file of the authorities that are trusted.",
    "schema.registry.ssl.certificate.location": "PEM file of the client's certificate.",
    "schema.registry.ssl.key.location": "PEM file of its key.",
    "schema.registry.ssl.key.password": "The key's password.",
    "schema.registry.file": "Schemas from a file: what a registry answers to `GET /schemas`, or records of its topic.",
    "schema.registry.topic": "The registry's topic in the log directory; by default `_schemas`.",
    "subject": "The subject whose schema the values are read with; by default `TOPIC-value` (`TOPIC-key`).",
    "subject.version": "Its version; by default the latest.",
    _RECORDS: "Set by kafkalog.",
}


def settled_registry(options: Mapping[str, str], sources: SchemaSources) -> dict[str, str]:
    """The options with the records of a file or of the registry's topic, and with the subject."""
    found = dict(options)
    if "subject" not in options and len(sources.topics) == 1:
        found["subject"] = f"{sources.topics[0]}-{sources.side}"
    if "schema.registry.url" in options or _RECORDS in options:
        return found
    if "schema.registry.file" in options:
        path = options["schema.registry.file"]
        records = listed_records(file_bytes("schema.registry.file", path).decode("utf-8", "replace"), path)
    else:
        records = list(sources.records(options.get("schema.registry.topic", TOPIC)))
    found[_RECORDS] = json.dumps([[_text(key), _text(value)] for key, value in records])
    return found


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def store_of(options: Mapping[str, str]) -> SchemaStore:
    """Raises OptionError where the options name no store; SchemaRegistryError for records that are not a registry's."""
    if "schema.registry.url" in options:
        return _client(client_options(options))
    if _RECORDS in options:
        place = options.get("schema.registry.file") or f"the topic {options.get('schema.registry.topic', TOPIC)}"
        return _of_records(options[_RECORDS], place)
    if "schema.registry.file" in options:
        path = options["schema.registry.file"]
        text = file_bytes("schema.registry.file", path).decode("utf-8", "replace")
        return SchemaRecords(listed_records(text, path), path)
    raise OptionError(
        "nothing says where the schemas are",
        hint="schema.registry.url is a registry, schema.registry.file a file of it",
    )


def client_options(options: Mapping[str, str]) -> RegistryOptions:
    """How the registry of option `schema.registry.url` is reached."""
    ssl = "schema.registry.ssl."
    return RegistryOptions(
        tuple(url.strip() for url in options["schema.registry.url"].split(",") if url.strip()),
        options.get("schema.registry.basic.auth.user.info"),
        options.get("schema.registry.bearer.auth.token"),
        options.get(f"{ssl}ca.location"),
        options.get(f"{ssl}certificate.location"),
        options.get(f"{ssl}key.location"),
        options.get(f"{ssl}key.password"),
    )


@lru_cache(8)
def _client(options: RegistryOptions) -> RegistryClient:
    return RegistryClient(options)  # what it has asked is known to the next task of this process


@lru_cache(4)
def _of_records(text: str, place: str) -> SchemaRecords:
    pairs = json.loads(text)
    return SchemaRecords(
        [(None if k is None else k.encode(), None if v is None else v.encode()) for k, v in pairs], place
    )


def subject_schema(options: Mapping[str, str], store: SchemaStore) -> RegisteredSchema:
    """The schema that the values are read with, by the registry. Raises OptionError, SchemaRegistryError."""
    subject = options.get("subject")
    if subject is None:
        raise OptionError(
            "the read is of several topics, so nothing says with which schema their values are read",
            hint="option value.subject names a subject of the registry",
        )
    text = options.get("subject.version", "latest")
    if text != "latest" and not text.isdecimal():
        raise OptionError(f"option 'subject.version' is '{text}': expected a number, or latest")
    found = store.by_version(subject, None if text == "latest" else int(text))
    if found is None:
        raise SchemaRegistryError(
            f"{store.described} has no subject {subject}" + ("" if text == "latest" else f" of version {text}"),
            hint="option value.subject names another one",
        )
    return found
