"""The metadata that consumers put into JoinGroup, as far as the coordinator looks into it: the topics subscribed to."""

from __future__ import annotations

import struct

PROTOCOL_TYPE = "consumer"
"""The protocol type of groups whose members are consumers (Connect's is "connect")."""

_HEAD = struct.Struct(">hi")  # version, number of topics
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a ConsumerProtocolSubscription of any version: version 0 is the head of them all.

    None when it is no such subscription, which is no error: other clients may use the protocol type "consumer" too.
    """
    topics = set()
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or count < 0:
            return None
        at = _HEAD.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            at += _LENGTH.size
            if length < 0 or at + length > len(metadata):
                return None
            topics.add(metadata[at : at + length].decode())
            at += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
