"""A request, with the rights of its sender."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import OPERATIONS, Operation, ResourceType, operation_bits
from kafkalog_broker.protocol.connection_info import ConnectionInfo


class Access(Protocol):
    """Rights of a request's sender (`security/authorizer.py`)."""

    def may(self, operation: Operation, resource: ResourceType, name: str | None, *, quiet: bool = False) -> bool:
        """Return whether the sender has a right; for `name` None, whether it has the right to any such resource."""

    def authorization_error(self, name: str, *, quiet: bool = False) -> ErrorCode:
        """Return why the sender may not perform the API's operation on `name`, or `ErrorCode.none`."""

    def operations(self, resource: ResourceType, name: str) -> int:
        """Return the allowed operations: bit n stands for operation n."""


def _charge_nothing(_partitions: int) -> None:
    return None


@dataclass(slots=True)
class Request:
    """A request with its sender.

    Attributes:
        entity: The message: an instance of a class of `api_messages`, or a ProduceRequest; None for a version of
            ApiVersions that is not served. The classes are compiled at run time, so there is no static type for them.
        size: Bytes of the frame.
        access: Rights of the sender; None if there is no authorizer, and everything is allowed.
        charge: `charge(partitions)` charges the client's quota of partition mutations. Handlers call it for each
            topic after validation. Raises BrokerError (THROTTLING_QUOTA_EXCEEDED).
        has_long_response: True if the response must be encoded in a thread. Set by handlers.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    entity: Any
    connection: ConnectionInfo
    size: int = 0
    access: Access | None = None
    charge: Callable[[int], None] = _charge_nothing
    has_long_response: bool = False

    def authorization_error(self, name: str, *, quiet: bool = False) -> ErrorCode:
        """Return why the sender may not perform this API's operation on the named resource, or `ErrorCode.none`.

        Args:
            name: Topic, group or transactional ID, as `security/api_rights.py` says for the API.
            quiet: Do not log the denial.
        """
        return ErrorCode.none if self.access is None else self.access.authorization_error(name, quiet=quiet)

    def authorize(self, name: str) -> None:
        """Raise BrokerError if `authorization_error` returns an error."""
        if code := self.authorization_error(name):
            raise BrokerError(code)

    def may(self, operation: Operation, resource: ResourceType, name: str, *, quiet: bool = False) -> bool:
        """Return whether the sender may perform an operation. quiet: do not log a denial."""
        return self.access is None or self.access.may(operation, resource, name, quiet=quiet)

    def operations(self, resource: ResourceType, name: str) -> int:
        """Return the operations that the sender may perform: bit n stands for operation n (KIP-430)."""
        if self.access is None:
            return operation_bits(OPERATIONS[resource])
        return self.access.operations(resource, name)
