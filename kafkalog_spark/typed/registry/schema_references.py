"""Schemas that a registered schema refers to."""

from __future__ import annotations

from kafkalog_spark.errors import OptionError
from kafkalog_spark.typed.registry.contexts import referenced_subject
from kafkalog_spark.typed.registry.schema_store import SchemaStore
from kafkalog_spark.typed.registry.schemas import RegisteredSchema

MAX_REFERENCES = 1000
"""Schemas that one schema may refer to, directly or not. Each costs a request; large systems have a few hundred."""


def resolve_references(schema: RegisteredSchema, store: SchemaStore) -> dict[str, RegisteredSchema]:
    """Return the schemas that a schema refers to, directly or not, by the name in the reference.

    Each comes after those that it refers to itself. Of several references with the same name the first one counts, as
    in Confluent's `resolveReferences`.

    Args:
        schema: The schema.
        store: Where the references are looked up.

    Raises:
        OptionError: If a reference does not exist, or there are more than MAX_REFERENCES.
        SchemaRegistryError: If a reference cannot be looked up.
    """
    resolved: dict[str, RegisteredSchema] = {}
    seen_names: set[str] = set()
    stack = [("", schema, iter(schema.references))]  # (name, schema, its references that are not resolved yet)
    while stack:
        name, current, references = stack[-1]
        reference = next(references, None)
        if reference is None:
            stack.pop()
            if stack:
                resolved[name] = current
        elif reference.name not in seen_names:
            seen_names.add(reference.name)
            subject = referenced_subject(reference.subject, current.subject)
            referenced = store.by_version(subject, reference.version)
            if referenced is None:
                raise OptionError(
                    f"schema {current.id} refers to version {reference.version} of {subject}, which "
                    f"{store.described} does not have"
                )
            if len(seen_names) > MAX_REFERENCES:
                raise OptionError(f"schema {schema.id} refers to more than {MAX_REFERENCES:,} others")
            stack.append((reference.name, referenced, iter(referenced.references)))
    return resolved
