"""Which APIs are served, in which versions, by which function: a file in `broker/kafkalog_broker/api` registers
handlers with `@api(key, lowest, highest)`, which are given (request, broker), and error answers with `@on_error(key)`,
(request, code).

A handler returns a kio response entity of the request's version, a tuple with the names of its fields
(`protocol/hot_messages.py`), or None: no response at all (Produce with acks=0). One that mostly waits for nothing may
be a plain function, which returns one of these or a coroutine of it. A BrokerError that leaves it becomes what the
API's error answer returns, or awaits. Without one, or when that is None, the connection is closed with one line in the
log, as for any other exception.

A handler is not cancelled when its client goes away, so what it has begun it can finish; one that waits long asks
`request.connection.closed` or hangs itself into `on_close`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, TypeVar

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import OPERATIONS, Operation, ResourceType, operation_bits

ANONYMOUS = "User:ANONYMOUS"  # who did not authenticate


def _nothing(*_: object) -> None:
    return None


def _release(lease: Any) -> None:
    lease.release()


@dataclass(slots=True)
class ConnectionInfo:
    """The peer. sasl: the exchange under way (`security/sasl.py`). decisions: what was decided about the principal
    (`security/authorizer.py`). local_host, local_port: the address that the client reached. mute: handle nothing more
    of it for so many seconds, once the request in work is answered. hold: release a Lease of `runtime/byte_budget.py`
    once the peer has the answer to the request in work; without a network, at once."""

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
    mute: Callable[[float], None] = _nothing
    hold: Callable[[Any], None] = _release
    _on_close: list[Callable[[], None]] = field(default_factory=list)

    def on_close(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the connection is lost (at once if it is already). Returns a function that undoes it."""
        if self.closed:
            callback()
            return _nothing
        self._on_close.append(callback)

        def undo() -> None:
            if callback in self._on_close:
                self._on_close.remove(callback)

        return undo

    def mark_closed(self) -> list[Callable[[], None]]:
        """Note the end and hand over the callbacks to be called. `mute` has no effect any more."""
        self.closed = True
        self.mute = _nothing
        callbacks, self._on_close = self._on_close, []
        return callbacks

    def __str__(self) -> str:
        return f"{self.host}:{self.port} on {self.listener}"


@dataclass(slots=True)
class Request:
    """A request. entity: kio's, or a ProduceRequest; None for an ApiVersions request of a version that is not served.
    size: bytes of its frame. access: rights of its sender, an Access of `security/authorizer.py`; None: all. charge:
    called for each topic once all else was checked, before so many partitions are made or removed; raises BrokerError
    throttling_quota_exceeded (`quotas/throttling.py`). has_long_answer: set by a handler whose response is to be
    encoded in a thread."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    entity: Any
    connection: ConnectionInfo
    size: int = 0
    access: Any = None
    charge: Callable[[int], None] = _nothing
    has_long_answer: bool = False

    def authorization_error(self, name: str, *, quiet: bool = False) -> ErrorCode:
        """Return why the sender may not perform this API's operation on the named resource, or `ErrorCode.none`.

        Args:
            name: Topic, group or transactional ID, as `security/api_rights.py` says for the API.
            quiet: Do not log the denial.
        """
        code: ErrorCode = ErrorCode.none if self.access is None else self.access.refused(name, quiet=quiet)
        return code

    def authorize(self, name: str) -> None:
        """Raise BrokerError if `authorization_error` returns an error."""
        if code := self.authorization_error(name):
            raise BrokerError(code)

    def may(self, operation: Operation, resource: ResourceType, name: str, *, quiet: bool = False) -> bool:
        return self.access is None or bool(self.access.may(operation, resource, name, quiet=quiet))

    def operations(self, resource: ResourceType, name: str) -> int:
        """Bit n: the operation n is allowed (KIP-430)."""
        if self.access is None:
            return operation_bits(OPERATIONS[resource])
        return int(self.access.operations(resource, name))


Handler = Callable[[Request, Any], Any]
ErrorAnswer = Callable[[Request, ErrorCode], Any | Awaitable[Any]]
H = TypeVar("H", bound=Handler)
E = TypeVar("E", bound=ErrorAnswer)


@dataclass(slots=True)
class Api:
    """An API key with the versions that are served, as ApiVersions lists them."""

    key: int
    min_version: int
    max_version: int
    handler: Handler
    on_error: ErrorAnswer | None = None

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    async def handled(self, request: Request, broker: Any) -> Any:
        answer = self.handler(request, broker)
        return await answer if isawaitable(answer) else answer

    async def failed(self, request: Request, code: ErrorCode) -> Any:
        """Answer to a request that failed as a whole; None: there is none."""
        answer = None if self.on_error is None else self.on_error(request, code)
        return await answer if isawaitable(answer) else answer


_APIS: dict[int, Api] = {}
_ERROR_ANSWERS: dict[int, ErrorAnswer] = {}


def api(key: int, min_version: int, max_version: int) -> Callable[[H], H]:
    """Register the decorated function as the handler of an API key. A second one for a key: ValueError."""

    def register(handler: H) -> H:
        known = _APIS.get(key)
        if known is not None:
            raise ValueError(
                f"API key {key} is registered twice: by {known.handler.__module__} and by {handler.__module__}"
            )
        if not 0 <= min_version <= max_version:
            raise ValueError(f"API key {key}: versions {min_version} to {max_version} are no range")
        _APIS[key] = Api(key, min_version, max_version, handler, _ERROR_ANSWERS.get(key))
        return handler

    return register


def on_error(key: int) -> Callable[[E], E]:
    """As `api`, for the function that makes the answer to a request that failed as a whole."""

    def register(answer: E) -> E:
        known = _ERROR_ANSWERS.get(key)
        if known is not None:
            raise ValueError(f"API key {key} has two error answers: by {known.__module__} and by {answer.__module__}")
        _ERROR_ANSWERS[key] = answer
        if key in _APIS:
            _APIS[key].on_error = answer
        return answer

    return register


def registry() -> Mapping[int, Api]:
    """API key to Api of everything registered so far, a live read-only view. `load_all` of `api` fills it."""
    return MappingProxyType(_APIS)


Wrap = Callable[[Api], Api]


class Layer(IntEnum):
    """Layers that may be wrapped around handlers, the innermost first."""

    ACCESS = 0
    QUOTAS = 1
    FAULTS = 2


class ServedApis(dict[int, Api]):
    """The registered APIs by key, wrapped in what is switched on, for the dispatcher to look into with each request.
    Empty before the first `wrap`."""

    def __init__(self) -> None:
        super().__init__()
        self._wraps: dict[Layer, Wrap] = {}

    def wrap(self, layer: Layer, how: Wrap | None) -> None:
        """From the next request on; None: no longer."""
        if how is None:
            self._wraps.pop(layer, None)
        else:
            self._wraps[layer] = how
        for key, api in registry().items():
            for wrapped in sorted(self._wraps):
                api = self._wraps[wrapped](api)
            self[key] = api
