"""What the dispatcher looks into with each request: the registered APIs, wrapped in what is switched on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

from kafkalog_broker.protocol.api_registry import Api

Wrap = Callable[[Api], Api]


class Layer(IntEnum):
    """What may be wrapped around handlers, the innermost first."""

    ACCESS = 0
    METRICS = 1
    QUOTAS = 2
    FAULTS = 3


class ServedApis(dict[int, Api]):
    """By API key. What is switched off costs a request nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._registered: Mapping[int, Api] = {}
        self._wraps: dict[Layer, Wrap] = {}

    def use(self, registered: Mapping[int, Api]) -> None:
        """Before the first request."""
        self._registered = registered
        self._make()

    def wrap(self, layer: Layer, how: Wrap | None) -> None:
        """From the next request on; None: no longer."""
        if how is None:
            self._wraps.pop(layer, None)
        else:
            self._wraps[layer] = how
        self._make()

    def _make(self) -> None:
        for key, registered in self._registered.items():
            api = registered
            for layer in sorted(self._wraps):
                api = self._wraps[layer](api)
            self[key] = api
