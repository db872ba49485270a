"""57 UpdateFeatures, versions 0 to 2: levels of features (KIP-584), as kafka-features.sh asks for them.

Features stay at the level they have: asking for that is fine. A dry run is answered as by Kafka, also where it would
change a level; the change itself is refused.

v1  dry runs, and which kind of change is meant (KIP-778)
v2  one error for all features; no results
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.api.api_versions import FEATURES, METADATA_VERSION
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api
from kafkalog_broker.protocol.response_entity import entity, error_response, respond, response_module

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


@api(57, 0, 2)
def handle(request: Request, broker: Broker) -> Any:
    updates = request.entity.feature_updates
    is_dry = getattr(request.entity, "validate_only", False)
    try:
        for update in updates:
            _check(update, broker.node_id, is_dry=is_dry)
    except BrokerError as error:
        what = f"The update failed for all features since the following feature had an error: {error.what}"
        return error_response(request, error.code, what)
    result = getattr(response_module(request), "UpdatableFeatureResult", None)
    if result is None:
        return respond(request)
    return respond(
        request, results=tuple(entity(result, feature=update.feature, error_message="NONE") for update in updates)
    )


def _check(update: Any, node_id: int, *, is_dry: bool) -> None:
    """Raises BrokerError (INVALID_UPDATE_VERSION), in the order and words of Kafka's FeatureControlManager."""
    name, level = update.feature, update.max_version_level
    kind = getattr(update, "upgrade_type", _UPGRADE)  # version 0 cannot ask for anything else
    feature = FEATURES.get(name)
    why = None
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        why = "The controller does not support the given upgrade type."
    elif level < 0:
        why = "A feature version cannot be less than 0."
    elif feature is None and level == 0:
        why = f"Feature {name} not found."
    elif feature is None:
        why = f"Local controller {node_id} does not support this feature."
    elif not (feature.lowest <= level <= feature.highest):
        why = f"Local controller {node_id} only supports versions {feature.lowest}-{feature.highest}"
    elif level < feature.level and kind == _UPGRADE:
        why = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    elif level > feature.level and kind != _UPGRADE:
        why = "Can't downgrade to a newer version."
    elif level < feature.level and name == METADATA_VERSION:
        what = "Unsafe metadata downgrade is not supported in this version."
        if kind == _SAFE_DOWNGRADE:
            what = "Refusing to perform the requested downgrade because it might delete metadata information."
        raise BrokerError(
            ErrorCode.invalid_update_version,
            f"Unsupported {name} downgrade from {feature.level} to {level}. {what}",
        )
    elif level != feature.level and not is_dry:
        why = f"This broker has no other level than {feature.level}."
    if why is not None:
        raise BrokerError(ErrorCode.invalid_update_version, f"Invalid update version {level} for feature {name}. {why}")
