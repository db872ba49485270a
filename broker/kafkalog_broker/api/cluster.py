"""The cluster of one broker.

10 FindCoordinator, versions 0 to 6: which broker coordinates a group or a transactional id. Creates
__consumer_offsets, __transaction_state or __share_group_state at the first use.
v1  key type; throttle time and error message in the answer
v4  several keys at once (KIP-699)
v6  share groups (KIP-932)

60 DescribeCluster, versions 0 to 2. v1: endpoint type (KIP-919); v2: fenced brokers, of which there are none.
64 UnregisterBroker, version 0: there is no broker but this one, which is not to be forgotten while it answers.

55 DescribeQuorum, versions 0 to 2: this node, as the one voter of the controllers' quorum. There is no metadata log:
its end and its high watermark are the generation of the topics, which grows with each change as that log does.
v1  times of the last fetch (KIP-836)
v2  directory ids, listeners of the voters, texts of errors (KIP-853)

80 AddRaftVoter, versions 0 and 1, and 81 RemoveRaftVoter, version 0: refused as by a Kafka whose voters are in its
configuration (kraft.version 0).

57 UpdateFeatures, versions 0 to 2: levels of features (KIP-584). They stay as they are: asking for that is fine. A dry
run is answered as by Kafka, also where it would change a level; the change itself is refused.
v1  dry runs, and which kind of change is meant (KIP-778)
v2  one error for all features; no results
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, cast

from kafkalog_broker.admin.responses import cluster_operations, respond_by_partition, respond_in_slices, this_node
from kafkalog_broker.api.api_versions import FEATURES, METADATA_VERSION
from kafkalog_broker.api.topics import NO_SUCH_TOPIC
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import CLUSTER_NAME, REFUSALS, Operation, ResourceType
from kafkalog_broker.protocol.api_registry import api, on_error
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import error_response, respond
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_spark.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC

_SEVERAL_KEYS_FROM = 4
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_TYPES = {
    _GROUP: (OFFSETS_TOPIC, ResourceType.GROUP, Operation.DESCRIBE),
    _TRANSACTION: (TRANSACTION_TOPIC, ResourceType.TRANSACTIONAL_ID, Operation.DESCRIBE),
    _SHARE: (SHARE_STATE_TOPIC, ResourceType.CLUSTER, Operation.CLUSTER_ACTION),  # between brokers
}
"""By key type: the coordinator's topic, and the right that is needed."""
_NOWHERE: Mapping[str, Any] = {"error_code": ErrorCode.none, "node_id": -1, "host": "", "port": -1}


@api(10, 0, 6)
async def find_coordinator(request: Request, broker: Broker) -> Any:
    key_type = _key_type(request)
    if key_type not in _TYPES:
        what = f"this broker does not coordinate key type {key_type}"
        return await _coordinators(request, set(), what, error_code=ErrorCode.invalid_request)
    refused = await _refused(request)
    if refused.issuperset(_keys(request)):  # then nothing is created for the sender
        return await _coordinators(request, refused)
    try:
        await broker.ensure_internal_topic(_TYPES[key_type][0])
    except BrokerError as error:
        return await _coordinators(request, refused, error.what, error_code=ErrorCode.coordinator_not_available)
    node = this_node(broker, request.connection)
    return await _coordinators(request, refused, node_id=node.node_id, host=node.host, port=node.port)


def _key_type(request: Request) -> int:
    return getattr(request.entity, "key_type", _GROUP)


def _keys(request: Request) -> Sequence[str]:
    asked = request.entity
    return [asked.key] if request.version < _SEVERAL_KEYS_FROM else cast("Sequence[str]", asked.coordinator_keys)


async def _refused(request: Request) -> set[str]:
    if request.access is None or _key_type(request) not in _TYPES:
        return set()
    _, resource, operation = _TYPES[_key_type(request)]
    if resource is ResourceType.CLUSTER:
        return set() if request.may(operation, resource, CLUSTER_NAME) else set(_keys(request))
    keys = TimeSlice().spread(_keys(request))
    return {key async for key in keys if not request.may(operation, resource, key)}


@on_error(10)
async def find_coordinator_failed(request: Request, code: ErrorCode) -> Any:
    return await _coordinators(request, await _refused(request), error_code=code)


async def _coordinators(request: Request, refused: Set[str], message: str | None = None, **where: Any) -> Any:
    """The same for every key but those that are refused."""
    told = {**_NOWHERE, **where}
    of_refused, text = {}, ""
    if refused:
        code, text = REFUSALS[_TYPES[_key_type(request)][1]]
        of_refused = {**_NOWHERE, "error_code": code}
    if request.version < _SEVERAL_KEYS_FROM:
        if refused:
            return respond(request, error_message=text, **of_refused)
        # Kafka's Errors.NONE has the text NONE, and sends it.
        return respond(request, error_message="NONE" if told["error_code"] is ErrorCode.none else message, **told)
    return await respond_in_slices(request, "coordinators", (  # Kafka has no text for a key that is refused here
        {"key": key, "error_message": "", **of_refused} if key in refused
        else {"key": key, "error_message": message or "", **told}
        for key in request.entity.coordinator_keys
    ))  # fmt: skip


BROKERS, CONTROLLERS = 1, 2  # endpoint types


@api(60, 0, 2)
async def describe_cluster(request: Request, broker: Broker) -> Any:
    kind = getattr(request.entity, "endpoint_type", BROKERS)
    if kind == CONTROLLERS:  # as a Kafka broker answers on a listener that is not a controller's
        what = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return error_response(request, ErrorCode.mismatched_endpoint_type, what)
    if kind != BROKERS:
        return error_response(request, ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {kind}")
    node = this_node(broker, request.connection)
    operations = {}
    if request.entity.include_cluster_authorized_operations:
        operations["cluster_authorized_operations"] = cluster_operations(request)
    return respond(
        request, endpoint_type=BROKERS, cluster_id=broker.cluster_id, controller_id=broker.node_id,
        brokers=[{"broker_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}],
        **operations,
    )  # fmt: skip


@api(64, 0, 0)
async def unregister_broker(request: Request, broker: Broker) -> Any:
    node_id = request.entity.broker_id
    code, what = ErrorCode.broker_id_not_registered, "is not currently registered"
    if node_id == broker.node_id:
        code, what = ErrorCode.invalid_request, "is this broker, which is running"
    return error_response(request, code, f"Broker ID {node_id} {what}")


METADATA_TOPIC = "__cluster_metadata"
_EPOCH = 1  # of a node that was never voted for again


@api(55, 0, 2)
async def describe_quorum(request: Request, broker: Broker) -> Any:
    topics = request.entity.topics
    named = [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in topics]
    if named != [(METADATA_TOPIC, [0])]:
        error = {"error_code": ErrorCode.unknown_topic_or_partition, "error_message": NO_SUCH_TOPIC}
        return await respond_by_partition(request, lambda topic, partition: error, error_message="")
    now_ms, end = broker.clock.now_ms(), broker.topics.generation
    voter = {
        "replica_id": broker.node_id, "log_end_offset": end, "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }  # fmt: skip
    quorum = {
        "partition_index": 0, "error_message": "", "leader_id": broker.node_id, "leader_epoch": _EPOCH,
        "high_watermark": end, "current_voters": [voter],
    }  # fmt: skip
    node = this_node(broker, request.connection)
    listener = {"name": request.connection.listener, "host": node.host, "port": node.port}
    return respond(
        request, error_message="", topics=[{"topic_name": METADATA_TOPIC, "partitions": [quorum]}],
        nodes=[{"node_id": node.node_id, "listeners": [listener]}],
    )  # fmt: skip


@api(80, 0, 1)
@api(81, 0, 0)
async def change_raft_voters(request: Request, broker: Broker) -> Any:
    change = "adding" if request.api_key == 80 else "removing"
    why = f"Cluster doesn't support {change} voter because the kraft.version feature is 0"
    return error_response(request, ErrorCode.unsupported_version, why)


_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


@api(57, 0, 2)
def update_features(request: Request, broker: Broker) -> Any:
    updates = request.entity.feature_updates
    is_dry = getattr(request.entity, "validate_only", False)
    try:
        for update in updates:
            _check(update, broker.node_id, is_dry=is_dry)
    except BrokerError as error:
        what = f"The update failed for all features since the following feature had an error: {error.what}"
        return error_response(request, error.code, what)
    return respond(request, results=[{"feature": update.feature, "error_message": "NONE"} for update in updates])


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
        why = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
        why += " downgrade."
    elif level > feature.level and kind != _UPGRADE:
        why = "Can't downgrade to a newer version."
    elif level < feature.level and name == METADATA_VERSION:
        what = "Unsafe metadata downgrade is not supported in this version."
        if kind == _SAFE_DOWNGRADE:
            what = "Refusing to perform the requested downgrade because it might delete metadata information."
        what = f"Unsupported {name} downgrade from {feature.level} to {level}. {what}"
        raise BrokerError(ErrorCode.invalid_update_version, what)
    elif level != feature.level and not is_dry:
        why = f"This broker has no other level than {feature.level}."
    if why is not None:
        raise BrokerError(ErrorCode.invalid_update_version, f"Invalid update version {level} for feature {name}. {why}")
