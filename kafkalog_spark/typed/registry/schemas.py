"""Schemas of a registry, in the form of its topic and of its REST interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"


@dataclass(frozen=True)
class Reference:
    """A schema that another schema refers to: a registered version of a subject."""

    name: str  # name in the other schema: an Avro type or a .proto file
    subject: str
    version: int


@dataclass(frozen=True)
class RegisteredSchema:
    """A registered schema."""

    id: int
    kind: str  # AVRO, PROTOBUF or JSON
    text: str
    references: tuple[Reference, ...] = ()
    subject: str = ""
    version: int = 0
    guid: str = ""  # lower case; older registries have none

    @classmethod
    def of_json(cls, json_: Mapping[str, Any], id_: int | None = None) -> RegisteredSchema:
        """Parse the JSON of a registry's response or record.

        Args:
            json_: The JSON object. A missing `schemaType` means AVRO.
            id_: ID of the schema; None if `json_` contains it.

        Raises:
            KeyError, TypeError, ValueError: If the object does not describe a schema.
        """
        references = tuple(
            Reference(str(reference["name"]), str(reference["subject"]), int(reference["version"]))
            for reference in json_.get("references") or ()
        )
        return cls(
            int(json_["id"]) if id_ is None else id_,
            str(json_.get("schemaType") or AVRO),
            str(json_["schema"]),
            references,
            str(json_.get("subject") or ""),
            int(json_.get("version") or 0),
            str(json_.get("guid") or "").lower(),
        )
