"""Handlers of Kafka's APIs: a file for each, or for several about one thing. Each registers its handlers when it is
imported; ApiVersions answers what is registered."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from kafkalog_broker.protocol.api_registry import Api, registry


def load_all() -> Mapping[int, Api]:
    """Import every file of this package and return the registry. Two files for one API key: ValueError."""
    for module in sorted(found.name for found in pkgutil.iter_modules(__path__)):
        importlib.import_module(f"{__name__}.{module}")
    return registry()
