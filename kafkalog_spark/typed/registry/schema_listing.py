"""Listing."""

from __future__ import annotations

import json
from typing import Any

from kafkalog_spark.errors import SchemaRegistryError
from kafkalog_spark.typed.registry.schema_records import Record


def listed_records(text: str, place: str) -> list[Record]:
    """The records of a file: a list of schemas as a registry answers `GET /schemas`, or one record of `_schemas` a
    line, {"key": ..., "value": ...}, or its key and value with a tab between them. Raises SchemaRegistryError."""
    try:
        if text.lstrip()[:1] == "[":
            keys = ("subject", "version")
            return [
                (_bytes({"keytype": "SCHEMA", **{key: listed[key] for key in keys}}), _bytes(listed))
                for listed in json.loads(text)
            ]
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


def _bytes(value: Any) -> bytes:
    return (value if isinstance(value, str) else json.dumps(value)).encode()
