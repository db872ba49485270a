"""Errors of the broker. `ErrorCode` is Kafka's table of error codes as kio carries it.

KafkalogError
└── BrokerError                an error that has one of Kafka's codes
    └── MalformedRequest       bytes that are not a request this broker can read: the connection is closed
        └── UnsupportedVersion     an API key or version that is not served
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from kafkalog_spark.errors import KafkalogError

__all__ = ["BrokerError", "ErrorCode", "MalformedRequest", "UnsupportedVersion"]


class BrokerError(KafkalogError):
    """Error of a request, with the code that a Kafka client gets for it.

    `what` says what happened, what was expected and what came instead. The place attributes of KafkalogError
    (topic_partition, path, position, offset) may be given or filled in later by `at`.
    """

    def __init__(self, code: ErrorCode, what: str = "", **place: Any) -> None:
        super().__init__(what or code.name, **place)
        self.code = code

    @property
    def message(self) -> str | None:
        """Text for the client beside the code; None where there is none."""
        return None if self.what == self.code.name else self.what


class MalformedRequest(BrokerError):
    """A frame or request that cannot be read. The peer does not speak the protocol, so the connection is closed."""

    def __init__(self, what: str, **place: Any) -> None:
        super().__init__(ErrorCode.invalid_request, what, **place)


class UnsupportedVersion(MalformedRequest):
    """An API key or version that is not served. Kafka closes the connection, except for ApiVersions."""

    def __init__(self, what: str, **place: Any) -> None:
        super().__init__(what, **place)
        self.code = ErrorCode.unsupported_version
