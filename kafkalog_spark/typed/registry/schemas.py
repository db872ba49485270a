"""What schema registries know: schemas with ids, and the versions of subjects that they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"


@dataclass(frozen=True)
class Reference:
    """A schema that another one names: as `name` (an Avro type, a .proto file), registered as a version of a
    subject."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class RegisteredSchema:
    """One schema. `kind`: AVRO, PROTOBUF or JSON; `guid`: its id of newer registries, in small letters."""

    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    subject: str = ""
    version: int = 0
    guid: str = ""

    @classmethod
    def of_json(cls, found: Mapping[str, Any], id_: int | None = None) -> RegisteredSchema:
        """From what a registry answers, and keeps in its topic: AVRO is not said. Raises KeyError, TypeError and
        ValueError for what it is not."""
        references = tuple(
            Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in found.get("references") or ()
        )
        return cls(
            int(found["id"]) if id_ is None else id_,
            str(found.get("schemaType") or AVRO),
            str(found["schema"]),
            references,
            str(found.get("subject") or ""),
            int(found.get("version") or 0),
            str(found.get("guid") or "").lower(),
        )


class SchemaStore(Protocol):
    """Where schemas come from. None: there is no such schema. Raises SchemaRegistryError when that cannot be known."""

    def by_id(self, id_: int) -> RegisteredSchema | None: ...

    def by_guid(self, guid: str) -> RegisteredSchema | None: ...

    def by_version(self, subject: str, version: int | None) -> RegisteredSchema | None:
        """version None: the latest."""
        ...

    @property
    def described(self) -> str:
        """Where this is, in a sentence."""
        ...
