"""Entities that have quotas (Kafka's ClientQuotaEntity), and the quotas that each type of entity may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

DEFAULT = ""
"""Name of a default entity, whose quota applies to every user, client or address without its own. Real names are never
empty."""

PRODUCER, CONSUMER, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATION, CONNECTION = "controller_mutation_rate", "connection_creation_rate"

CLIENT_KEYS: Mapping[str, str] = {CONSUMER: "LONG", MUTATION: "DOUBLE", REQUEST: "DOUBLE", PRODUCER: "LONG"}
"""Quotas of users and client ids, with Kafka's type of each value. Kafka describes up to three of them in this order,
which is that of its HashMap."""

IP_KEYS: Mapping[str, str] = {CONNECTION: "INT"}

TYPES = ("user", "client-id", "ip")  # entity types of the protocol, in the order of Entity's fields


class Entity(NamedTuple):
    """A user, a client id, a client id of a user, or an IP address.

    A field is None if it is not part of the entity, and DEFAULT for the default entity of that type.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @classmethod
    def from_named(cls, named: Mapping[str, str | None]) -> Entity:
        """Return the entity with these names by entity type, as `named` returns them."""
        user, client_id, ip = (DEFAULT if kind in named and named[kind] is None else named.get(kind) for kind in TYPES)
        return cls(user, client_id, ip)

    @property
    def keys(self) -> Mapping[str, str]:
        """The quotas that this entity may have."""
        return CLIENT_KEYS if self.ip is None else IP_KEYS

    def named(self) -> dict[str, str | None]:
        """Return the entity names by entity type, as in the protocol: a name of None is the default entity."""
        names = zip(TYPES, self, strict=True)
        return {kind: name or None for kind, name in names if name is not None}


Quotas = Mapping[Entity, Mapping[str, float]]  # by entity, the value of each quota
