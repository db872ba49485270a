"""Admin requests in order, asked of a real Kafka once (record_admin.py) and of this broker in tests.

A step is (API key, versions, fields). Each version that a step names is asked with those of the fields that the version
has; nested dictionaries stand for kio's nested classes. `"$id:NAME"` is the id of topic NAME.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crc32c import crc32c

Step = tuple[int, tuple[int, ...], dict[str, Any]]

METADATA, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 3, 19, 20, 21
DESCRIBE_CONFIGS, ALTER_CONFIGS, DESCRIBE_LOG_DIRS, CREATE_PARTITIONS = 32, 33, 35, 37
ELECT_LEADERS, INCREMENTAL_ALTER_CONFIGS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 43, 44, 45, 46
ALTER_REPLICA_LOG_DIRS, DESCRIBE_QUORUM, UPDATE_FEATURES, UNREGISTER_BROKER = 34, 55, 57, 64
CREATE_TOKEN, RENEW_TOKEN, EXPIRE_TOKEN, DESCRIBE_TOKEN = 38, 39, 40, 41
ADD_RAFT_VOTER, REMOVE_RAFT_VOTER = 80, 81
TELEMETRY = GET_SUBSCRIPTIONS, PUSH = 71, 72
DESCRIBE_CLUSTER, DESCRIBE_PRODUCERS, LIST_CONFIG_RESOURCES, DESCRIBE_TOPIC_PARTITIONS = 60, 61, 74, 75

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def new_topic(name: str, partitions: int = 1, replicas: int = 1, **rest: Any) -> dict[str, Any]:
    configs = rest.get("configs", {})
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [
            {"partition_index": index, "broker_ids": nodes} for index, nodes in rest.get("assignments", {}).items()
        ],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }


def create(*topics: dict[str, Any], versions: tuple[int, ...] = (7,), validate_only: bool = False) -> Step:
    return CREATE_TOPICS, versions, {"topics": list(topics), "timeout": 30_000, "validate_only": validate_only}


def alter(kind: int, name: str, **configs: str | None) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def change(kind: int, name: str, *operations: tuple[str, int, str | None]) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": key, "config_operation": what, "value": value} for key, what, value in operations],
    }


def incremental(*resources: dict[str, Any], versions: tuple[int, ...] = (1,), validate_only: bool = False) -> Step:
    return INCREMENTAL_ALTER_CONFIGS, versions, {"resources": list(resources), "validate_only": validate_only}


def replacing(*resources: dict[str, Any], versions: tuple[int, ...] = (2,), validate_only: bool = False) -> Step:
    return ALTER_CONFIGS, versions, {"resources": list(resources), "validate_only": validate_only}


def describe(
    *resources: tuple[int, str, list[str] | None], versions: tuple[int, ...] = (4,), synonyms: bool = True
) -> Step:
    return (
        DESCRIBE_CONFIGS,
        versions,
        {
            "resources": [
                {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
                for kind, name, keys in resources
            ],
            "include_synonyms": synonyms,
            "include_documentation": False,
        },
    )


def delete(*names: str, versions: tuple[int, ...] = (6,)) -> Step:
    return (
        DELETE_TOPICS,
        versions,
        {"topics": [{"name": name, "topic_id": None} for name in names], "topic_names": list(names), "timeout": 30_000},
    )


def more(*topics: dict[str, Any], versions: tuple[int, ...] = (3,), validate_only: bool = False) -> Step:
    return CREATE_PARTITIONS, versions, {"topics": list(topics), "timeout": 30_000, "validate_only": validate_only}


def total(name: str, count: int, nodes: list[list[int]] | None = None) -> dict[str, Any]:
    assignments = None if nodes is None else [{"broker_ids": ids} for ids in nodes]
    return {"name": name, "count": count, "assignments": assignments}


def metadata(
    names: list[str] | None,
    versions: tuple[int, ...] = (13,),
    *,
    create_missing: bool = False,
    ids: list[str] = (),  # type: ignore[assignment]
) -> Step:
    topics = None if names is None else [{"name": name, "topic_id": None} for name in names]
    if topics is not None:
        topics += [{"name": None, "topic_id": topic_id} for topic_id in ids]
    return (
        METADATA,
        versions,
        {
            "topics": topics,
            "allow_auto_topic_creation": create_missing,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": True,
        },
    )


def partitions_of(names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Step:
    return (
        DESCRIBE_TOPIC_PARTITIONS,
        (0,),
        {
            "topics": [{"name": name} for name in names],
            "response_partition_limit": limit,
            "cursor": cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
        },
    )


def records(name: str, **offsets: int) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": [{"partition_index": int(key[1:]), "offset": offset} for key, offset in offsets.items()],
    }


UNKNOWN_ID = "11111111-2222-3333-4444-555555555555"
CLUSTER = {"include_cluster_authorized_operations": True, "include_fenced_brokers": True}


def steps() -> Iterator[Step]:
    yield metadata(None)
    yield metadata([], (0, 1, 13))
    yield create(
        new_topic("orders", 3),
        new_topic("defaults", -1, -1, configs={"retention.ms": "1000", "cleanup.policy": "compact"}),
        new_topic("small", configs={"internal.segment.bytes": "1000", "flush.messages": "1"}),
        new_topic(""),
        new_topic("."),
        new_topic(".."),
        new_topic("a/b"),
        new_topic("a b"),
        new_topic("x" * 249),
        new_topic("x" * 250),
        new_topic("assigned", -1, -1, assignments={0: [1], 1: [1]}),
        new_topic("assigned-elsewhere", -1, -1, assignments={0: [2]}),
        new_topic("assigned-twice", -1, -1, assignments={0: [1, 1]}),
        new_topic("assigned-with-gap", -1, -1, assignments={0: [1], 2: [1]}),
        new_topic("assigned-and-counted", 1, -1, assignments={0: [1]}),
        new_topic("assigned-and-replicated", -1, 1, assignments={0: [1]}),
        new_topic("assigned-to-nobody", -1, -1, assignments={0: []}),
        new_topic("two-replicas", 1, 2),
        new_topic("no-replica", 1, 0),
        new_topic("minus-two-replicas", 1, -2),
        new_topic("no-partition", 0),
        new_topic("minus-two-partitions", -2),
        new_topic("unknown-config", configs={"retention.mss": "1"}),
        new_topic("bad-number", configs={"retention.ms": "soon"}),
        new_topic("too-small", configs={"segment.bytes": "10"}),
        new_topic("bad-word", configs={"compression.type": "rar"}),
        new_topic("bad-policy", configs={"cleanup.policy": "delete,forget"}),
        new_topic("twice-policy", configs={"cleanup.policy": "delete,delete"}),
        new_topic("no-policy", configs={"cleanup.policy": ""}),
        new_topic("null-config", configs={"retention.ms": None}),
        new_topic("bad-boolean", configs={"preallocate": "yes"}),
        new_topic("bad-throttle", configs={"leader.replication.throttled.replicas": "everyone"}),
        new_topic("lags-contradict", configs={"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "3"}),
        new_topic("remote", configs={"remote.storage.enable": "true"}),
    )
    yield create(new_topic("orders"), new_topic("twice"), new_topic("twice"), new_topic("once"))
    yield create(new_topic("a.b"))
    yield create(new_topic("a_b"))
    yield create(new_topic("only-asked", 2), new_topic("orders"), new_topic("one/bad"), validate_only=True)
    for version in (2, 3, 4, 5, 6):
        yield create(new_topic(f"by-version-{version}", 2), new_topic("orders"), versions=(version,))
    yield create(new_topic("by-default-4", -1, -1), versions=(4,))
    yield create()
    yield metadata(["orders", "nowhere", "a/b", "defaults"], tuple(range(4, 14)))
    yield metadata(["orders", "a/b"], (0, 1, 2, 3))  # these versions always create what is missing
    yield metadata([], (12, 13), ids=["$id:orders", UNKNOWN_ID])
    yield metadata(["orders", "orders"])
    yield metadata(None, (1, 8, 10, 13))
    yield metadata([], (0,))

    yield describe((TOPIC, "orders", None), (TOPIC, "defaults", None), (TOPIC, "small", None))
    yield describe((TOPIC, "orders", ["retention.ms", "no.such", "segment.bytes"]), versions=(1, 2, 3, 4))
    yield describe((TOPIC, "orders", []), (TOPIC, "nowhere", None), (TOPIC, "a/b", None), (TOPIC, "", None))
    yield describe((BROKER, "1", ["num.partitions", "log.retention.ms", "log.segment.bytes"]), synonyms=False)
    yield describe((BROKER, "1", ["background.threads"]), (BROKER, "", None), (BROKER, "2", None), (BROKER, "x", None))
    yield describe((TOPIC, "orders", ["retention.ms"]), (TOPIC, "orders", ["segment.ms"]))
    yield describe((0, "x", None))
    yield describe((99, "x", None))
    yield describe((BROKER_LOGGER, "2", None))
    yield describe()

    yield incremental(
        change(TOPIC, "orders", ("retention.ms", SET, "5000"), ("cleanup.policy", APPEND, "compact")),
        change(TOPIC, "nowhere", ("retention.ms", SET, "5000")),
        change(TOPIC, "a/b", ("retention.ms", SET, "5000")),
        change(TOPIC, "small", ("retention.ms", APPEND, "5000")),
        change(TOPIC, "defaults", ("no.such", SET, "1")),
        change(TOPIC, "assigned", ("retention.ms", SET, "never")),
        change(TOPIC, "no-policy", ("retention.ms", SET, None)),
        change(TOPIC, "by-version-3", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
    )
    yield describe((TOPIC, "orders", ["retention.ms", "cleanup.policy"]))
    yield incremental(change(TOPIC, "orders", ("cleanup.policy", APPEND, "compact")))
    yield incremental(change(TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None)))
    yield describe((TOPIC, "orders", ["retention.ms", "cleanup.policy"]))
    yield incremental(change(TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete")))
    yield incremental(change(TOPIC, "orders", ("segment.bytes", SET, "2000000")), validate_only=True)
    yield incremental(change(TOPIC, "orders", ("segment.bytes", SET, "2")), validate_only=True)
    yield incremental(change(TOPIC, "orders", ("no.such", DELETE, None)), versions=(0, 1))
    yield incremental(
        change(TOPIC, "orders", ("retention.ms", SET, "1")), change(TOPIC, "orders", ("segment.ms", SET, "1"))
    )
    yield incremental(change(TOPIC, "orders"))
    yield describe((TOPIC, "orders", ["retention.ms", "cleanup.policy", "segment.ms", "segment.bytes"]))
    yield replacing(alter(TOPIC, "orders", segment_ms="7000", flush_ms="8000"))
    yield describe((TOPIC, "orders", ["cleanup.policy", "segment.ms", "flush.ms"]))
    yield replacing(alter(TOPIC, "orders", flush_ms="9000"), validate_only=True, versions=(0, 1, 2))
    yield replacing(
        alter(TOPIC, "orders", no_such="9000"),
        alter(TOPIC, "nowhere", flush_ms="9000"),
        alter(TOPIC, "small", flush_ms="often"),
        alter(TOPIC, "assigned", flush_ms=None),
    )
    yield describe((TOPIC, "orders", ["cleanup.policy", "segment.ms", "flush.ms"]))
    yield replacing(alter(TOPIC, "orders"))
    yield describe((TOPIC, "orders", ["cleanup.policy", "segment.ms", "flush.ms"]))

    yield incremental(change(BROKER, "1", ("log.retention.ms", SET, "777")))
    yield incremental(
        change(BROKER, "", ("log.retention.ms", SET, "888"), ("message.max.bytes", SET, "5000000")),
    )
    yield describe((BROKER, "1", ["log.retention.ms", "message.max.bytes"]), (BROKER, "", ["log.retention.ms"]))
    yield describe((TOPIC, "orders", ["retention.ms", "max.message.bytes"]))
    yield incremental(change(BROKER, "1", ("num.partitions", SET, "2")))
    yield incremental(change(BROKER, "1", ("log.retention.ms", SET, "soon")))
    yield incremental(change(BROKER, "2", ("log.retention.ms", SET, "1")))
    yield incremental(change(BROKER, "x", ("log.retention.ms", SET, "1")))
    yield incremental(change(BROKER, "", ("ssl.keystore.location", SET, "/nowhere")))
    yield incremental(change(BROKER, "1", ("log.cleanup.policy", APPEND, "compact")), validate_only=True)
    yield incremental(change(BROKER, "1", ("log.cleanup.policy", APPEND, "compact")))
    yield describe((BROKER, "1", ["log.cleanup.policy"]))
    yield incremental(
        change(BROKER, "1", ("log.retention.ms", DELETE, None), ("log.cleanup.policy", DELETE, None)),
        change(BROKER, "", ("log.retention.ms", DELETE, None), ("message.max.bytes", DELETE, None)),
    )
    yield describe((TOPIC, "orders", ["retention.ms", "max.message.bytes", "cleanup.policy"]))
    yield incremental(change(0, "x", ("a", SET, "1")))
    yield incremental(change(99, "x", ("a", SET, "1")))

    yield more(
        total("orders", 5),
        total("defaults", 1),
        total("small", 0),
        total("nowhere", 3),
        total("assigned", 1),
        total("twice", 2, [[1]]),
    )
    yield more(
        total("by-version-2", 3, [[1]]),
        total("by-version-3", 4, [[1]]),
        total("by-version-4", 3, [[2]]),
        total("by-version-5", 3, [[]]),
        total("by-version-6", 3, [[1], [1]]),
        total("once", 3, []),
    )
    yield more(total("orders", 6), total("orders", 7), total("small", -1))
    yield more(total("orders", 7), total("nowhere", 1), validate_only=True, versions=(0, 1, 2, 3))
    yield metadata(["orders", "by-version-2"])

    yield DELETE_RECORDS, (0, 1, 2), {"topics": [records("orders", p0=-1, p1=0, p9=0)], "timeout": 30_000}
    yield (
        DELETE_RECORDS,
        (2,),
        {"topics": [records("orders", p2=5, p3=-2), records("nowhere", p0=0)], "timeout": 30_000},
    )
    yield DESCRIBE_CLUSTER, (0, 1, 2), {**CLUSTER, "endpoint_type": 1}
    yield DESCRIBE_CLUSTER, (1, 2), {**CLUSTER, "endpoint_type": 9}
    yield DESCRIBE_PRODUCERS, (0,), {"topics": [{"name": "orders", "partition_indexes": [0, 99]}]}
    yield DESCRIBE_PRODUCERS, (0,), {"topics": [{"name": "nowhere", "partition_indexes": [0]}]}
    yield DESCRIBE_PRODUCERS, (0,), {"topics": [{"name": "a/b", "partition_indexes": [0]}]}

    yield partitions_of(["orders", "nowhere", "defaults", "a/b"])
    yield partitions_of(["orders", "defaults", "assigned"], 2)
    yield partitions_of(["orders", "defaults", "assigned"], 3, ("orders", 3))
    yield partitions_of(["orders", "defaults", "assigned"], 3, ("defaults", 0))
    yield partitions_of(["orders", "defaults"], 3, ("never", 0))
    yield partitions_of(["orders", "defaults"], 3, ("orders", -1))
    yield partitions_of(["orders"], 0)
    yield partitions_of(["orders"], 10, ("orders", 99))
    yield partitions_of(["defaults", "orders"], 1)

    for kind in (0, 1, 2):
        yield (
            ELECT_LEADERS,
            (2,),
            {
                "election_type": kind,
                "topic_partitions": [
                    {"topic": "orders", "partitions": [0, 99]},
                    {"topic": "nowhere", "partitions": [0]},
                ],
                "timeout": 30_000,
            },
        )
    yield (
        ELECT_LEADERS,
        (0, 1),
        {
            "election_type": 0,
            "topic_partitions": [{"topic": "orders", "partitions": [0]}],
            "timeout": 30_000,
        },
    )
    yield ELECT_LEADERS, (0, 1, 2), {"election_type": 0, "topic_partitions": None, "timeout": 30_000}
    yield (
        ALTER_REASSIGNMENTS,
        (0, 1),
        {
            "timeout": 30_000,
            "allow_replication_factor_change": True,
            "topics": [
                {
                    "name": "orders",
                    "partitions": [
                        {"partition_index": 0, "replicas": [1]},
                        {"partition_index": 1, "replicas": [2]},
                        {"partition_index": 2, "replicas": None},
                        {"partition_index": 3, "replicas": []},
                        {"partition_index": 4, "replicas": [1, 1]},
                        {"partition_index": 99, "replicas": [1]},
                    ],
                },
                {"name": "nowhere", "partitions": [{"partition_index": 0, "replicas": [1]}]},
            ],
        },
    )
    yield LIST_REASSIGNMENTS, (0,), {"timeout": 30_000, "topics": None}
    yield (
        LIST_REASSIGNMENTS,
        (0,),
        {
            "timeout": 30_000,
            "topics": [{"name": "orders", "partition_indexes": [0, 99]}, {"name": "nowhere", "partition_indexes": [0]}],
        },
    )
    yield LIST_CONFIG_RESOURCES, (0,), {}
    for kinds in ([], [TOPIC], [BROKER], [BROKER_LOGGER], [CLIENT_METRICS], [GROUP], [TOPIC, BROKER], [99], [0]):
        yield LIST_CONFIG_RESOURCES, (1,), {"resource_types": kinds}
    yield DESCRIBE_LOG_DIRS, (1, 2, 3, 4, 5), {"topics": [{"topic": "orders", "partitions": [0, 99]}]}
    yield DESCRIBE_LOG_DIRS, (5,), {"topics": [{"topic": "nowhere", "partitions": [0]}]}
    yield DESCRIBE_LOG_DIRS, (5,), {"topics": []}
    yield DESCRIBE_LOG_DIRS, (5,), {"topics": None}

    yield from what_tools_ask()
    yield delete("defaults", "nowhere", "a/b", "", versions=(6,))
    yield (
        DELETE_TOPICS,
        (6,),
        {
            "topics": [
                {"name": None, "topic_id": "$id:small"},
                {"name": None, "topic_id": UNKNOWN_ID},
                {"name": "twice", "topic_id": None},
                {"name": "twice", "topic_id": None},
                {"name": None, "topic_id": "$id:once"},
                {"name": "once", "topic_id": None},
            ],
            "timeout": 30_000,
        },
    )
    yield DELETE_TOPICS, (6,), {"topics": [{"name": None, "topic_id": None}], "timeout": 30_000}
    yield DELETE_TOPICS, (6,), {"topics": [{"name": "orders", "topic_id": "$id:orders"}], "timeout": 30_000}
    for version in (1, 2, 3, 4, 5):
        yield delete(f"by-version-{version + 1}", "nowhere", versions=(version,))
    yield metadata(None)


def in_place(values: Any, directory: str) -> Any:
    """The fields with the broker's log directory for `$dir`."""
    if isinstance(values, dict):
        return {name: in_place(value, directory) for name, value in values.items()}
    if isinstance(values, list):
        return [in_place(value, directory) for value in values]
    return values.replace("$dir", directory) if isinstance(values, str) else values


def what_tools_ask() -> Iterator[Step]:
    """What kafka-features, kafka-metadata-quorum, kafka-client-metrics and others ask for."""
    yield from cluster_wide_min_isr()
    yield from client_metrics()
    yield from telemetry()
    yield from features()
    unknown = {"path": "/nowhere", "topics": [{"name": "orders", "partitions": [0, 99]}]}
    own = {
        "path": "$dir",
        "topics": [{"name": "orders", "partitions": [1, 98]}, {"name": "nowhere", "partitions": [0]}],
    }
    yield ALTER_REPLICA_LOG_DIRS, (1, 2), {"dirs": [unknown, own]}
    yield ALTER_REPLICA_LOG_DIRS, (2,), {"dirs": [own, {**unknown, "topics": own["topics"]}]}
    yield ALTER_REPLICA_LOG_DIRS, (2,), {"dirs": [{"path": "$dir", "topics": [{"name": "x" * 249, "partitions": [0]}]}]}
    yield ALTER_REPLICA_LOG_DIRS, (2,), {"dirs": [{"path": "$dir/", "topics": [{"name": "orders", "partitions": [0]}]}]}
    yield ALTER_REPLICA_LOG_DIRS, (1, 2), {"dirs": []}
    renewers = [{"principal_type": "User", "principal_name": "a"}]
    token = {"renewers": renewers, "max_lifetime": -1, "owner_principal_type": "User", "owner_principal_name": "b"}
    yield CREATE_TOKEN, (1, 2, 3), token
    yield CREATE_TOKEN, (3,), {**token, "owner_principal_type": None, "owner_principal_name": None}
    yield RENEW_TOKEN, (1, 2), {"hmac": b"abcd", "renew_period": -1}
    yield EXPIRE_TOKEN, (1, 2), {"hmac": b"abcd", "expiry_time_period": -1}
    yield DESCRIBE_TOKEN, (1, 2, 3), {"owners": None}
    yield DESCRIBE_TOKEN, (3,), {"owners": []}
    yield UNREGISTER_BROKER, (0,), {"broker_id": 7}
    yield UNREGISTER_BROKER, (0,), {"broker_id": -1}
    voter: dict[str, Any] = {"cluster_id": None, "voter_id": 2, "voter_directory_id": UNKNOWN_ID, "timeout": 1000}
    voter |= {"listeners": [{"name": "CONTROLLER", "host": "a", "port": 1}], "ack_when_committed": True}
    yield ADD_RAFT_VOTER, (0, 1), voter
    yield REMOVE_RAFT_VOTER, (0,), voter
    metadata_log, two, orders = (
        {"topic_name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in (("__cluster_metadata", [0]), ("__cluster_metadata", [0, 1]), ("orders", [0]))
    )
    yield DESCRIBE_QUORUM, (0, 1, 2), {"topics": [metadata_log]}
    yield DESCRIBE_QUORUM, (0, 2), {"topics": [orders]}
    yield DESCRIBE_QUORUM, (2,), {"topics": [two]}
    yield DESCRIBE_QUORUM, (2,), {"topics": [metadata_log, orders]}
    yield DESCRIBE_QUORUM, (2,), {"topics": []}


def cluster_wide_min_isr() -> Iterator[Step]:
    """min.insync.replicas belongs to all brokers (KIP-966)."""
    own = "min.insync.replicas"
    described = describe((BROKER, "", None), (BROKER, "1", [own]), (TOPIC, "orders", [own]))
    yield described
    yield incremental(change(BROKER, "", (own, DELETE, None)))
    yield incremental(change(BROKER, "", (own, DELETE, None), ("log.retention.ms", SET, "777")))
    yield incremental(change(BROKER, "1", (own, SET, "2")))
    yield incremental(change(BROKER, "1", (own, DELETE, None)))
    yield incremental(change(BROKER, "1", (own, SET, "0")))
    yield incremental(change(BROKER, "", (own, SET, "x")))
    yield incremental(change(BROKER, "", (own, SET, "2")))
    yield described
    yield replacing(alter(BROKER, ""))
    yield replacing(alter(BROKER, "", log_retention_ms="777"))
    yield replacing(alter(BROKER, "1", min_insync_replicas="1"))
    yield replacing(alter(BROKER, "", min_insync_replicas="1"))
    yield described


def client_metrics() -> Iterator[Step]:
    """Subscriptions to client metrics (KIP-714)."""
    described = describe((CLIENT_METRICS, "a", None), (CLIENT_METRICS, "never", None), (CLIENT_METRICS, "", None))
    for changes in (
        [("interval.ms", SET, "99")],
        [("interval.ms", SET, "3600001")],
        [("interval.ms", SET, "x")],
        [("nonsense", SET, "1")],
        [("match", SET, "x=1")],
        [("match", SET, "client_id")],
        [("match", SET, "client_id=")],
        [("match", SET, "=a")],
        [("match", SET, "client_id=a=b")],
        [("match", SET, "client_id=(")],
        [("match", SET, "client_id=a=")],
        [("match", SET, "client_id = a.* , client_source_port=1")],
        [("match", APPEND, "client_software_name=x")],
        [("metrics", APPEND, "org.a")],
        [("metrics", SUBTRACT, "org.a")],
        [("interval.ms", APPEND, "1000")],
        [("metrics", SET, "")],
        [("metrics", SET, None)],
        [("metrics", SET, "b, a,b"), ("interval.ms", SET, "100")],
        [("metrics", SET, "c"), ("metrics", SET, "d")],
        [("match", DELETE, None)],
        [],
    ):
        yield incremental(change(CLIENT_METRICS, "a", *changes))
        yield described
    yield incremental(change(CLIENT_METRICS, "", ("interval.ms", SET, "1000")))
    yield incremental(change(CLIENT_METRICS, "dry", ("interval.ms", SET, "1000")), validate_only=True)
    yield incremental(change(CLIENT_METRICS, "b"))
    yield describe((CLIENT_METRICS, "a", ["match", "nonsense"]), synonyms=False, versions=(1, 4))
    yield replacing(alter(CLIENT_METRICS, "a", interval_ms="2000"), alter(CLIENT_METRICS, "", interval_ms="2000"))
    yield described
    yield incremental(change(CLIENT_METRICS, "x y/z", ("interval.ms", SET, "1000")))
    yield LIST_CONFIG_RESOURCES, (0,), {}
    yield LIST_CONFIG_RESOURCES, (1,), {"resource_types": [CLIENT_METRICS]}
    yield replacing(alter(CLIENT_METRICS, "a"))
    yield incremental(change(CLIENT_METRICS, "x y/z", ("interval.ms", DELETE, None)))
    yield LIST_CONFIG_RESOURCES, (0,), {}


def telemetry() -> Iterator[Step]:
    """Clients that push metrics. With the longest interval, of an hour, no time passes that matters."""
    client, other = "00000000-0000-0000-0000-0000000000aa", "00000000-0000-0000-0000-0000000000bb"

    def push(instance: str | None = client, subscription: int = 0, **changes: Any) -> Step:
        plain_push = {"terminating": False, "compression_type": 0, "metrics": b""}
        return PUSH, (0,), {"client_instance_id": instance, "subscription_id": subscription, **plain_push, **changes}

    nobody, hour = 300_000, 3_600_000
    yield GET_SUBSCRIPTIONS, (0,), {"client_instance_id": client}
    yield GET_SUBSCRIPTIONS, (0,), {"client_instance_id": client}
    yield push(subscription=1)
    yield push(subscription=subscription_id(nobody, 0xAA))
    yield incremental(
        change(CLIENT_METRICS, "hourly", ("interval.ms", SET, str(hour)), ("metrics", SET, "org.apache.kafka.")),
        change(CLIENT_METRICS, "others", ("match", SET, "client_id=nobody"), ("metrics", SET, "*")),
    )
    yield push(subscription=subscription_id(nobody, 0xAA))
    yield GET_SUBSCRIPTIONS, (0,), {"client_instance_id": client}
    own = subscription_id(nobody, 0xAA, "org.apache.kafka.")
    yield push(subscription=own)
    yield push(subscription=own)
    yield push(subscription=own, compression_type=9, terminating=True)
    yield push(subscription=own)
    yield GET_SUBSCRIPTIONS, (0,), {"client_instance_id": other}
    theirs = subscription_id(nobody, 0xBB, "org.apache.kafka.")
    yield push(other, theirs, compression_type=9)
    yield push(other, theirs)
    yield incremental(change(CLIENT_METRICS, "hourly", ("metrics", SET, "org.apache.kafka.,x,*")))
    yield GET_SUBSCRIPTIONS, (0,), {"client_instance_id": other}
    yield push(other, subscription_id(nobody, 0xBB, "*"), metrics=bytes(1_048_577))
    yield push(None)
    yield push("00000000-0000-0000-0000-000000000001")
    yield replacing(alter(CLIENT_METRICS, "hourly"), alter(CLIENT_METRICS, "others"))


def subscription_id(interval_ms: int, instance: int, *metrics: str) -> int:
    """Of an instance whose id is a small number."""
    found: int = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode()) ^ instance
    return found - (1 << 32) if found >> 31 else found


def features() -> Iterator[Step]:
    """Levels of features, as dry runs."""
    for name, levels in {
        "metadata.version": (-1, 0, 6, 7, 29, 30, 31),
        "kraft.version": (-1, 0, 1, 2),
        "eligible.leader.replicas.version": (0, 1, 2),
        "share.version": (0, 1, 2),
        "streams.version": (0, 1, 2),
        "transaction.version": (0, 1, 2, 3),
        "nonsense": (0, 1),
    }.items():
        for level in levels:
            for kind in (1, 2, 3):
                yield updated((name, level, kind))
    yield updated(("share.version", 0, 2), ("group.version", 0, 2))
    yield updated(("share.version", 0, 2), ("nonsense", 0, 2))
    yield updated()
    yield updated(("share.version", 0, 2), versions=(0, 1))


def updated(*changes: tuple[str, int, int], versions: tuple[int, ...] = (2,)) -> Step:
    return (
        UPDATE_FEATURES,
        versions,
        {
            "timeout": 10_000,
            "validate_only": True,
            "feature_updates": [
                {"feature": name, "max_version_level": level, "upgrade_type": kind, "allow_downgrade": kind > 1}
                for name, level, kind in changes
            ],
        },
    )
