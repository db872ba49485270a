"""Handlers of Kafka's APIs: a file for each, or for several about one thing. Each registers its handlers when it is
imported; ApiVersions answers what is registered."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from kafkalog_broker.admin.responses import failed
from kafkalog_broker.protocol.api_registry import Api, registry

_BY_HAND = frozenset((0, 1, 3))
"""Produce, Fetch and Metadata: each topic or partition has its error, and the encoders know no others."""


def load_all() -> Mapping[int, Api]:
    """Import every file of this package and return the registry. Two files for one API key: ValueError."""
    for module in sorted(found.name for found in pkgutil.iter_modules(__path__)):
        importlib.import_module(f"{__name__}.{module}")
    for served in registry().values():
        if served.on_error is None and served.key not in _BY_HAND:
            served.on_error = failed
    return registry()
