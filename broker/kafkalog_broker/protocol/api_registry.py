"""Which APIs are served, in which versions, by which handlers.

A file in `broker/kafkalog_broker/api` registers a handler `handler(request, broker)` with `@api(key, lowest, highest)`,
and an error handler `f(request, code)` with `@on_error(key)`.

A handler returns a response of the request's version (`protocol/responses.py`), a tuple with the names of its fields
(`protocol/hot_messages.py`), or None for no response at all (Produce with acks=0). A handler that rarely awaits may be
a plain function that returns either a response or an awaitable. If it raises BrokerError, the error handler of the API
returns the response or an awaitable. If there is none, or it returns None, the connection is closed with one line in
the log, as for any other exception.

A handler is not cancelled when its client disconnects, so it can finish what it has begun. A long wait should check
`request.connection.closed` or register with `on_close`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, TypeVar

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.request import Request

Handler = Callable[[Request, Any], Any]
ErrorAnswer = Callable[[Request, ErrorCode], Any | Awaitable[Any]]
H = TypeVar("H", bound=Handler)
E = TypeVar("E", bound=ErrorAnswer)


@dataclass(slots=True)
class Api:
    """An API with the versions that are served, as ApiVersions lists them."""

    key: int
    min_version: int
    max_version: int
    handler: Handler
    on_error: ErrorAnswer | None = None

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    async def handled(self, request: Request, broker: Any) -> Any:
        """Return the response of the handler."""
        answer = self.handler(request, broker)
        return await answer if isawaitable(answer) else answer

    async def failed(self, request: Request, code: ErrorCode) -> Any:
        """Return the response to a request that failed as a whole; None if the API has none."""
        answer = None if self.on_error is None else self.on_error(request, code)
        return await answer if isawaitable(answer) else answer


_APIS: dict[int, Api] = {}
_ERROR_ANSWERS: dict[int, ErrorAnswer] = {}


def api(key: int, min_version: int, max_version: int) -> Callable[[H], H]:
    """Register the decorated function as the handler of an API key.

    Raises:
        ValueError: If the key is taken, or if the versions are not a range.
    """

    def register(handler: H) -> H:
        known = _APIS.get(key)
        if known is not None:
            raise ValueError(
                f"API key {key} is registered twice: by {known.handler.__module__} and by {handler.__module__}"
            )
        if not 0 <= min_version <= max_version:
            raise ValueError(f"API key {key}: versions {min_version} to {max_version} are not a range")
        _APIS[key] = Api(key, min_version, max_version, handler, _ERROR_ANSWERS.get(key))
        return handler

    return register


def on_error(key: int) -> Callable[[E], E]:
    """Register the decorated function, which makes the response to a request that failed as a whole.

    Raises:
        ValueError: If the key is taken.
    """

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
    """Return all registered APIs by key, as a live read-only view. `kafkalog_broker.api.load_all` fills it."""
    return MappingProxyType(_APIS)


Wrap = Callable[[Api], Api]


class Layer(IntEnum):
    """What may be wrapped around handlers, the innermost first."""

    ACCESS = 0
    QUOTAS = 1
    FAULTS = 2


class ServedApis(dict[int, Api]):
    """Registered APIs by key, with their handlers in the installed layers. The dispatcher looks up each request.

    It is empty before the first `wrap`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._wraps: dict[Layer, Wrap] = {}

    def wrap(self, layer: Layer, wrapper: Wrap | None) -> None:
        """Install a layer, or remove it with None, effective from the next request."""
        if wrapper is None:
            self._wraps.pop(layer, None)
        else:
            self._wraps[layer] = wrapper
        for key, api in registry().items():
            for installed in sorted(self._wraps):
                api = self._wraps[installed](api)
            self[key] = api
