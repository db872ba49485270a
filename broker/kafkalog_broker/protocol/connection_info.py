"""The connection of a request, as handlers see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kafkalog_broker.protocol.acls import Operation, ResourceType

ANONYMOUS = "User:ANONYMOUS"
"""Principal of clients that have not authenticated."""


class PrincipalDecisions(Protocol):
    """Cached authorization decisions about one principal (`security/authorizer.py`)."""

    principal: str

    def may(self, operation: Operation, resource: ResourceType, name: str | None) -> bool:
        """Return whether the principal has a right; for `name` None, whether it has the right to any such resource."""


class SaslSession(Protocol):
    """The result of a successful SASL exchange. `lifetime_ms` is None if the session does not expire."""

    @property
    def lifetime_ms(self) -> int | None: ...


class SaslConversation(Protocol):
    """A SASL exchange as the handlers of SaslHandshake and SaslAuthenticate use it (`security/sasl_exchange.py`).

    Attributes:
        failure: Why the exchange has failed, or None.
    """

    failure: str | None

    @property
    def mechanisms(self) -> Sequence[str]:
        """The enabled mechanisms."""

    @property
    def session(self) -> SaslSession | None:
        """The session once the exchange is complete."""

    def handshake(self, mechanism: str) -> bool:
        """Start the chosen mechanism. Return False if it is not enabled."""

    def authenticate(self, message: bytes) -> bytes:
        """Return the server's response to a message of the mechanism."""


class MemoryLease(Protocol):
    """Bytes of a memory budget that a response holds (`runtime/byte_budget.py`)."""

    @property
    def is_wanted(self) -> bool:
        """True if other requests wait for bytes of the budget."""

    def release(self) -> None:
        """Return the bytes to the budget."""


def _do_nothing(*_: object) -> None:
    return None


def _release(lease: MemoryLease) -> None:
    lease.release()


@dataclass(slots=True)
class ConnectionInfo:
    """Peer and state of a connection.

    Attributes:
        local_host, local_port: Address that the client has connected to.
        sasl: The exchange while the peer authenticates.
        decisions: Decisions about the principal, which the authorizer caches here.
        mute: `mute(seconds)` delays the next request by that time, counted from the response to the current one
            (throttling).
        hold: `hold(lease)` releases a lease once the peer has received the response to the current request; without a
            network, immediately.
    """

    host: str = "127.0.0.1"
    port: int = 0
    listener: str = "PLAINTEXT"
    local_host: str = "127.0.0.1"
    local_port: int = 0
    software_name: str = "unknown"
    software_version: str = "unknown"
    principal: str = ANONYMOUS
    sasl: SaslConversation | None = None
    decisions: PrincipalDecisions | None = None
    is_closed: bool = False
    mute: Callable[[float], None] = _do_nothing
    hold: Callable[[MemoryLease], None] = _release
    _on_close: list[Callable[[], None]] = field(default_factory=list)

    def on_close(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the connection is lost; immediately if it is closed.

        Returns:
            A function that withdraws the callback.
        """
        if self.is_closed:
            callback()
            return _do_nothing
        self._on_close.append(callback)

        def undo() -> None:
            if callback in self._on_close:
                self._on_close.remove(callback)

        return undo

    def mark_closed(self) -> list[Callable[[], None]]:
        """Mark the connection as closed. `mute` is a no-op from then on.

        Returns:
            The callbacks of `on_close`, which the caller must call.
        """
        self.is_closed = True
        self.mute = _do_nothing
        callbacks = self._on_close
        self._on_close = []
        return callbacks

    def __str__(self) -> str:
        return f"{self.host}:{self.port} on {self.listener}"
