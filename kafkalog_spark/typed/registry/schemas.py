"""Schemas of a registry, with their ids, the subjects and versions that they are, and what they refer to: by the
records of its topic, and by its REST interface, as Confluent documents it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
