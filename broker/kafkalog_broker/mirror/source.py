"""The mirrored cluster: its metadata, and connections to its nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafkalog_broker.mirror.client_properties import ClientSettings
from kafkalog_broker.mirror.source_address import Address
from kafkalog_broker.mirror.source_connection import SourceConnection, SourceUnreachable
from kafkalog_broker.protocol.mirror_messages import ALL_TOPICS, METADATA, SourceCluster, cluster_of


@dataclass(eq=False)
class Source:
    """The mirrored cluster.

    Metadata is requested from the node that responded last, then from the bootstrap nodes, then from all known nodes.
    """

    _bootstrap: Sequence[Address]
    _settings: ClientSettings
    _max_versions: Mapping[int, int] | None = None
    _nodes: Mapping[int, Address] = field(init=False, default_factory=dict)
    _connection: SourceConnection | None = field(init=False, default=None)

    async def metadata(self) -> SourceCluster:
        """Request the metadata of all topics. Raises SourceUnreachable if no node responds."""
        errors: list[str] = []
        if self._connection is not None:
            with contextlib.suppress(SourceUnreachable):
                return await self._request_metadata(self._connection)
        # Nodes from the last metadata come last, because there may be thousands of unreachable ones.
        for host, port in dict.fromkeys([*self._bootstrap, *self._nodes.values()]):
            try:
                return await self._request_metadata(await self.connect((host, port)))
            except SourceUnreachable as error:
                errors.append(str(error))
        raise SourceUnreachable("no node of the source responds: " + "; ".join(errors))

    async def _request_metadata(self, connection: SourceConnection) -> SourceCluster:
        self._connection = connection
        try:
            cluster = await connection.call(METADATA, cluster_of, **ALL_TOPICS)
        except SourceUnreachable:
            connection.close()
            raise
        self._nodes = cluster.nodes
        return cluster

    async def connect(self, address: Address) -> SourceConnection:
        """Connect to a node. Raises SourceUnreachable."""
        return await SourceConnection.open(*address, self._settings, max_versions=self._max_versions)

    async def aclose(self) -> None:
        if self._connection is not None:
            await self._connection.aclose()
