"""Values that clients pushed: of each series the last value, or the sum of its deltas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.telemetry.client_instances import ClientInstance
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.format.partition_metadata import uuid_to_text

MAX_CLIENT_SERIES = 5000  # series of all clients

MAX_SERIES_OF_A_CLIENT = 500  # a Java producer that pushes all its metrics has about 150

MAX_DECOMPRESSED = 256 << 10  # bytes of one push; a Kafka client that pushes all metrics pushes about 50 kB

MAX_CONCURRENT_READS = 2  # pushes that are decompressed and parsed at the same time

MAX_NAME = 200  # characters of a metric name; metrics with longer ones are dropped. Kafka's are below 100.

MAX_ATTRIBUTES = 500  # characters of all attributes of a series; they include topic names

_logger = logging.getLogger(__name__)


class SeriesKey(NamedTuple):
    """Name and attributes of a metric."""

    metric: str
    attributes: str


class ClientSample(NamedTuple):
    """Current value of one series of a client instance."""

    client_id: str
    instance_id: str
    metric: str
    attributes: str
    value: float


class ClientMetrics:
    """The series of all client instances. Not thread-safe; call from the event loop.

    Clients choose names, attributes and number of their series, so all are bounded. Without the package protobuf,
    pushes are counted but not read.

    Attributes:
        pushes, bytes: Number of pushes, and their size before decompression.
        dropped: Values that were dropped because of a bound.
    """

    def __init__(self, workers: Workers) -> None:
        """Create an empty set of series. `workers` decompress and parse the pushes."""
        self._workers = workers
        self._reads = asyncio.Semaphore(MAX_CONCURRENT_READS)
        self._clients: dict[UUID, _ClientSeries] = {}
        self._series_count = 0
        self.pushes = self.bytes = self.dropped = 0
        self._can_read = True

    async def receive(self, instance: ClientInstance, codec: int, payload: bytes) -> None:
        """Store the values of a push.

        Raises:
            BrokerError: invalid_record, if the push cannot be decompressed or parsed.
        """
        self.pushes += 1
        self.bytes += len(payload)
        if not self._can_read:
            return
        try:
            async with self._reads:
                pushed = await self._workers.run_computing(_read_push, codec, payload)
        except ModuleNotFoundError as error:
            self._can_read = False
            _logger.warning("metrics of clients are counted and not read: %s; install the extra [metrics]", error)
        except (KafkalogError, ValueError) as error:
            raise BrokerError(ErrorCode.invalid_record, f"the pushed metrics cannot be read: {error}") from None
        else:
            if not instance.is_removed:  # the instance may have been removed while the push was read
                self._store(instance, pushed)

    def forget(self, instance_id: UUID) -> None:
        """Remove all series of an instance."""
        client = self._clients.pop(instance_id, None)
        if client is not None:
            self._series_count -= len(client.series)

    def samples(self) -> Iterator[ClientSample]:
        """Yield the current value of every series."""
        for instance_id, client in list(self._clients.items()):
            for key, value in client.series.items():
                yield ClientSample(client.client_id, uuid_to_text(instance_id), *key, value)

    def _store(self, instance: ClientInstance, pushed: _PushedValues) -> None:
        self.dropped += pushed.dropped
        series = self._clients.setdefault(instance.id, _ClientSeries(instance.attributes["client_id"])).series
        sums = {key: series.get(key, 0.0) + delta for key, delta in pushed.deltas.items()}
        for key, value in (*pushed.values.items(), *sums.items()):
            if key not in series:
                if len(series) >= MAX_SERIES_OF_A_CLIENT or self._series_count >= MAX_CLIENT_SERIES:
                    self.dropped += 1
                    continue
                self._series_count += 1
            series[key] = value


@dataclass(slots=True)
class _ClientSeries:
    """The series of one client instance."""

    client_id: str
    series: dict[SeriesKey, float] = field(default_factory=dict)


@dataclass(slots=True)
class _PushedValues:
    """Values of one push: the last of each gauge or cumulative sum, the total of each delta, and how many were dropped
    because of a bound."""

    values: dict[SeriesKey, float] = field(default_factory=dict)
    deltas: dict[SeriesKey, float] = field(default_factory=dict)
    dropped: int = 0


def _read_push(codec: int, payload: bytes) -> _PushedValues:
    """Decompress and parse a push. Runs in a thread. Raises KafkalogError, ValueError, ModuleNotFoundError."""
    from kafkalog_broker.telemetry.otlp import points  # imports protobuf, which is optional
    from kafkalog_spark.log.codecs.decompress import decompress
    from kafkalog_spark.log.codecs.output import Output
    from kafkalog_spark.log.codecs.scratch import Scratch

    if codec:
        scratch = Scratch(64 << 10)
        end = decompress(Codec(codec), memoryview(payload), Output(scratch, 0, MAX_DECOMPRESSED))
        payload = bytes(scratch.room(0, end))
    elif len(payload) > MAX_DECOMPRESSED:
        raise ValueError(f"{len(payload)} bytes, at most {MAX_DECOMPRESSED} are read")
    pushed = _PushedValues()
    for point in islice(points(payload), 2 * MAX_SERIES_OF_A_CLIENT):
        key = SeriesKey(point.name, point.attributes)
        if not key.metric or len(key.metric) > MAX_NAME or len(key.attributes) > MAX_ATTRIBUTES:
            pushed.dropped += 1
        elif point.is_delta:
            pushed.deltas[key] = pushed.deltas.get(key, 0.0) + point.value
        else:
            pushed.values[key] = point.value
    return pushed
