"""ApiVersions (key 18), versions 0 to 4: what is registered, and the client's name for the log.

v3  client_software_name and client_software_version, checked as Kafka does (KIP-511); the response header stays
    version 0, because a client must be able to read it before it knows anything.
v4  the same; older versions leave out supported features whose lowest level is 0 (KAFKA-17011).
An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the range of ApiVersions alone (KIP-511).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_messages import response_class
from kafkalog_broker.protocol.api_registry import Api, api, on_error, registry
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import entity

KEY = 18

FINALIZED_FEATURES_EPOCH = 0  # clients ignore the features of an answer whose epoch is negative


class Feature(NamedTuple):
    """Levels from `lowest` to `highest` are known; `level` is in force, 0 being none."""

    lowest: int
    highest: int
    level: int


METADATA_VERSION = "metadata.version"
FEATURES = {
    "group.version": Feature(0, 1, 1),
    "kraft.version": Feature(0, 1, 0),
    METADATA_VERSION: Feature(7, 30, 30),
    "share.version": Feature(0, 1, 1),
    "streams.version": Feature(0, 1, 1),
    "transaction.version": Feature(0, 2, 2),
    "eligible.leader.replicas.version": Feature(0, 1, 1),
}
"""Those of Kafka 4.3, with its levels: consumer groups (KIP-848), share groups (KIP-932), streams groups (KIP-1071);
transaction.version: Produce 12, TxnOffsetCommit 5 and EndTxn 5 are used where it is finalized (KIP-890)."""
_ALL_SUPPORTED_FEATURES_FROM = 4
_TELEMETRY = (71, 72)
"""Told of where somebody wants the metrics of clients, so that clients do not push for nobody (KIP-714)."""

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@api(KEY, 0, 4)
async def handle(request: Request, broker: Any) -> Any:
    if request.entity is None:
        return _answer(0, ErrorCode.unsupported_version, [registry()[KEY]])
    if request.version >= 3:
        name, version = request.entity.client_software_name, request.entity.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return _answer(request.version, ErrorCode.invalid_request, [])
        request.connection.software_name = name
        request.connection.software_version = version
    hidden = _TELEMETRY if broker.telemetry.receiver is None else ()
    told = [served for key, served in sorted(registry().items()) if key not in hidden]
    return _answer(request.version, ErrorCode.none, told)


@on_error(KEY)
def api_versions_error(request: Request, code: ErrorCode) -> Any:
    return _answer(0 if request.entity is None else request.version, code, [])


def _answer(version: int, code: ErrorCode, apis: list[Api]) -> Any:
    return entity(
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
            {"name": name, "min_version": feature.lowest, "max_version": feature.highest}
            for name, feature in FEATURES.items()
            if feature.lowest or version >= _ALL_SUPPORTED_FEATURES_FROM
        ],
    )
