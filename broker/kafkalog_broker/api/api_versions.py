"""18 ApiVersions, versions 0 to 4: the served APIs with their versions, and the features of the broker.

v3  client_software_name and client_software_version, checked as in Kafka (KIP-511); they appear in the log. The
    response header keeps version 0, because a client must be able to parse it before it knows the broker's versions.
v4  supported features whose lowest level is 0, which older versions leave out (KAFKA-17011)

The response to an unknown version has version 0, UNSUPPORTED_VERSION, and lists ApiVersions alone (KIP-511).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kafkalog_broker.admin.features import FEATURES, FINALIZED_FEATURES_EPOCH
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.api_registry import Api, api, on_error, registry
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_struct

KEY = 18

_FIRST_VERSION_WITH_SOFTWARE = 3
_FIRST_VERSION_WITH_ALL_FEATURES = 4
_TELEMETRY_APIS = (71, 72)
"""Listed only if the broker has a receiver for client metrics, so that clients do not push them in vain (KIP-714)."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@api(KEY, 0, 4)
def api_versions(request: Request, broker: Broker) -> Any:
    body = request.entity
    if body is None:  # an unknown version
        return _response(0, ErrorCode.unsupported_version, [registry()[KEY]])
    if request.version >= _FIRST_VERSION_WITH_SOFTWARE:
        name, version = body.client_software_name, body.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return _response(request.version, ErrorCode.invalid_request, [])
        request.connection.software_name = name
        request.connection.software_version = version
    hidden = _TELEMETRY_APIS if broker.telemetry.receiver is None else ()
    listed = [served for key, served in sorted(registry().items()) if key not in hidden]
    return _response(request.version, ErrorCode.none, listed)


@on_error(KEY)
def api_versions_error(request: Request, code: ErrorCode) -> Any:
    return _response(0 if request.entity is None else request.version, code, [])


def _response(version: int, code: ErrorCode, apis: Iterable[Api]) -> Any:
    return build_struct(
        response_class(KEY, version),
        error_code=code,
        api_keys=[
            {"api_key": served.key, "min_version": served.min_version, "max_version": served.max_version}
            for served in apis
        ],
        finalized_features_epoch=FINALIZED_FEATURES_EPOCH,
        finalized_features=[
            {"name": name, "max_version_level": feature.level, "min_version_level": feature.level}
            for name, feature in FEATURES.items()
            if feature.level
        ],
        supported_features=[
            {"name": name, "min_version": feature.min_level, "max_version": feature.max_level}
            for name, feature in FEATURES.items()
            if feature.min_level or version >= _FIRST_VERSION_WITH_ALL_FEATURES
        ],
    )
