"""Client quotas: which quota holds for a client, the rates recorded under it, throttle times, and handlers that keep to
them."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha512
from typing import Any, NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Api
from kafkalog_broker.protocol.frames import with_throttle_time
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.fair_scheduling import timed

DEFAULT = ""  # the name that stands for everybody who has no quota of their own: real names are never empty

PRODUCER, CONSUMER, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATION, CONNECTION = "controller_mutation_rate", "connection_creation_rate"

CLIENT_KEYS: Mapping[str, str] = {CONSUMER: "LONG", MUTATION: "DOUBLE", REQUEST: "DOUBLE", PRODUCER: "LONG"}
"""The quotas of users and clients, and Kafka's words for what numbers they may be, in the order in which Kafka
describes up to three of them: that of Java's HashMap."""

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
        """Type to name, as in the protocol; None for the default."""
        names = zip(TYPES, self, strict=True)
        return {kind: name or None for kind, name in names if name is not None}


TYPES = ("user", "client-id", "ip")  # the protocol's words for Entity's fields

Quotas = Mapping[Entity, Mapping[str, float]]
Holder = tuple[str | None, str | None]
"""Clients that share a quota: those of a user, of a client id, or of a client id of a user."""


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


# How much in which time, as Kafka's org.apache.kafka.common.metrics.stats and QuotaUtils reckon it. Times are ms of a
# clock that only rises.

MAX_THROTTLE_MS = 2**31 - 1  # largest throttle_time_ms, an int32: 25 days. No client has to wait longer.


def _whole_ms(wait_ms: float) -> int:
    return math.floor(min(wait_ms, MAX_THROTTLE_MS) + 0.5)


@dataclass(frozen=True, slots=True)
class Windows:
    """quota.window.num and quota.window.size.seconds, or those of controller.quota."""

    count: int
    ms: int


class Rate:
    """Recorded values of the last windows, a second. (Kafka's Rate over a WindowedSum.)"""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[list[float]] = deque(maxlen=windows.count + 1)  # start, last event, sum

    def record(self, value: float, now_ms: int) -> None:
        """A negative value takes back what was recorded."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._windows.ms:
            samples.append([now_ms, now_ms, 0.0])
        last = samples[-1]
        last[1] = now_ms
        last[2] += value

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The rate, and over how many ms: of windows that are not there yet, but for the current one, all count."""
        samples, windows = self._samples, self._windows
        while samples and now_ms - samples[0][1] >= windows.count * windows.ms:
            samples.popleft()
        elapsed = now_ms - int(samples[0][0]) if samples else 0
        missing = windows.count - 1 - elapsed // windows.ms
        if missing > 0:
            elapsed += missing * windows.ms
        elapsed = max(elapsed, 1)
        return sum(sample[2] for sample in samples) / (elapsed / 1000), elapsed

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long to wait until the rate is at `limit` when nothing comes; 0 while it is not above it."""
        rate, over_ms = self.measure(now_ms)
        return _whole_ms((rate - limit) / limit * over_ms) if rate > limit else 0


class TokenBucket:
    """Tokens come at the rate of the limit, up to those of all windows; what is done takes some, also more than there
    are (KIP-599)."""

    __slots__ = ("_at_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._at_ms: int | None = None
        self._tokens = 0.0

    def tokens(self, limit: float, now_ms: int) -> float:
        """Tokens that are left; below 0 more was done than allowed."""
        full = limit * self._windows.count * self._windows.ms / 1000
        if self._at_ms is None:
            self._tokens = full
        else:
            self._tokens = min(full, self._tokens + (now_ms - self._at_ms) * limit / 1000)
        self._at_ms = now_ms
        return self._tokens

    def record(self, value: float, limit: float, now_ms: int) -> None:
        self.tokens(limit, now_ms)
        self._tokens = min(limit * self._windows.count * self._windows.ms / 1000, self._tokens - value)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        tokens = self.tokens(limit, now_ms)
        return _whole_ms(-tokens / limit * 1000) if tokens < 0 else 0


KNOWN = 10_000
"""Clients, and what they have done, that are remembered: any client can make up ids. When there are more, the one that
was not seen for longest is forgotten. Users, whom nobody makes up, and addresses have tables of their own."""

LONGEST = 64  # characters of a name that is remembered as it is; of a longer one (client ids: up to 32 KB), a digest


def _brief(name: str) -> str:
    if len(name) <= LONGEST:
        return name
    return "sha512:" + sha512(name.encode("utf-8", "surrogatepass")).hexdigest()  # no client id that is kept is so long


@dataclass(frozen=True, slots=True)
class Client:
    """Sender of a request: the name in its principal, and the client id in its header."""

    user: str
    client_id: str

    @classmethod
    def of(cls, principal: str, client_id: str | None) -> Client:
        return cls(principal.partition(":")[2], client_id or "")

    @classmethod
    def of_request(cls, request: Request) -> Client:
        return cls.of(request.connection.principal, request.client_id)


class ClientQuotas:
    """now_ms: a clock that only rises. throttled, throttle_ms: how often, and for how long in all, by quota."""

    def __init__(self, windows: Windows, mutation_windows: Windows, now_ms: Callable[[], int]) -> None:
        self._windows, self._now_ms = windows, now_ms
        self.quotas: dict[Entity, Mapping[str, float]] = {}
        self.in_use: frozenset[str] = frozenset()  # the quotas that somebody has
        self._having: Counter[str] = Counter()  # entities, by quota
        keep = lru_cache(KNOWN)
        self._limit_of, self._any_limit_of = keep(self._find), keep(self._any_limit)
        self._rates = {kind: keep(lambda key, holder: Rate(windows)) for kind in ("client", "user", "ip")}
        self._buckets = {kind: keep(lambda holder: TokenBucket(mutation_windows)) for kind in ("client", "user")}
        self.throttled: Counter[str] = Counter()
        self.throttle_ms: Counter[str] = Counter()

    def use(self, quotas: Quotas) -> None:
        """From now on, instead of those there were."""
        self.quotas = {entity: dict(values) for entity, values in quotas.items() if values}
        self._having = Counter(key for values in self.quotas.values() for key in values)
        self._changed()

    def change(self, entity: Entity, values: Mapping[str, float]) -> None:
        """All quotas that an entity has from now on. What was done already counts under the new limits."""
        self._having.subtract(self.quotas.pop(entity, {}).keys())
        if values:
            self.quotas[entity] = dict(values)
            self._having.update(values.keys())
        self._changed()

    def _changed(self) -> None:
        self.in_use = frozenset(key for key, number in self._having.items() if number)
        self._limit_of.cache_clear()
        self._any_limit_of.cache_clear()

    def limits(self, principal: str, client_id: str | None) -> bool:
        """True if any quota holds for a client: one look-up for clients that were seen before, as most have none."""
        is_short = client_id is None or len(client_id) <= LONGEST
        return (self._any_limit_of if is_short else self._any_limit)(principal, client_id)

    def _any_limit(self, principal: str, client_id: str | None) -> bool:
        client = Client.of(principal, client_id)
        return any(self._find(key, client) is not None for key in self.in_use)

    def limit(self, key: str, client: Client) -> tuple[Holder, float] | None:
        """Holder and value of the quota that holds for a client; None without one."""
        if key not in self.in_use:
            return None
        return (self._limit_of if len(client.client_id) <= LONGEST else self._find)(key, client)

    def _find(self, key: str, client: Client) -> tuple[Holder, float] | None:
        for entity, holder in candidates(client.user, client.client_id):
            values = self.quotas.get(entity)
            if values is not None and key in values:
                return tuple(name and _brief(name) for name in holder), values[key]  # type: ignore[return-value]
        return None

    def record(self, key: str, client: Client, value: float) -> int:
        """Note bytes, or percents of a second; how many ms the client has to wait."""
        holds = self.limit(key, client)
        if holds is None:
            return 0
        holder, limit = holds
        now_ms, rate = self._now_ms(), self._rate(key, holder)
        rate.record(value, now_ms)
        wait_ms = rate.throttle_ms(limit, now_ms)
        if key == REQUEST:  # the others wait until the rate is what it should be; here a window is enough
            wait_ms = min(wait_ms, self._windows.ms)
        return self._noted(key, wait_ms)

    def record_fetch(self, client: Client, size: int) -> int:
        """Record a fetch response that is about to be sent; one that has to wait is not sent, and not counted."""
        wait_ms = self.record(CONSUMER, client, size)
        if wait_ms and (holds := self.limit(CONSUMER, client)) is not None:
            self._rate(CONSUMER, holds[0]).record(-size, self._now_ms())
        return wait_ms

    def fetch_bytes(self, client: Client) -> int | None:
        """Bytes of a response that can be sent at all: those allowed in all windows but the current; None: no quota."""
        holds = self.limit(CONSUMER, client)
        return None if holds is None else int(holds[1] * (self._windows.count - 1) * self._windows.ms / 1000)

    def _rate(self, key: str, holder: Holder) -> Rate:
        return self._rates["user" if holder[1] is None else "client"](key, holder)

    def mutate(self, client: Client, partitions: int, *, refuses: bool = True) -> bool:
        """Note that so many partitions are made or removed, unless too many were before (then False). refuses: False
        for a client that cannot be refused."""
        holds = self.limit(MUTATION, client)
        if holds is not None:
            bucket, limit, now_ms = self._bucket(holds[0]), holds[1], self._now_ms()
            if refuses and bucket.tokens(limit, now_ms) < 0:
                return False
            bucket.record(partitions, limit, now_ms)
        return True

    def mutation_wait_ms(self, client: Client) -> int:
        """How long the client has to wait until it may change something again."""
        holds = self.limit(MUTATION, client)
        wait_ms = 0 if holds is None else self._bucket(holds[0]).throttle_ms(holds[1], self._now_ms())
        return self._noted(MUTATION, wait_ms)

    def _bucket(self, holder: Holder) -> TokenBucket:
        return self._buckets["user" if holder[1] is None else "client"](holder)

    def connection(self, ip: str) -> int:
        """A connection comes from an address: 0, or how many ms it is kept before it is closed unserved."""
        quotas = (self.quotas.get(Entity(ip=name), {}) for name in (ip, DEFAULT))
        limit = next((values[CONNECTION] for values in quotas if CONNECTION in values), None)
        if limit is None:
            return 0
        now_ms, rate = self._now_ms(), self._rates["ip"](CONNECTION, (ip, None))
        rate.record(1, now_ms)
        wait_ms = min(rate.throttle_ms(limit, now_ms), self._windows.ms)
        if wait_ms:
            rate.record(-1, now_ms)
        return self._noted(CONNECTION, wait_ms)

    def _noted(self, key: str, wait_ms: int) -> int:
        if wait_ms > 0:
            self.throttled[key] += 1
            self.throttle_ms[key] += wait_ms
        return wait_ms


# Handlers that keep to the quotas: they take the place of the others while there are any.
#
# As in Kafka a request is handled first, and then its client has to wait: the answer, which comes at once, says how
# long, and the connection is muted for that time (KIP-219). Fetch looks for itself whether its answer may be sent.
#
# controller_mutation_rate (KIP-599): a topic is charged for partitions that are made and removed once its name, the
# rights and all else were checked, as in ReplicationControlManager: what is refused for another reason costs nothing,
# and the quota gives nothing away.

STRICT_FROM: Mapping[int, int] = {19: 6, 20: 5, 37: 3}
"""CreateTopics, DeleteTopics, CreatePartitions: the first version whose clients know THROTTLING_QUOTA_EXCEEDED and are
refused what goes beyond, topic by topic; others are served, and wait."""

PRODUCE = 0
UNTHROTTLED = frozenset({17, 36})  # SaslHandshake and SaslAuthenticate: it is not known yet who asks


def throttled(quotas: ClientQuotas, api: Api) -> Api:
    return api if api.key in UNTHROTTLED else replace(api, handler=partial(_handle, quotas, api))


def _handle(quotas: ClientQuotas, api: Api, request: Request, broker: Any) -> Any:
    """Result of the handler, without a coroutine for clients that have no quota."""
    if quotas.limits(request.connection.principal, request.client_id):
        return _handle_limited(quotas, api, request, broker)
    return api.handler(request, broker)


async def _handle_limited(quotas: ClientQuotas, api: Api, request: Request, broker: Any) -> Any:
    client = Client.of_request(request)
    wait_ms = 0
    mutates = api.key in STRICT_FROM and MUTATION in quotas.in_use
    if mutates:
        request.charge = partial(_charge, quotas, client, request.version >= STRICT_FROM[api.key])
    handled = _answered(api, request, broker)
    if REQUEST in quotas.in_use:
        spent: list[float] = []
        response = await timed(handled, spent.append)
        if response is not None:  # without an answer nobody can be told to wait: as in Kafka such requests are free
            wait_ms = quotas.record(REQUEST, client, sum(spent) * 100)
    else:
        response = await handled
    if api.key == PRODUCE:
        wait_ms = max(wait_ms, quotas.record(PRODUCER, client, request.size))
    if mutates:
        wait_ms = max(wait_ms, quotas.mutation_wait_ms(client))
    if not wait_ms:
        return response
    request.connection.mute(wait_ms / 1000)
    return None if response is None else with_throttle_time(response, wait_ms)


async def _answered(api: Api, request: Request, broker: Any) -> Any:
    """Answers that are an error as a whole cost as much, and wait, as others (KafkaApis.handleError)."""
    try:
        return await api.handled(request, broker)
    except BrokerError as error:
        answer = await api.failed(request, error.code)
        if answer is None:
            raise
        return answer


def _charge(quotas: ClientQuotas, client: Client, refuses: bool, partitions: int) -> None:
    if not quotas.mutate(client, partitions, refuses=refuses):
        raise BrokerError(ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded.")
