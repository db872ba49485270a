"""A request, and the connection that it came on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import OPERATIONS, Operation, ResourceType, operation_bits

ANONYMOUS = "User:ANONYMOUS"
"""Principal of clients that have not authenticated."""


class Access(Protocol):
    """Rights of a request's sender (`security/authorizer.py`)."""

    def may(self, operation: Operation, resource: ResourceType, name: str | None, *, quiet: bool = False) -> bool:
        """Return whether the sender has a right; for `name` None, whether it has the right to any such resource."""

    def refused(self, name: str, *, quiet: bool = False) -> ErrorCode:
        """Return the error of the API's own operation on `name`, or `none`."""

    def operations(self, resource: ResourceType, name: str) -> int:
        """Return the allowed operations: bit n stands for operation n."""


def _do_nothing(*_: object) -> None:
    return None


def _release(lease: Any) -> None:
    lease.release()


@dataclass(slots=True)
class ConnectionInfo:
    """The peer of a connection.

    Attributes:
        local_host, local_port: Address that the client has connected to.
        sasl: Exchange of `security/sasl.py` while the peer authenticates.
        decisions: Decisions about the principal, which `security/authorizer.py` keeps.
        mute: `mute(seconds)` handles no further request for so long, after the response to the current one
            (throttling).
        hold: `hold(lease)` releases a Lease of `runtime/byte_budget.py` after the peer has received the response to
            the current request; without a network, immediately.
    """

    host: str = "127.0.0.1"
    port: int = 0
    listener: str = "PLAINTEXT"
    local_host: str = "127.0.0.1"
    local_port: int = 0
    software_name: str = "unknown"
    software_version: str = "unknown"
    principal: str = ANONYMOUS
    sasl: Any = None
    decisions: Any = None
    closed: bool = False
    mute: Callable[[float], None] = _do_nothing
    hold: Callable[[Any], None] = _release
    _on_close: list[Callable[[], None]] = field(default_factory=list)

    def on_close(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the connection is lost; immediately if it is closed.

        Returns:
            A function that withdraws the callback.
        """
        if self.closed:
            callback()
            return _do_nothing
        self._on_close.append(callback)

        def undo() -> None:
            if callback in self._on_close:
                self._on_close.remove(callback)

        return undo

    def mark_closed(self) -> list[Callable[[], None]]:
        """Note that the connection is closed, after which `mute` is a no-op.

        Returns:
            The callbacks, which the caller must call.
        """
        self.closed = True
        self.mute = _do_nothing
        callbacks, self._on_close = self._on_close, []
        return callbacks

    def __str__(self) -> str:
        return f"{self.host}:{self.port} on {self.listener}"


@dataclass(slots=True)
class Request:
    """A request with its sender.

    Attributes:
        entity: The message: a class of `api_messages`, or a ProduceRequest. None for ApiVersions of a version that is
            not served.
        size: Bytes of the frame.
        access: Rights of the sender; None if there is no authorizer, and everything is allowed.
        charge: `charge(partitions)` charges the client's quota of partition mutations. To be called for each topic
            after validation. Raises BrokerError (THROTTLING_QUOTA_EXCEEDED).
        has_long_answer: True if the response is to be encoded in a thread. Handlers set it.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    entity: Any
    connection: ConnectionInfo
    size: int = 0
    access: Access | None = None
    charge: Callable[[int], None] = _do_nothing
    has_long_answer: bool = False

    def authorization_error(self, name: str, *, quiet: bool = False) -> ErrorCode:
        """Return why the sender may not perform this API's operation on the named resource, or `ErrorCode.none`.

        Args:
            name: Topic, group or transactional ID, as `security/api_rights.py` says for the API.
            quiet: Do not log the denial.
        """
        return ErrorCode.none if self.access is None else self.access.refused(name, quiet=quiet)

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
