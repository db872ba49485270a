"""Parser of files with the schemas of a registry (option `schema.registry.file`)."""

from __future__ import annotations

import json
from typing import Any

from kafkalog_spark.errors import SchemaRegistryError
from kafkalog_spark.typed.registry.schema_records import Record


def listed_records(text: str, origin: str) -> list[Record]:
    """Return the schemas in a file as records of a registry's topic.

    Args:
        text: The response of a registry to `GET /schemas`, or one record of `_schemas` per line: {"key": ...,
            "value": ...}, or the key and the value separated by a tab.
        origin: Name of the file, for errors.

    Raises:
        SchemaRegistryError: If the text has none of these forms.
    """
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
            f"{origin} is not a list of schemas: {type(error).__name__}: {error}",
            hint="save the response of a registry to GET /schemas, or the records of its topic, one per line",
        ) from error


def _bytes(value: Any) -> bytes:
    return (value if isinstance(value, str) else json.dumps(value)).encode()
