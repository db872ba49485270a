"""Checks and fields of heartbeat requests that consumer, share and streams groups have in common."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.modern.group_epoch import MAX_SUBSCRIBED_TOPICS
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.request import Request

_MS = timedelta(milliseconds=1)
_UNCHANGED = -_MS


def check_subscribed_topics(request: Request, names: Sequence[str]) -> None:
    """Raise BrokerError if a member may not subscribe to these topics, or if there are too many of them.

    A member needs the right to DESCRIBE each topic, because its assignment discloses which topics exist.

    Raises:
        BrokerError: INVALID_REQUEST or TOPIC_AUTHORIZATION_FAILED.
    """
    if len(names) > MAX_SUBSCRIBED_TOPICS:
        raise BrokerError(
            ErrorCode.invalid_request, f"{len(names)} topics, at most {MAX_SUBSCRIBED_TOPICS} may be named"
        )
    if request.access is not None:
        for name in dict.fromkeys(names):
            if not request.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
                raise BrokerError(ErrorCode.topic_authorization_failed)


def changed_timeout_ms(timeout: timedelta) -> int | None:
    """Return a timeout in ms, or None if it is -1 in the request, which means that it has not changed."""
    return None if timeout == _UNCHANGED else timeout // _MS
