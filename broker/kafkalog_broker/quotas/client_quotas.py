"""Quotas that apply to each client, and the throttle time of a client that exceeds them (Kafka's
ClientQuotaManagers)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha512
from typing import NamedTuple

from kafkalog_broker.protocol.request import Request
from kafkalog_broker.quotas.quota_entity import CONNECTION, CONSUMER, DEFAULT, MUTATION, REQUEST, Entity, Quotas
from kafkalog_broker.quotas.rates import Rate, TokenBucket, Windows

MAX_CACHED_CLIENTS = 10_000
"""Capacity of each LRU cache of clients. Clients choose their client ids, so the caches are bounded, and users and
addresses have separate caches that made-up client ids cannot flush."""

MAX_CACHED_NAME = 64
"""Longest name, in characters, that is kept in a cache; a longer one (client ids have up to 32 KB) is replaced by a
digest or not cached."""


@dataclass(frozen=True, slots=True)
class Client:
    """Sender of a request: the name in its principal, and the client id in the request header."""

    user: str
    client_id: str

    @classmethod
    def of(cls, principal: str, client_id: str | None) -> Client:
        return cls(principal.partition(":")[2], client_id or "")

    @classmethod
    def of_request(cls, request: Request) -> Client:
        return cls.of(request.connection.principal, request.client_id)


class RateKey(NamedTuple):
    """The clients that share one rate: all of a user, all with a client id, or those of a user with a client id."""

    user: str | None
    client_id: str | None


class AppliedQuota(NamedTuple):
    """The quota that applies to a client, and the clients with which it shares the rate."""

    rate_key: RateKey
    limit: float


class ClientQuotas:
    """The quotas of all entities, and the rates recorded under them. Not thread-safe; call from the event loop.

    Attributes:
        quotas: Current quotas by entity; changed only by `replace_all` and `change`.
        in_use: The quotas that at least one entity has.
        throttled: Number of throttled requests or connections by quota.
        throttle_ms: Sum of their throttle times by quota.
    """

    def __init__(self, windows: Windows, mutation_windows: Windows, now_ms: Callable[[], int]) -> None:
        """Create with no quotas. `now_ms` is a monotonic clock."""
        self._windows, self._now_ms = windows, now_ms
        self.quotas: dict[Entity, Mapping[str, float]] = {}
        self.in_use: frozenset[str] = frozenset()
        self._entity_counts: Counter[str] = Counter()  # number of entities with each quota
        cached = lru_cache(MAX_CACHED_CLIENTS)
        self._find_cached, self._has_any_cached = cached(self._find), cached(self._has_any)
        # One Rate per quota and RateKey. A Rate that the cache has evicted starts again from zero.
        self._rates = {kind: cached(lambda quota, rate_key: Rate(windows)) for kind in ("client", "user", "ip")}
        self._buckets = {kind: cached(lambda rate_key: TokenBucket(mutation_windows)) for kind in ("client", "user")}
        self.throttled: Counter[str] = Counter()
        self.throttle_ms: Counter[str] = Counter()

    def replace_all(self, quotas: Quotas) -> None:
        """Replace the quotas of all entities."""
        self.quotas = {entity: dict(values) for entity, values in quotas.items() if values}
        self._entity_counts = Counter(quota for values in self.quotas.values() for quota in values)
        self._quotas_changed()

    def change(self, entity: Entity, values: Mapping[str, float]) -> None:
        """Replace all quotas of one entity. Values that were recorded before count against the new limits."""
        self._entity_counts.subtract(self.quotas.pop(entity, {}).keys())
        if values:
            self.quotas[entity] = dict(values)
            self._entity_counts.update(values.keys())
        self._quotas_changed()

    def _quotas_changed(self) -> None:
        self.in_use = frozenset(quota for quota, count in self._entity_counts.items() if count)
        self._find_cached.cache_clear()
        self._has_any_cached.cache_clear()

    def has_any(self, principal: str, client_id: str | None) -> bool:
        """Return whether any quota applies to a client. Cached, because most clients have none."""
        is_short = client_id is None or len(client_id) <= MAX_CACHED_NAME
        return (self._has_any_cached if is_short else self._has_any)(principal, client_id)

    def _has_any(self, principal: str, client_id: str | None) -> bool:
        client = Client.of(principal, client_id)
        return any(self._find(quota, client) is not None for quota in self.in_use)

    def quota_of(self, quota: str, client: Client) -> AppliedQuota | None:
        """Return the quota that applies to a client; None if no entity with this quota matches it."""
        if quota not in self.in_use:
            return None
        return (self._find_cached if len(client.client_id) <= MAX_CACHED_NAME else self._find)(quota, client)

    def _find(self, quota: str, client: Client) -> AppliedQuota | None:
        for entity, rate_key in _candidates(client.user, client.client_id):
            values = self.quotas.get(entity)
            if values is not None and quota in values:
                return AppliedQuota(RateKey(_shortened(rate_key.user), _shortened(rate_key.client_id)), values[quota])
        return None

    def record(self, quota: str, client: Client, value: float) -> int:
        """Record bytes, or for REQUEST a percentage of a second, and return the throttle time of the client in ms."""
        applied = self.quota_of(quota, client)
        if applied is None:
            return 0
        now_ms, rate = self._now_ms(), self._rate(quota, applied.rate_key)
        rate.record(value, now_ms)
        wait_ms = rate.throttle_ms(applied.limit, now_ms)
        if quota == REQUEST:  # Kafka bounds the throttle time of this quota by one window
            wait_ms = min(wait_ms, self._windows.ms)
        return self._count_throttled(quota, wait_ms)

    def record_fetch(self, client: Client, size: int) -> int:
        """Record a fetch response of `size` bytes before it is sent, and return the throttle time in ms.

        A throttled response is not sent with records, so its bytes are taken back.
        """
        wait_ms = self.record(CONSUMER, client, size)
        if wait_ms and (applied := self.quota_of(CONSUMER, client)) is not None:
            self._rate(CONSUMER, applied.rate_key).record(-size, self._now_ms())
        return wait_ms

    def fetch_bytes(self, client: Client) -> int | None:
        """Return the largest fetch response that the quota can ever allow: the bytes of all windows but the current
        one. None without a quota."""
        applied = self.quota_of(CONSUMER, client)
        return None if applied is None else int(applied.limit * (self._windows.count - 1) * self._windows.ms / 1000)

    def record_connection(self, ip: str) -> int:
        """Record a connection from an address.

        Returns:
            0, or the time in ms for which the connection is held before it is closed without being served. A held
            connection does not count.
        """
        quotas = (self.quotas.get(Entity(ip=name), {}) for name in (ip, DEFAULT))
        limit = next((values[CONNECTION] for values in quotas if CONNECTION in values), None)
        if limit is None:
            return 0
        now_ms, rate = self._now_ms(), self._rates["ip"](CONNECTION, ip)
        rate.record(1, now_ms)
        wait_ms = min(rate.throttle_ms(limit, now_ms), self._windows.ms)
        if wait_ms:
            rate.record(-1, now_ms)
        return self._count_throttled(CONNECTION, wait_ms)

    def _rate(self, quota: str, rate_key: RateKey) -> Rate:
        return self._rates["user" if rate_key.client_id is None else "client"](quota, rate_key)

    def charge_mutation(self, client: Client, partitions: int, *, may_refuse: bool = True) -> bool:
        """Charge a client for creating or deleting partitions (controller mutations, KIP-599).

        Args:
            may_refuse: False to charge even if the quota is already exceeded, for clients that do not know
                THROTTLING_QUOTA_EXCEEDED.

        Returns:
            False if the quota was already exceeded; then nothing is charged.
        """
        applied = self.quota_of(MUTATION, client)
        if applied is not None:
            bucket, now_ms = self._bucket(applied.rate_key), self._now_ms()
            if may_refuse and bucket.tokens(applied.limit, now_ms) < 0:
                return False
            bucket.record(partitions, applied.limit, now_ms)
        return True

    def mutation_wait_ms(self, client: Client) -> int:
        """Return the time until the client may create or delete partitions again."""
        applied = self.quota_of(MUTATION, client)
        wait_ms = 0 if applied is None else self._bucket(applied.rate_key).throttle_ms(applied.limit, self._now_ms())
        return self._count_throttled(MUTATION, wait_ms)

    def _bucket(self, rate_key: RateKey) -> TokenBucket:
        return self._buckets["user" if rate_key.client_id is None else "client"](rate_key)

    def _count_throttled(self, quota: str, wait_ms: int) -> int:
        if wait_ms > 0:
            self.throttled[quota] += 1
            self.throttle_ms[quota] += wait_ms
        return wait_ms


def _candidates(user: str, client_id: str) -> Iterator[tuple[Entity, RateKey]]:
    """Yield entities whose quota may apply to a client, in order of precedence, each with the key of its rate."""
    for entity_user in (user, DEFAULT):
        for entity_client_id in (client_id, DEFAULT):
            yield Entity(entity_user, entity_client_id), RateKey(user, client_id)
        yield Entity(entity_user), RateKey(user, None)
    for entity_client_id in (client_id, DEFAULT):
        yield Entity(None, entity_client_id), RateKey(None, client_id)


def _shortened(name: str | None) -> str | None:
    if name is None or len(name) <= MAX_CACHED_NAME:
        return name
    # Longer than MAX_CACHED_NAME, so it cannot be equal to a name that is kept as it is.
    return "sha512:" + sha512(name.encode("utf-8", "surrogatepass")).hexdigest()
