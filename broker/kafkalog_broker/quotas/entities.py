"""Whom a quota is for, and which of several quotas holds for a client (Kafka's ClientQuotaManager)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

DEFAULT = ""
"""The name that stands for everybody who has no quota of their own: real names are never empty."""

PRODUCER, CONSUMER, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATION, CONNECTION = "controller_mutation_rate", "connection_creation_rate"

CLIENT_KEYS: Mapping[str, str] = {PRODUCER: "LONG", CONSUMER: "LONG", REQUEST: "DOUBLE", MUTATION: "DOUBLE"}
"""The quotas of users and clients, and Kafka's words for what numbers they may be."""

IP_KEYS: Mapping[str, str] = {CONNECTION: "INT"}


class Entity(NamedTuple):
    """user, client_id, ip: None where the entity does not say anything of it, DEFAULT for its default."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def keys(self) -> Mapping[str, str]:
        """The quotas that it may have."""
        return CLIENT_KEYS if self.ip is None else IP_KEYS

    def named(self) -> dict[str, str | None]:
        """As the protocol has it: type to name, None for the default."""
        names = zip(TYPES, self, strict=True)
        return {kind: name or None for kind, name in names if name is not None}


TYPES = ("user", "client-id", "ip")
"""The protocol's words for Entity's fields."""

Quotas = Mapping[Entity, Mapping[str, float]]
Holder = tuple[str | None, str | None]
"""Who shares what a quota allows: a user, a client id, or a client id of a user."""


def entity_of(named: Mapping[str, str | None]) -> Entity:
    """The reverse of Entity.named."""
    user, client_id, ip = (DEFAULT if kind in named and named[kind] is None else named.get(kind) for kind in TYPES)
    return Entity(user, client_id, ip)


def candidates(user: str, client_id: str) -> Iterator[tuple[Entity, Holder]]:
    """The entities that may hold for a client, the one that takes precedence first, and who shares its quota."""
    for of_user in (user, DEFAULT):
        for of_client in (client_id, DEFAULT):
            yield Entity(of_user, of_client), (user, client_id)
        yield Entity(of_user), (user, None)
    for of_client in (client_id, DEFAULT):
        yield Entity(None, of_client), (None, client_id)
