"""The cluster that is mirrored: a connection for its metadata, and its nodes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.mirror.client_properties import ClientSettings
from kafkalog_broker.mirror.fetch_session import (
    PASSING,
    UNKNOWN,
    ImpossibleAnswer,
    check_epoch,
    check_log_bounds,
    check_offset,
    error_code,
    error_text,
)
from kafkalog_broker.mirror.source_connection import SourceConnection, SourceUnreachable
from kafkalog_broker.protocol import client_codec
from kafkalog_broker.protocol.client_codec import CONSUMER, EARLIEST, LATEST, Asked, Key, SourceCluster, SourceTopic
from kafkalog_spark.errors import OptionError

_NOT_ANSWERED = Asked(ErrorCode.unknown_server_error.value, UNKNOWN)


async def ask_offsets(connection: SourceConnection, keys: Collection[Key], timestamp: int) -> dict[Key, Asked]:
    """EARLIEST or LATEST, the high watermark, of partitions that the node leads. Raises SourceUnreachable."""
    by_topic: dict[str, list[Any]] = {}
    for name, index in keys:
        by_topic.setdefault(name, []).append({"partition_index": index, "timestamp": timestamp})
    topics = [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]
    answered = await connection.call(
        client_codec.LIST_OFFSETS, client_codec.listed_offsets, replica_id=CONSUMER, topics=topics
    )
    return {key: answered.get(key, _NOT_ANSWERED) for key in keys}


async def log_bounds(connection: SourceConnection, key: Key) -> tuple[int, int]:
    """(log start offset, high watermark) at the leader. Raises SourceUnreachable, BrokerError, ImpossibleAnswer."""
    start, high_watermark = [
        answered_offset((await ask_offsets(connection, [key], timestamp))[key]) for timestamp in (EARLIEST, LATEST)
    ]
    check_log_bounds(start, high_watermark)
    return start, high_watermark


def answered_offset(asked: Asked) -> int:
    """Raises BrokerError, ImpossibleAnswer."""
    if asked.error:
        code = error_code(asked.error) or ErrorCode.unknown_server_error
        raise BrokerError(code, f"the source answers ListOffsets with {error_text(asked.error)}")
    return check_offset("one of its offsets", asked.offset)


async def end_of_epoch(connection: SourceConnection, key: Key, epoch: int) -> Asked | None:
    """Where a leader epoch ends at the leader; None when it does not say (before 2.1, or nobody may ask). Raises
    SourceUnreachable, ImpossibleAnswer."""
    if connection.version(client_codec.OFFSET_FOR_LEADER_EPOCH) is None:
        return None
    name, index = key
    asked_for = {"partition": index, "current_leader_epoch": UNKNOWN, "leader_epoch": epoch}
    topics = [{"topic": name, "partitions": [asked_for]}]
    answered = await connection.call(
        client_codec.OFFSET_FOR_LEADER_EPOCH, client_codec.epoch_ends, replica_id=CONSUMER, topics=topics
    )
    asked = answered.get(key)
    if asked is None or asked.error:
        return None
    check_epoch("the leader epoch that was asked for", asked.epoch)
    check_offset("the end of a leader epoch", asked.offset, UNKNOWN)
    return asked


_DEFAULT_PORT = 9092
Address = tuple[str, int]


def parse_bootstrap(text: str) -> list[Address]:
    """`host:port,host:port`; also `[::1]:9092`. Raises OptionError."""
    addresses: list[Address] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, separator, port = part.rpartition(":")
        if not separator or (":" in host and not host.startswith("[")) or port.endswith("]"):
            host, port = part, str(_DEFAULT_PORT)
        if not port.isdecimal() or not 0 < int(port) < 65536 or not host:
            raise OptionError(f"--bootstrap {part!r}: expected HOST:PORT")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise OptionError("--bootstrap is empty: expected HOST:PORT, several with commas between them")
    return addresses


class Source:
    """Its metadata come from any node that answers: the last one, one of `bootstrap`, one that is known."""

    def __init__(
        self, bootstrap: Sequence[Address], settings: ClientSettings, most: Mapping[int, int] | None = None
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._settings = settings
        self._most = most
        self._nodes: Mapping[int, Address] = {}
        self._connection: SourceConnection | None = None

    async def metadata(self) -> SourceCluster:
        """Raises SourceUnreachable when no node answers."""
        errors: list[str] = []
        if self._connection is not None:
            with contextlib.suppress(SourceUnreachable):
                return await self._ask(self._connection)
        # Who was named by the source comes last: there may be thousands, and nobody there.
        for host, port in dict.fromkeys([*self._bootstrap, *self._nodes.values()]):
            try:
                return await self._ask(await self.connect((host, port)))
            except SourceUnreachable as error:
                errors.append(str(error))
        raise SourceUnreachable("no node of the source answers: " + "; ".join(errors))

    async def _ask(self, connection: SourceConnection) -> SourceCluster:
        self._connection = connection
        try:
            cluster = await connection.call(client_codec.METADATA, client_codec.cluster_of, **client_codec.ALL_TOPICS)
        except SourceUnreachable:
            connection.close()
            raise
        self._nodes = cluster.nodes
        return cluster

    async def connect(self, address: Address) -> SourceConnection:
        """Raises SourceUnreachable."""
        return await SourceConnection.open(*address, self._settings, most=self._most)

    async def aclose(self) -> None:
        if self._connection is not None:
            await self._connection.aclose()


_log = logging.getLogger(__name__)


async def find_ends(
    source: Source, cluster: SourceCluster, topics: Mapping[str, SourceTopic]
) -> tuple[dict[Key, int], dict[str, str]] | None:
    """What a mirror with --once is to reach: the high watermarks there are now, and why there is none, by the
    partition's name; None while a partition has no leader, or one that is not ready. Raises SourceUnreachable."""
    ends: dict[Key, int] = {}
    failed: dict[str, str] = {}
    by_leader: dict[int, list[Key]] = {}
    for name, topic in topics.items():
        for partition, place in topic.partitions.items():
            by_leader.setdefault(place.leader, []).append((name, partition))
    for node, keys in by_leader.items():
        if node not in cluster.nodes:
            return None
        connection = await source.connect(cluster.nodes[node])
        try:
            answered = await ask_offsets(connection, keys, LATEST)
        finally:
            await connection.aclose()
        for key, asked in answered.items():
            try:
                ends[key] = answered_offset(asked)
            except (BrokerError, ImpossibleAnswer) as error:
                _log.warning("%s-%d: %s", *key, error)
                if error_code(asked.error) in PASSING:
                    return None
                failed["{}-{}".format(*key)] = str(error)
    return ends, failed
