"""Metrics that clients pushed, for the page: the last value of each series, or the sum of its deltas.

Everything in a push is made up by a client, so how much is kept of it is bounded. Without the package protobuf, pushes
are counted and not read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from uuid import UUID

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.runtime.workers import Workers
from kafkalog_broker.telemetry.client_instances import ClientInstance, java_uuid
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.decode.decompress import Output, Scratch, decompress

MAX_CLIENT_SERIES = 5000
"""Series of metrics that clients push (KIP-714), in all; some 500 bytes each."""

MAX_SERIES_OF_A_CLIENT = 500
"""Such series of one client. A producer of Java's that pushes everything has some 150."""

MAX_DECOMPRESSED = 2 << 20
"""Bytes of one push: Kafka's clients push some 50 kB when they push everything."""

MAX_NAME = 200
"""Characters of a client's id and of a metric's name; longer ones are left out. Kafka's are below 100."""

MAX_ATTRIBUTES = 500
"""Characters of all attributes of a series: names of topics are among them."""

_logger = logging.getLogger(__name__)
Series = dict[tuple[str, str], float]


class ClientMetrics:
    """Metrics that clients pushed: id and series of each client instance."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
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
            found = await self._workers.run_computing(_series, codec, payload)
        except ModuleNotFoundError as error:
            self._is_read = False
            _logger.warning("metrics of clients are counted and not read: %s; the extra [metrics] has it", error)
        except (KafkalogError, ValueError) as error:
            raise BrokerError(ErrorCode.invalid_record, f"a push of metrics cannot be read: {error}") from None
        else:
            if instance.expires_ms:  # it was not forgotten meanwhile
                self._keep(instance, *found)

    def forget(self, instance_id: UUID) -> None:
        _, series = self._of.pop(instance_id, ("", {}))
        self._kept -= len(series)

    def all(self) -> Iterator[tuple[str, str, str, str, float]]:
        """Client id, instance id, metric, attributes and value of each series."""
        for instance_id, (client_id, series) in list(self._of.items()):
            for (name, attributes), value in series.items():
                yield client_id, java_uuid(instance_id), name, attributes, value

    def _keep(self, instance: ClientInstance, values: Series, deltas: Series, left_out: int) -> None:
        self.left_out += left_out
        client_id = instance.attributes["client_id"][:MAX_NAME]
        _, series = self._of.setdefault(instance.id, (client_id, {}))
        for found, add in ((values, False), (deltas, True)):
            for key, value in found.items():
                known = series.get(key)
                if known is None:
                    if len(series) >= MAX_SERIES_OF_A_CLIENT or self._kept >= MAX_CLIENT_SERIES:
                        self.left_out += 1
                        continue
                    self._kept += 1
                series[key] = value + (known or 0.0) if add else value


def _series(codec: int, payload: bytes) -> tuple[Series, Series, int]:
    """Last values, sums of what was added, and how many points were left out. In a thread."""
    from kafkalog_broker.telemetry.otlp import points

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
