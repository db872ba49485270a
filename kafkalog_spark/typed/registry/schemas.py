"""Schemas of a registry, with their ids, the subjects and versions that they are, and the schemas they refer to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kafkalog_spark.errors import OptionError

MOST_REFERENCES = 1000
"""Schemas that one stands on, which are as many requests: large systems have some hundred .proto files."""
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


def referenced(schema: RegisteredSchema, store: SchemaStore) -> dict[str, RegisteredSchema]:
    """What a schema refers to, and what that does, by name: each after those that it refers to itself. Of two by one
    name the first counts, as in Confluent's `resolveReferences`.

    Raises OptionError for one that the store does not have; SchemaRegistryError when that cannot be known.
    """
    found: dict[str, RegisteredSchema] = {}
    seen: set[str] = set()
    open_ = [("", schema, iter(schema.references))]
    while open_:
        name, one, left = open_[-1]
        reference = next(left, None)
        if reference is None:
            open_.pop()
            if open_:
                found[name] = one
        elif reference.name not in seen:
            seen.add(reference.name)
            below = store.by_version(reference.subject, reference.version)
            if below is None:
                raise OptionError(
                    f"schema {one.id} refers to version {reference.version} of {reference.subject}, which "
                    f"{store.described} does not have"
                )
            if len(seen) > MOST_REFERENCES:
                raise OptionError(f"schema {schema.id} refers to more than {MOST_REFERENCES:,} others")
            open_.append((reference.name, below, iter(below.references)))
    return found
