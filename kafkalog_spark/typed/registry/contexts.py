"""Contexts of a schema registry: namespaces of subjects and schema IDs (Confluent: `QualifiedSubject`)."""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_CONTEXT = "."


class QualifiedSubject(NamedTuple):
    """A subject and its context: `:.prod:orders-value` is `orders-value` in the context `.prod`.

    A subject without such a prefix is in the default context. An empty name stands for the context as a whole.
    """

    context: str
    name: str

    @classmethod
    def of(cls, subject: str) -> QualifiedSubject:
        """Parse a subject with or without a context."""
        if not subject.startswith(":."):
            return cls(DEFAULT_CONTEXT, subject)
        context, _, name = subject[1:].partition(":")
        return cls(context, name)

    def __str__(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"


def referenced_subject(subject: str, parent: str) -> str:
    """Return the qualified subject of a reference (Confluent: `qualifySubjectWithParent`).

    Args:
        subject: Subject in the reference. If it names no context, it is in the context of `parent`.
        parent: Subject of the schema that contains the reference.
    """
    qualified = QualifiedSubject.of(subject)
    if qualified.context == DEFAULT_CONTEXT:
        qualified = qualified._replace(context=QualifiedSubject.of(parent).context)
    return str(qualified)


def subject_of_ids(subject: str | None, side: str) -> str:
    """Return the subject that Confluent's deserializers send with a request for a schema ID.

    It is `subject` if its name has the form of TopicNameStrategy (`TOPIC-value`, `TOPIC-key`). With other strategies
    the values of a topic have several subjects, so the result names only the context.

    Args:
        subject: Subject of the reader schema.
        side: "value" or "key".
    """
    qualified = QualifiedSubject.of(subject or "")
    return str(qualified if qualified.name.endswith(f"-{side}") else qualified._replace(name=""))
