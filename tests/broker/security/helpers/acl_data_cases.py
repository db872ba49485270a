"""ACL cases of producers' and consumers' requests."""

from __future__ import annotations

from collections.abc import Iterator

from tests.broker.api.helpers.transaction_requests import batch
from tests.broker.security.helpers.acl_case import ALL_THREE, TOPICS, TXN, W_TXN, Case, Values


def produce(*names: str, transactional: bool = False, transactional_id: str | None = None) -> Values:
    producer = (
        {"producer_id": 777_777, "producer_epoch": 0} if transactional else {"producer_id": -1, "producer_epoch": -1}
    )
    data = batch(1, 0 if transactional else -1, transactional=transactional, **producer)
    topics = [
        {"name": name, "topic_id": f"$id:{name}", "partition_data": [{"index": 0, "records": data}]} for name in names
    ]
    return {"transactional_id": transactional_id, "acks": -1, "timeout": 5000, "topic_data": topics}


def fetch(*names: str, replica: int = -1) -> Values:
    wanted = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    return {
        "replica_id": replica,
        "replica_state": {"replica_id": replica, "replica_epoch": -1},
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": [],
        "rack_id": "",
        "topics": [{"topic": name, "topic_id": f"$id:{name}", "partitions": [wanted]} for name in names],
    }


def metadata(names: list[str] | None, *, create: bool = False, operations: bool = False) -> Values:
    topics = None if names is None else [{"name": name, "topic_id": "0" * 32} for name in names]
    return {
        "topics": topics,
        "allow_auto_topic_creation": create,
        "include_cluster_authorized_operations": operations,
        "include_topic_authorized_operations": operations,
    }


def data_cases() -> Iterator[Case]:
    """Return the cases of producers' and consumers' requests."""
    yield Case("Produce", 0, 9, produce(*ALL_THREE), ("WRITE topic orders", "WRITE topic nothing"))
    yield Case("Produce by id", 0, 13, produce("orders", "secret"), ("WRITE topic orders",))
    yield Case("Produce, internal", 0, 9, produce("__consumer_offsets"), ("WRITE topic __consumer_offsets",))
    yield Case(
        "Produce, transactional",
        0,
        11,
        produce("orders", "secret", transactional=True, transactional_id=TXN),
        (W_TXN, "WRITE topic orders"),
    )
    yield Case("Fetch", 1, 12, fetch(*ALL_THREE), ("READ topic secret", "READ topic nothing"))
    yield Case("Fetch by id", 1, 17, fetch("orders", "secret"), ("READ topic secret",))
    yield Case(
        "Fetch as a follower",
        1,
        12,
        fetch("nothing", replica=7),
        ("READ topic nothing",),
        others=(("CLUSTER_ACTION cluster",),),
        with_all=False,
    )
    for version in (1, 7):
        wanted = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}]
        topics = [{"name": name, "partitions": wanted} for name in ALL_THREE]
        yield Case(
            f"ListOffsets {version}",
            2,
            version,
            {"replica_id": -1, "isolation_level": 0, "topics": topics},
            ("DESCRIBE topic orders", "READ topic nothing"),
        )
    yield Case("Metadata of all", 3, 0, metadata([]), ("DESCRIBE topic orders",))
    yield Case(
        "Metadata of all, with operations",
        3,
        8,
        metadata(None, operations=True),
        ("WRITE topic orders",),
        others=(
            ("ALTER cluster", "DESCRIBE_CONFIGS topic orders", "READ topic orders"),
            ("deny WRITE topic orders", "ALL topic orders", "ALL cluster"),
            ("deny DESCRIBE topic orders", "ALL topic *"),
        ),
    )
    yield Case(
        "Metadata of some",
        3,
        8,
        metadata([*ALL_THREE, "a b"], operations=True),
        ("DESCRIBE topic orders", "DESCRIBE topic nothing"),
        others=(
            ("prefixed READ topic or", "deny DESCRIBE topic secret"),
            ("DELETE topic *",),
            ("READ topic orders from 127.0.0.1", "READ topic secret from 10.0.0.1"),
            ("deny READ topic orders", "ALTER topic orders"),
            ("CREATE topic orders", "DESCRIBE_CONFIGS topic orders", "ALTER_CONFIGS topic orders"),
        ),
    )
    yield Case(
        "Metadata by id",
        3,
        12,
        {**metadata([]), "topics": [{"name": None, "topic_id": f"$id:{name}"} for name in TOPICS]},
        ("DESCRIBE topic orders",),
    )
    yield Case(
        "Metadata that creates",
        3,
        8,
        metadata(["fresh", "__transaction_state"], create=True),
        ("DESCRIBE topic fresh", "CREATE topic fresh"),
        others=(("CREATE cluster",),),
        with_all=False,
    )
    described = {"topics": [{"name": name} for name in ALL_THREE], "response_partition_limit": 10, "cursor": None}
    yield Case("DescribeTopicPartitions", 75, 0, described, ("WRITE topic orders", "DESCRIBE topic nothing"))
    yield Case("DescribeTopicPartitions of all", 75, 0, {**described, "topics": []}, ("WRITE topic orders",))
    epochs = [
        {"topic": name, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}
        for name in ALL_THREE
    ]
    yield Case(
        "OffsetForLeaderEpoch",
        23,
        4,
        {"replica_id": -1, "topics": epochs},
        ("DESCRIBE topic orders",),
        others=(("CLUSTER_ACTION cluster",),),
    )
    deleted = [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]} for name in ALL_THREE]
    yield Case(
        "DeleteRecords", 21, 2, {"topics": deleted, "timeout": 5000}, ("DELETE topic orders", "DELETE topic nothing")
    )
    named = [{"name": name, "partition_indexes": [0]} for name in (*ALL_THREE, "a b")]
    yield Case("DescribeProducers", 61, 0, {"topics": named}, ("READ topic orders", "READ topic nothing"))
