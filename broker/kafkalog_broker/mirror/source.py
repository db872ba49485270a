"""The cluster that is mirrored: a connection for its metadata, and its nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from kafkalog_broker.mirror.client_properties import ClientSettings
from kafkalog_broker.mirror.source_connection import SourceConnection, SourceUnreachable
from kafkalog_broker.mirror.source_questions import ask_metadata
from kafkalog_broker.protocol.source_calls import SourceCluster
from kafkalog_spark.errors import OptionError

_DEFAULT_PORT = 9092
Address = tuple[str, int]


def parse_bootstrap(text: str) -> list[Address]:
    """`host:port,host:port`; also `[::1]:9092`. Raises OptionError."""
    found: list[Address] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, separator, port = part.rpartition(":")
        if not separator or (":" in host and not host.startswith("[")) or port.endswith("]"):
            host, port = part, str(_DEFAULT_PORT)
        if not port.isdecimal() or not 0 < int(port) < 65536 or not host:
            raise OptionError(f"--bootstrap {part!r}: expected HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise OptionError("--bootstrap is empty: expected HOST:PORT, several with commas between them")
    return found


class Source:
    """Its metadata come from any node that answers: the last one, one of `bootstrap`, one that is known. most: as for
    SourceConnection.open."""

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
            cluster = await ask_metadata(connection)
        except SourceUnreachable:
            connection.close()
            raise
        self._nodes = cluster.nodes
        return cluster

    async def connect(self, address: Address) -> SourceConnection:
        """Another connection. Raises SourceUnreachable."""
        return await SourceConnection.open(*address, self._settings, most=self._most)

    async def aclose(self) -> None:
        if self._connection is not None:
            await self._connection.aclose()
