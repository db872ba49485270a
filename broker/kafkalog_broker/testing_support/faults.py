"""Faults that a test asks for: which requests they concern, and how often. Decisions only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Api
from kafkalog_broker.protocol.codec import api_name

FETCH, METADATA = 1, 3

BY_LOG = frozenset({0, FETCH, 2, 21, 23, 61})
"""Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeProducers: an error is met where the log of
a partition is looked for, so it can be that of one topic."""

BY_TOPICS = frozenset({8, 19, 28})
"""OffsetCommit, CreateTopics, TxnOffsetCommit: what a request says of one topic can be answered apart from the rest."""


class FaultError(ValueError):
    """A fault that cannot be."""


class Drop(Enum):
    """The connection is closed instead of an answer."""

    BEFORE = "before"  # nothing has happened
    AFTER = "after"  # the request was carried out: a client that tries again does it twice


@dataclass(slots=True)
class InjectedFault:
    """api_key: None: any. topic, client_id: of whom; None: of all. error, delay_ms, drop: what happens. skip: requests
    that are still let through. times: how many are met after that; None: all. met: how many were."""

    api_key: int | None
    topic: str | None = None
    client_id: str | None = None
    error: ErrorCode | None = None
    delay_ms: int = 0
    drop: Drop | None = None
    skip: int = 0
    times: int | None = 1
    met: int = 0

    def take(self) -> bool:
        """A request that it concerns has come; whether the fault happens to it."""
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.is_over:
            return False
        self.met += 1
        return True

    @property
    def is_over(self) -> bool:
        return self.times is not None and self.met >= self.times


class Faults:
    """By number, in the order in which they were asked for. A request is met by the first that concerns it."""

    def __init__(self, apis: Mapping[int, Api]) -> None:
        self._apis = apis
        self._numbers = 0
        self.all: dict[int, InjectedFault] = {}

    @property
    def are_waiting(self) -> bool:
        """True if any of them can still happen."""
        return any(not fault.is_over for fault in self.all.values())

    def add(self, asked: Mapping[str, Any]) -> int:
        """asked: as `remote.Faults.add` says. Raises FaultError for what cannot be."""
        fault = self._read(asked)
        self._numbers += 1
        self.all[self._numbers] = fault
        return self._numbers

    def waiting(self, api_key: int, client_id: str | None) -> list[InjectedFault]:
        """Faults that may happen to a request, by its header."""
        return [
            fault
            for fault in self.all.values()
            if not fault.is_over
            and fault.api_key in (None, api_key)
            and (fault.client_id is None or fault.client_id == client_id)
        ]

    def _read(self, asked: Mapping[str, Any]) -> InjectedFault:
        api, names = asked.get("api"), {api_name(key): key for key in self._apis}
        key = next((names[name] for name in names if api is not None and name.lower() == api.lower()), None)
        if api is not None and key is None:
            raise FaultError(f"there is no API {api!r}: {', '.join(sorted(names))}")
        error, drop = asked.get("error"), asked.get("drop")
        if drop is not None and drop not in [one.value for one in Drop]:
            raise FaultError(f"drop is 'before' or 'after', not {drop!r}")
        fault = InjectedFault(
            key, asked.get("topic"), asked.get("client_id"),
            None if error is None else ErrorCode(error),
            int(asked.get("delay_ms") or 0),
            None if drop is None else Drop(drop),
            int(asked.get("skip") or 0), asked.get("times"),
        )  # fmt: skip
        self._check(fault)
        return fault

    def _check(self, fault: InjectedFault) -> None:
        if fault.error is None and not fault.delay_ms and fault.drop is None:
            raise FaultError("a fault is an error, a delay or a drop")
        if fault.error is not None and fault.drop is not None:
            raise FaultError("a connection that is dropped has no answer with an error")
        key, name = fault.api_key, fault.topic
        if fault.error is not None:
            if key is None:
                raise FaultError("an error needs an API: what others are answered looks different")
            if name is None and key == METADATA:
                raise FaultError("an error of Metadata is that of a topic")
            if name is not None and key not in BY_LOG | BY_TOPICS | {METADATA}:
                raise FaultError(f"an error of {api_name(key)} is that of the whole request: leave `topic` out")
        elif key == FETCH and name is not None:
            raise FaultError("a Fetch names its topics only at the beginning of a session: leave `topic` out")


def names_topic(entity: Any, topic: str, topic_id: Any) -> bool:
    """True if a request, kio's or Produce's own, names the topic anywhere: by name, or by its id."""
    if isinstance(entity, str):
        return entity == topic
    if isinstance(entity, list | tuple):
        return any(names_topic(one, topic, topic_id) for one in entity)
    if is_dataclass(entity):
        return any(names_topic(getattr(entity, one.name), topic, topic_id) for one in fields(entity))
    if hasattr(entity, "topics"):  # Produce's own
        return any(names_topic(name, topic, topic_id) for name, _ in entity.topics)
    return topic_id is not None and bool(entity == topic_id)
