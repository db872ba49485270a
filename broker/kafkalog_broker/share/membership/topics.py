"""The topics of the broker, as share groups look at them."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID


class KnownTopic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def id(self) -> UUID: ...
    @property
    def partitions(self) -> int: ...


class Topics(Protocol):
    """The topics that there are."""

    def get(self, name: str, /) -> KnownTopic | None: ...

    def by_id(self, topic_id: UUID, /) -> KnownTopic | None: ...
