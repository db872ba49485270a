"""Client instances that push metrics: what each is to push, and how often (Kafka's ClientMetricsManager). In memory
only, as in Kafka: a client that nobody knows is told UNKNOWN_SUBSCRIPTION_ID and asks for its subscription again."""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self
from uuid import UUID, uuid4

from crc32c import crc32c

from kafkalog_broker.config import group_properties
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer.re2_regexes import check_regex, matching_names
from kafkalog_broker.protocol.api_registry import ConnectionInfo, Request
from kafkalog_broker.runtime.workers import Workers
from kafkalog_spark.errors import KafkalogError

_logger = logging.getLogger(__name__)

# Subscription to client metrics: which metrics, how often, and of which clients.

ATTRIBUTES = (
    "client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address",
    "client_source_port",
)  # fmt: skip
"""Attributes by which clients are matched."""

MAX_SUBSCRIPTIONS = 200  # each client that asks for its subscription is compared with all of them


@dataclass(frozen=True, slots=True)
class Subscription:
    """`patterns`: by attribute, an expression of RE2 that its whole value matches."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, str]

    @classmethod
    def of(cls, overrides: Mapping[str, str]) -> Self:
        """Raises BrokerError (INVALID_CONFIG) and ConfigError."""
        names = (group_properties.METRICS, group_properties.INTERVAL_MS, group_properties.MATCH)
        metrics, interval_ms, match = (group_properties.client_metrics_value(name, overrides) for name in names)
        return cls(metrics, interval_ms, _patterns(match))

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """True if a client with these attributes is meant; without patterns all are."""
        return all(matching_names([pattern], [attributes[name]])[pattern] for name, pattern in self.patterns.items())


def check_subscription(name: str, overrides: Mapping[str, str]) -> None:
    """Raises BrokerError in Kafka's words (ClientMetricsConfigs.validate), and ConfigError for a value that is none."""
    if not name:
        raise BrokerError(ErrorCode.invalid_request, "Subscription name can't be empty")
    for unknown in overrides.keys() - group_properties.CLIENT_METRICS_PROPERTIES.keys():
        raise BrokerError(ErrorCode.invalid_request, f"Unknown client metrics configuration: {unknown}")
    subscription = Subscription.of(overrides)
    if subscription.interval_ms not in group_properties.INTERVALS_MS:
        raise BrokerError(
            ErrorCode.invalid_request,
            f"Invalid value {subscription.interval_ms} for interval.ms, interval must be between 100 and 3600000 "
            "(1 hour)",
        )


def _patterns(match: tuple[str, ...]) -> dict[str, str]:
    patterns = {}
    for text in match:
        parts = text.rstrip("=").split("=")  # as Java splits
        name = parts[0].strip()
        try:
            if len(parts) != 2 or name not in ATTRIBUTES:
                raise BrokerError(ErrorCode.invalid_config)
            patterns[name] = parts[1].strip()
            check_regex(patterns[name])
        except BrokerError:
            raise BrokerError(ErrorCode.invalid_config, f"Illegal client matching pattern: {text}") from None
    return patterns


MAX_INSTANCES = 4096
"""At most 2 kB each, and clients make up their ids. The one that was silent for longest goes. (Kafka: 16,384.)"""

MAX_OF_CONNECTION = 8
"""Instances that one connection has brought; the first one goes. A client has one, which a proxy may share."""

MAX_ATTRIBUTE = 200  # characters of a client's id, software name or version that are kept and matched

EXPIRY_MS = 60_000  # silence after which an instance is forgotten, if three of its intervals are not more

CODECS = range(5)  # CompressionType: none, gzip, snappy, lz4, zstd

ASK_ANEW = (ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type)


class ClientInstance:
    """subscriptions: the sources of its subscription; another object means that they have changed."""

    def __init__(
        self, instance_id: UUID, attributes: Mapping[str, str], subscriptions: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.id, self.attributes, self.subscriptions = instance_id, attributes, subscriptions
        matching = [entry for entry in map(Subscription.of, subscriptions.values()) if entry.matches(attributes)]
        names = {name for entry in matching for name in entry.metrics}
        self.metrics = [group_properties.ALL_METRICS] if group_properties.ALL_METRICS in names else sorted(names)
        # Longer ones than the default do not count, as in Kafka.
        self.interval_ms = min([group_properties.DEFAULT_INTERVAL_MS, *(entry.interval_ms for entry in matching)])
        told = f"[{', '.join(self.metrics)}]{self.interval_ms}"
        high, low = divmod(instance_id.int, 1 << 64)
        mixed = crc32c(told.encode()) ^ ((high ^ low) >> 32) ^ (high ^ low)  # Uuid.hashCode
        self.subscription_id = (mixed & 0xFFFFFFFF) - ((mixed & 0x80000000) << 1)
        self.last_get_ms = self.last_push_ms = 0
        self.is_terminating = False
        self.last_error = ErrorCode.none
        self.expires_ms = 0


class ClientInstances:
    """subscriptions: what is set for CLIENT_METRICS resources now; replaced with each change. receiver: None where
    nobody wants metrics, and ApiVersions does not tell of them."""

    def __init__(
        self, now_ms: Callable[[], int], max_bytes: int, subscriptions: Callable[[], Mapping[str, Mapping[str, str]]]
    ) -> None:
        self._now_ms, self.max_bytes, self._subscriptions = now_ms, max_bytes, subscriptions
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()
        self._of_connection: dict[int, dict[UUID, None]] = {}
        self.receiver: ClientMetrics | None = None

    def __len__(self) -> int:
        return len(self._instances)

    def get(self, request: Request) -> ClientInstance:
        """The instance that asks, with a new id where it has none. Raises BrokerError (THROTTLING_QUOTA_EXCEEDED)."""
        instance = self._instance(request.entity.client_instance_id or uuid4(), request)
        now_ms = self._now_ms()
        if now_ms - max(instance.last_get_ms, instance.last_push_ms) >= instance.interval_ms:
            instance.last_get_ms = now_ms
        elif instance.last_error not in ASK_ANEW:
            raise BrokerError(ErrorCode.throttling_quota_exceeded)
        instance.last_error = ErrorCode.none
        return instance

    def push(self, request: Request) -> ClientInstance:
        """The instance that pushes. Raises BrokerError where it may not, in Kafka's order."""
        asked = request.entity
        if asked.client_instance_id is None or asked.client_instance_id.int == 1:  # Uuid.RESERVED
            raise BrokerError(ErrorCode.invalid_request)
        instance = self._instance(asked.client_instance_id, request)
        instance.last_error = code = self._why_not(instance, asked)
        instance.is_terminating = asked.terminating
        if code is not ErrorCode.none:
            raise BrokerError(code)
        return instance

    def _why_not(self, instance: ClientInstance, asked: Any) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.invalid_request
        now_ms, last_ms = self._now_ms(), instance.last_push_ms
        # The first push after a get may come at any time, as clients spread theirs.
        if instance.last_get_ms > last_ms or now_ms - last_ms >= instance.interval_ms:
            instance.last_push_ms = now_ms
        elif not asked.terminating:
            return ErrorCode.throttling_quota_exceeded
        if asked.subscription_id != instance.subscription_id:
            return ErrorCode.unknown_subscription_id
        if asked.compression_type not in CODECS:
            return ErrorCode.unsupported_compression_type
        return ErrorCode.telemetry_too_large if len(asked.metrics) > self.max_bytes else ErrorCode.none

    def forget_silent(self) -> None:
        now_ms = self._now_ms()
        while self._instances:
            instance_id, instance = next(iter(self._instances.items()))
            if instance.expires_ms > now_ms and len(self._instances) <= MAX_INSTANCES:
                return
            self._forget(instance_id)

    def _instance(self, instance_id: UUID, request: Request) -> ClientInstance:
        subscriptions = self._subscriptions()
        instance = self._instances.get(instance_id)
        if instance is None or instance.subscriptions is not subscriptions:
            connection = request.connection
            values = (
                java_uuid(instance_id), request.client_id or "", connection.software_name, connection.software_version,
                connection.host, str(connection.port),
            )  # fmt: skip
            kept = (value[:MAX_ATTRIBUTE] for value in values)  # a client id may have 32 kB
            attributes = dict(zip(ATTRIBUTES, kept, strict=True)) if instance is None else instance.attributes
            instance = self._instances[instance_id] = ClientInstance(instance_id, attributes, subscriptions)
            self._bind(request.connection, instance_id)
        self._instances.move_to_end(instance_id)
        instance.expires_ms = self._now_ms() + max(EXPIRY_MS, 3 * instance.interval_ms)
        self.forget_silent()
        return instance

    def _bind(self, connection: ConnectionInfo, instance_id: UUID) -> None:
        """Forget the instance with its connection, and the first one of a connection that has brought too many."""
        key = id(connection)
        bound = self._of_connection.get(key)
        if bound is None:
            bound = self._of_connection[key] = {}
            connection.on_close(lambda: self._unbind(key))
        bound[instance_id] = None
        if len(bound) > MAX_OF_CONNECTION:
            first = next(iter(bound))
            del bound[first]
            self._forget(first)

    def _unbind(self, key: int) -> None:
        for instance_id in self._of_connection.pop(key):
            self._forget(instance_id)

    def _forget(self, instance_id: UUID) -> None:
        instance = self._instances.pop(instance_id, None)
        if instance is not None:
            instance.expires_ms = 0
            if self.receiver is not None:
                self.receiver.forget(instance_id)


def java_uuid(value: UUID) -> str:
    """A UUID as Kafka writes it: base64, without padding."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


# Metrics that clients pushed.

MAX_CLIENT_SERIES = 5000  # series of metrics that clients push (KIP-714), in all; some 500 bytes each

MAX_SERIES_OF_A_CLIENT = 500  # a producer of Java's that pushes everything has some 150

MAX_DECOMPRESSED = 256 << 10  # bytes of one push: Kafka's clients push some 50 kB when they push everything

READ_AT_ONCE = 2  # pushes that are decompressed and parsed at a time; the others wait

MAX_NAME = 200  # characters of a metric's name; longer ones are left out. Kafka's are below 100.

MAX_ATTRIBUTES = 500  # characters of all attributes of a series: names of topics are among them

Series = dict[tuple[str, str], float]


class ClientMetrics:
    """Metrics that clients pushed: of each series the last value, or the sum of its deltas. Clients make everything up,
    so how much is kept is bounded. Without the package protobuf, pushes are counted and not read."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._turns = asyncio.Semaphore(READ_AT_ONCE)
        self._of: dict[UUID, tuple[str, Series]] = {}
        self._kept = 0
        self.pushes = self.bytes = self.left_out = 0
        self._is_read = True

    async def received(self, instance: ClientInstance, codec: int, payload: bytes) -> None:
        """Raises BrokerError (INVALID_RECORD)."""
        self.pushes += 1
        self.bytes += len(payload)
        if not self._is_read:
            return
        try:
            async with self._turns:
                values, deltas, left_out = await self._workers.run_computing(_series, codec, payload)
        except ModuleNotFoundError as error:
            self._is_read = False
            _logger.warning("metrics of clients are counted and not read: %s; the extra [metrics] has it", error)
        except (KafkalogError, ValueError) as error:
            raise BrokerError(ErrorCode.invalid_record, f"a push of metrics cannot be read: {error}") from None
        else:
            if instance.expires_ms:  # it was not forgotten meanwhile
                self.left_out += left_out
                self._keep(instance, values, deltas)

    def forget(self, instance_id: UUID) -> None:
        _, series = self._of.pop(instance_id, ("", {}))
        self._kept -= len(series)

    def all(self) -> Iterator[tuple[str, str, str, str, float]]:
        """Client id, instance id, metric, attributes and value of each series."""
        for instance_id, (client_id, series) in list(self._of.items()):
            for (name, attributes), value in series.items():
                yield client_id, java_uuid(instance_id), name, attributes, value

    def _keep(self, instance: ClientInstance, values: Series, deltas: Series) -> None:
        _, series = self._of.setdefault(instance.id, (instance.attributes["client_id"], {}))
        for key, value in (*values.items(), *((key, series.get(key, 0.0) + delta) for key, delta in deltas.items())):
            if key not in series:
                if len(series) >= MAX_SERIES_OF_A_CLIENT or self._kept >= MAX_CLIENT_SERIES:
                    self.left_out += 1
                    continue
                self._kept += 1
            series[key] = value


def _series(codec: int, payload: bytes) -> tuple[Series, Series, int]:
    """Last values, sums of what was added, and how many points were left out. In a thread."""
    from kafkalog_broker.telemetry.otlp import points
    from kafkalog_spark.format.layout import Codec
    from kafkalog_spark.log.decode.decompress import Output, decompress
    from kafkalog_spark.log.decode.scratch import Scratch

    if codec:
        scratch = Scratch(64 << 10)
        end = decompress(Codec(codec), memoryview(payload), Output(scratch, 0, MAX_DECOMPRESSED))
        payload = bytes(scratch.room(0, end))
    elif len(payload) > MAX_DECOMPRESSED:
        raise ValueError(f"{len(payload)} bytes, at most {MAX_DECOMPRESSED} are read")
    values: Series = {}
    deltas: Series = {}
    left_out = 0
    for point in islice(points(payload), 2 * MAX_SERIES_OF_A_CLIENT):
        if not point.name or len(point.name) > MAX_NAME or len(point.attributes) > MAX_ATTRIBUTES:
            left_out += 1
        elif point.is_delta:
            key = point.name, point.attributes
            deltas[key] = deltas.get(key, 0.0) + point.value
        else:
            values[point.name, point.attributes] = point.value
    return values, deltas, left_out
