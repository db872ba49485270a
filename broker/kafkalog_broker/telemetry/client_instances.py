"""Client instances that push metrics: their subscriptions and the state of their pushes (Kafka: ClientMetricsManager).

As in Kafka they are in memory only: after a restart, an instance gets UNKNOWN_SUBSCRIPTION_ID and requests its
subscription again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from uuid import UUID, uuid4

from crc32c import crc32c

from kafkalog_broker.config import client_metrics_properties as properties
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.telemetry.subscriptions import ATTRIBUTES, Subscription
from kafkalog_spark.format.codecs import KAFKA_CODECS
from kafkalog_spark.format.partition_metadata import uuid_to_text

MAX_INSTANCES = 4096
"""Limit on instances, because clients choose their instance IDs. The least recently seen one is removed. (Kafka:
16,384.)"""

MAX_INSTANCES_OF_CONNECTION = 8
"""Limit on instances of one connection, above which the first is removed. A client has one; a proxy may have
several."""

MAX_ATTRIBUTE = 200  # characters to which attributes are truncated: a client ID may have 32 kB

EXPIRY_MS = (
    60_000  # time without a request after which an instance is removed, unless three of its intervals are longer
)

RESERVED_ID = UUID(int=1)  # Kafka's Uuid.ONE_UUID

_SUBSCRIPTION_ERRORS = (ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type)
"""Errors of a push after which the client requests its subscription again, without waiting for the interval."""


class MetricsReceiver(Protocol):
    """Receives the metrics that instances push."""

    async def receive(self, instance: ClientInstance, codec: int, payload: bytes) -> None: ...

    def forget(self, instance_id: UUID) -> None: ...


class ClientInstance:
    """A client instance and its subscription, the union of all subscriptions that match its attributes.

    Attributes:
        subscriptions: CLIENT_METRICS resources from which the subscription was made. Each change replaces the mapping,
            so its identity tells whether the subscription is up to date.
        is_removed: True once the broker has removed the instance; metrics that are still being read are then dropped.
    """

    def __init__(
        self, instance_id: UUID, attributes: Mapping[str, str], subscriptions: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.id = instance_id
        self.attributes = attributes
        self.expires_ms = 0
        self.is_removed = False
        self.subscribe(subscriptions)

    def subscribe(self, subscriptions: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the subscription. As in Kafka, earlier requests and pushes no longer count."""
        self.subscriptions = subscriptions
        attributes = self.attributes
        matching = [entry for entry in map(Subscription.of, subscriptions.values()) if entry.matches(attributes)]
        names = {name for entry in matching for name in entry.metrics}
        self.metrics = [properties.ALL_METRICS] if properties.ALL_METRICS in names else sorted(names)
        # As in Kafka an interval that is longer than the default has no effect.
        self.interval_ms = min([properties.DEFAULT_INTERVAL_MS, *(entry.interval_ms for entry in matching)])
        self.subscription_id = _subscription_id(self.id, self.metrics, self.interval_ms)
        self.last_get_ms = self.last_push_ms = 0
        self.is_terminating = False
        self.last_error = ErrorCode.none


class ClientInstances:
    """The known client instances, least recently seen first. Not thread-safe; call from the event loop.

    `receiver` is None while nothing consumes client metrics; then ApiVersions does not offer the APIs.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        max_bytes: int,
        current_subscriptions: Callable[[], Mapping[str, Mapping[str, str]]],
    ) -> None:
        """Create an empty set of client instances.

        Args:
            max_bytes: Largest push (telemetry.max.bytes).
            current_subscriptions: Returns the properties of all CLIENT_METRICS resources by name; another object after
                each change.
        """
        self._now_ms = now_ms
        self.max_bytes = max_bytes
        self._current_subscriptions = current_subscriptions
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()
        self._of_connection: dict[int, dict[UUID, None]] = {}
        self.receiver: MetricsReceiver | None = None

    def __len__(self) -> int:
        return len(self._instances)

    def get(self, request: Request) -> ClientInstance:
        """Return the instance that requests its subscription. A new instance gets an ID.

        Raises:
            BrokerError: throttling_quota_exceeded, if its interval has not passed.
        """
        instance = self._instance_of(request, request.entity.client_instance_id or uuid4())
        now_ms = self._now_ms()
        if now_ms - max(instance.last_get_ms, instance.last_push_ms) >= instance.interval_ms:
            instance.last_get_ms = now_ms
        elif instance.last_error not in _SUBSCRIPTION_ERRORS:
            raise BrokerError(ErrorCode.throttling_quota_exceeded)
        instance.last_error = ErrorCode.none
        return instance

    def push(self, request: Request) -> ClientInstance:
        """Return the instance that pushes metrics.

        Raises:
            BrokerError: If it may not push now, with the first of the errors in Kafka's order.
        """
        push = request.entity
        if push.client_instance_id is None or push.client_instance_id == RESERVED_ID:
            raise BrokerError(ErrorCode.invalid_request)
        instance = self._instance_of(request, push.client_instance_id)
        instance.last_error = code = self._push_error(instance, push)
        instance.is_terminating = push.terminating
        if code is not ErrorCode.none:
            raise BrokerError(code)
        return instance

    def _push_error(self, instance: ClientInstance, push: Any) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.invalid_request
        now_ms = self._now_ms()
        last_ms = instance.last_push_ms
        # The first push after a get may come at any time: clients choose a random delay for it.
        if instance.last_get_ms > last_ms or now_ms - last_ms >= instance.interval_ms:
            instance.last_push_ms = now_ms
        elif not push.terminating:
            return ErrorCode.throttling_quota_exceeded
        if push.subscription_id != instance.subscription_id:
            return ErrorCode.unknown_subscription_id
        if push.compression_type not in KAFKA_CODECS:
            return ErrorCode.unsupported_compression_type
        return ErrorCode.telemetry_too_large if len(push.metrics) > self.max_bytes else ErrorCode.none

    def remove_expired(self) -> None:
        """Remove the instances whose last request is too old, and the oldest ones beyond MAX_INSTANCES."""
        now_ms = self._now_ms()
        while self._instances:
            instance_id, instance = next(iter(self._instances.items()))
            if instance.expires_ms > now_ms and len(self._instances) <= MAX_INSTANCES:
                return
            self._remove(instance_id)

    def _instance_of(self, request: Request, instance_id: UUID) -> ClientInstance:
        """Return the instance. Create it if it is new, and renew its subscription if the subscriptions have changed."""
        subscriptions = self._current_subscriptions()
        instance = self._instances.get(instance_id)
        if instance is None:
            attributes = _attributes(request, instance_id)
            instance = self._instances[instance_id] = ClientInstance(instance_id, attributes, subscriptions)
            self._bind(request.connection, instance_id)
        elif instance.subscriptions is not subscriptions:
            instance.subscribe(subscriptions)
            self._bind(request.connection, instance_id)
        self._instances.move_to_end(instance_id)
        instance.expires_ms = self._now_ms() + max(EXPIRY_MS, 3 * instance.interval_ms)
        self.remove_expired()
        return instance

    def _bind(self, connection: ConnectionInfo, instance_id: UUID) -> None:
        """Remove the instance when its connection is closed, and the first instance of a connection with too many."""
        key = id(connection)
        bound = self._of_connection.get(key)
        if bound is None:
            bound = self._of_connection[key] = {}
            connection.on_close(lambda: self._unbind(key))
        bound[instance_id] = None
        if len(bound) > MAX_INSTANCES_OF_CONNECTION:
            first = next(iter(bound))
            del bound[first]
            self._remove(first)

    def _unbind(self, key: int) -> None:
        for instance_id in self._of_connection.pop(key):
            self._remove(instance_id)

    def _remove(self, instance_id: UUID) -> None:
        instance = self._instances.pop(instance_id, None)
        if instance is not None:
            instance.is_removed = True
            if self.receiver is not None:
                self.receiver.forget(instance_id)


def _subscription_id(instance_id: UUID, metrics: list[str], interval_ms: int) -> int:
    """Return Kafka's id of a subscription: a CRC over its content, mixed with the hash code of the instance id."""
    content = f"[{', '.join(metrics)}]{interval_ms}"
    high, low = divmod(instance_id.int, 1 << 64)
    mixed: int = crc32c(content.encode()) ^ ((high ^ low) >> 32) ^ (high ^ low)  # Uuid.hashCode
    return (mixed & 0xFFFFFFFF) - ((mixed & 0x80000000) << 1)


def _attributes(request: Request, instance_id: UUID) -> dict[str, str]:
    connection = request.connection
    values = (
        uuid_to_text(instance_id), request.client_id or "", connection.software_name, connection.software_version,
        connection.host, str(connection.port),
    )  # fmt: skip
    return dict(zip(ATTRIBUTES, (value[:MAX_ATTRIBUTE] for value in values), strict=True))
