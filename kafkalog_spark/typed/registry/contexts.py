"""Contexts of a schema registry: each has its own subjects and schema IDs (Confluent: `QualifiedSubject`)."""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_CONTEXT = "."


class QualifiedSubject(NamedTuple):
    """A subject and its context: `:.prod:orders-value` is `orders-value` in the context `.prod`.

    A subject without such a prefix is in the default context. An empty name stands for the whole context.
    """

    context: str
    name: str

    @classmethod
    def of(cls, subject: str) -> QualifiedSubject:
        if not subject.startswith(":."):
            return cls(DEFAULT_CONTEXT, subject)
        context, _, name = subject[1:].partition(":")
        return cls(context, name)

    def __str__(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"


def referenced_subject(subject: str, parent: str) -> str:
    """The subject of a reference: in the context of its parent unless it names one (`qualifySubjectWithParent`)."""
    own = QualifiedSubject.of(subject)
    return str(own if own.context != DEFAULT_CONTEXT else own._replace(context=QualifiedSubject.of(parent).context))


def subject_of_ids(subject: str | None, side: str) -> str:
    """The subject with which Confluent's deserializers look up the IDs in values. subject: the one of the read.

    It is the same subject if TopicNameStrategy makes it (`TOPIC-value`, `TOPIC-key`). With other strategies the values
    of a topic have several subjects, so it is the context alone.
    """
    given = QualifiedSubject.of(subject or "")
    return str(given if given.name.endswith(f"-{side}") else given._replace(name=""))
