"""Handlers of Kafka's APIs: one file for each API, or for a few APIs that form one conversation.

A file translates between the protocol and the rest of the broker. Importing it registers its handlers; ApiVersions
lists the registered APIs. Sub-packages group APIs by subject, together with helpers of that subject. Directly in this
package are ApiVersions, client telemetry, and the helpers that all subjects use.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from kafkalog_broker.api.error_responses import default_error_response
from kafkalog_broker.protocol.api_registry import Api, registry

_ERRORS_PER_ITEM_ONLY = frozenset((0, 1, 3))
"""Produce, Fetch and Metadata report errors by topic or partition. A request that fails as a whole closes its
connection: their encoders do not accept what `default_error_response` makes."""


def load_all() -> Mapping[int, Api]:
    """Import all files of this package and return the registered APIs by key.

    Raises:
        ValueError: If an API key is registered twice.
    """
    for name in sorted(module.name for module in pkgutil.walk_packages(__path__, f"{__name__}.")):
        importlib.import_module(name)
    for served in registry().values():
        if served.on_error is None and served.key not in _ERRORS_PER_ITEM_ONLY:
            served.on_error = default_error_response
    return registry()
