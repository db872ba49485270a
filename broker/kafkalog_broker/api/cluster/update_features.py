"""57 UpdateFeatures, versions 0 to 2: levels of features (KIP-584). They cannot be changed on this broker.

A request for the present level is accepted. A request that is only validated gets Kafka's response even if it would
change a level; the change itself is refused.

v1  validate_only, and the type of the upgrade (KIP-778)
v2  one error for all features instead of results
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.admin.features import check_feature_update
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.error_response import error_response
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response


@api(57, 0, 2)
def update_features(request: Request, broker: Broker) -> Any:
    updates = request.entity.feature_updates
    try:
        for update in updates:
            check_feature_update(
                update.feature, update.max_version_level, update.upgrade_type, broker.node_id,
                validate_only=request.entity.validate_only,
            )  # fmt: skip
    except BrokerError as error:
        message = f"The update failed for all features since the following feature had an error: {error.what}"
        return error_response(request, error.code, message)
    return build_response(request, results=[{"feature": update.feature, "error_message": "NONE"} for update in updates])
