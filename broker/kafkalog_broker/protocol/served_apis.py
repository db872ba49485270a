"""The APIs that the dispatcher looks up: the registered ones, with their handlers wrapped in the installed layers."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from kafkalog_broker.protocol.api_registry import Api, registry

ApiWrapper = Callable[[Api], Api]
"""Function that returns a copy of an API with another handler, which calls the original one."""


class Layer(IntEnum):
    """Layers that may wrap all handlers, innermost first."""

    ACCESS = 0
    QUOTAS = 1
    FAULTS = 2


class ServedApis(dict[int, Api]):
    """Registered APIs by key, each handler wrapped in the installed layers. The dispatcher looks up every request here.

    It is empty before the first `set_layer`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._wrappers: dict[Layer, ApiWrapper] = {}

    def set_layer(self, layer: Layer, wrapper: ApiWrapper | None) -> None:
        """Install or replace a layer; None removes it. Effective from the next request."""
        if wrapper is None:
            self._wrappers.pop(layer, None)
        else:
            self._wrappers[layer] = wrapper
        for key, api in registry().items():
            for installed in sorted(self._wrappers):
                api = self._wrappers[installed](api)
            self[key] = api
