"""Node endpoints: where the current leaders of KIP-951 are, as tag 0 of Produce and Fetch responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kafkalog_broker.protocol.wire import compact_string, uvarint


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


def node_endpoints_tag(endpoints: Iterable[NodeEndpoint]) -> bytes:
    """The tagged fields of a response: none, or tag 0 with the endpoints."""
    nodes = [
        node.node_id.to_bytes(4, "big", signed=True)
        + compact_string(node.host)
        + node.port.to_bytes(4, "big", signed=True)
        + compact_string(node.rack)
        + b"\0"
        for node in endpoints
    ]
    if not nodes:
        return b"\0"
    value = uvarint(len(nodes) + 1) + b"".join(nodes)
    return b"\1\0" + uvarint(len(value)) + value
