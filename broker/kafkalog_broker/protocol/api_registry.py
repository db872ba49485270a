"""Registry of the served APIs: versions, handlers and error handlers.

A file in `kafkalog_broker/api` registers a handler `handler(request, broker)` with `@api(key, lowest, highest)`,
and an error handler `f(request, code)` with `@on_error(key)`.

A handler returns one of these:

- a response object of the request's version (`protocol/responses.py`),
- a named tuple with the fields of the response (`protocol/fetch_messages.py`),
- None, if no response is sent (Produce with acks=0).

A handler that rarely awaits may be a plain function that returns either one of these or an awaitable.

If a handler raises BrokerError, the dispatcher calls the error handler of the API, which returns the response or an
awaitable. `kafkalog_broker.api.load_all` sets a default for most APIs without one. If an API has no error handler, or
it returns None, the connection is closed and one line is logged, as after any other exception.

A handler is not cancelled when its client disconnects, so it can finish what it has begun. A long wait should check
`request.connection.is_closed` or register with `on_close`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, TypeVar

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.request import Request

Handler = Callable[[Request, Any], Any]
"""Function from a request and the broker to a response or an awaitable. The broker is Any because `protocol` may not
import it."""

ErrorHandler = Callable[[Request, ErrorCode], Any | Awaitable[Any]]
AnyHandler = TypeVar("AnyHandler", bound=Handler)
AnyErrorHandler = TypeVar("AnyErrorHandler", bound=ErrorHandler)


@dataclass(slots=True)
class Api:
    """A served API, with the versions that ApiVersions lists."""

    key: int
    min_version: int
    max_version: int
    handler: Handler
    on_error: ErrorHandler | None = None

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    async def respond(self, request: Request, broker: Any) -> Any:
        """Return the response of the handler, awaited if necessary."""
        response = self.handler(request, broker)
        return await response if isawaitable(response) else response

    async def respond_to_error(self, request: Request, code: ErrorCode) -> Any:
        """Return the response to a request that failed as a whole; None if the API has none."""
        response = None if self.on_error is None else self.on_error(request, code)
        return await response if isawaitable(response) else response


_APIS: dict[int, Api] = {}
_ERROR_HANDLERS: dict[int, ErrorHandler] = {}


def api(key: int, min_version: int, max_version: int) -> Callable[[AnyHandler], AnyHandler]:
    """Register the decorated function as the handler of an API key.

    Raises:
        ValueError: If the key already has a handler, or if the versions are not a range.
    """

    def register(handler: AnyHandler) -> AnyHandler:
        registered = _APIS.get(key)
        if registered is not None:
            raise ValueError(
                f"API key {key} is registered twice: by {registered.handler.__module__} and by {handler.__module__}"
            )
        if not 0 <= min_version <= max_version:
            raise ValueError(f"API key {key}: versions {min_version} to {max_version} are not a range")
        _APIS[key] = Api(key, min_version, max_version, handler, _ERROR_HANDLERS.get(key))
        return handler

    return register


def on_error(key: int) -> Callable[[AnyErrorHandler], AnyErrorHandler]:
    """Register the decorated function as the error handler of an API key.

    It returns the response to a request that failed as a whole.

    Raises:
        ValueError: If the key already has an error handler.
    """

    def register(handler: AnyErrorHandler) -> AnyErrorHandler:
        registered = _ERROR_HANDLERS.get(key)
        if registered is not None:
            raise ValueError(
                f"API key {key} has two error handlers: in {registered.__module__} and in {handler.__module__}"
            )
        _ERROR_HANDLERS[key] = handler
        if key in _APIS:
            _APIS[key].on_error = handler
        return handler

    return register


def registry() -> Mapping[int, Api]:
    """Return all registered APIs by key, as a live read-only view. `kafkalog_broker.api.load_all` fills it."""
    return MappingProxyType(_APIS)
