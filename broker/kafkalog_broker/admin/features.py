"""Features of this broker (KIP-584): their supported levels, the levels in effect, and checks of requested changes."""

from __future__ import annotations

import enum
from typing import NamedTuple

from kafkalog_broker.errors import BrokerError, ErrorCode

FINALIZED_FEATURES_EPOCH = 0
"""Clients ignore the features in an ApiVersions response with a negative epoch."""


class Feature(NamedTuple):
    """Supported levels of a feature, and the level in effect; 0 if the feature is disabled."""

    min_level: int
    max_level: int
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
"""The features of Kafka 4.3 with its levels: among others consumer groups (KIP-848), share groups (KIP-932) and streams
groups (KIP-1071). With transaction.version 2, clients use Produce 12, TxnOffsetCommit 5 and EndTxn 5 (KIP-890)."""


class UpgradeType(enum.IntEnum):
    """Kafka's `FeatureUpdate.UpgradeType`."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def check_feature_update(name: str, level: int, upgrade_type: int, node_id: int, *, validate_only: bool) -> None:
    """Check a request to set a feature to a level, in the order and with the messages of FeatureControlManager.

    Levels cannot be changed on this broker, so a valid change is accepted only if it is validated or changes nothing.

    Raises:
        BrokerError: INVALID_UPDATE_VERSION.
    """
    feature = FEATURES.get(name)
    message = None
    if upgrade_type not in UpgradeType._value2member_map_:
        message = "The controller does not support the given upgrade type."
    elif level < 0:
        message = "A feature version cannot be less than 0."
    elif feature is None and level == 0:
        message = f"Feature {name} not found."
    elif feature is None:
        message = f"Local controller {node_id} does not support this feature."
    elif not (feature.min_level <= level <= feature.max_level):
        message = f"Local controller {node_id} only supports versions {feature.min_level}-{feature.max_level}"
    elif level < feature.level and upgrade_type == UpgradeType.UPGRADE:
        message = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    elif level > feature.level and upgrade_type != UpgradeType.UPGRADE:
        message = "Can't downgrade to a newer version."
    elif level < feature.level and name == METADATA_VERSION:
        reason = "Unsafe metadata downgrade is not supported in this version."
        if upgrade_type == UpgradeType.SAFE_DOWNGRADE:
            reason = "Refusing to perform the requested downgrade because it might delete metadata information."
        raise BrokerError(
            ErrorCode.invalid_update_version, f"Unsupported {name} downgrade from {feature.level} to {level}. {reason}"
        )
    elif level != feature.level and not validate_only:
        message = f"This broker has no other level than {feature.level}."
    if message is not None:
        raise BrokerError(
            ErrorCode.invalid_update_version, f"Invalid update version {level} for feature {name}. {message}"
        )
