"""ACL cases of group members' and transactional producers' requests."""

from __future__ import annotations

from collections.abc import Iterator

from tests.broker.security.helpers.acl_case import ALL_THREE, GROUP, MEMBER, OWNER, R_GROUP, TXN, W_TXN, Case


def group_cases() -> Iterator[Case]:
    """Return the cases of group members' and transactional producers' requests."""
    for version in (2, 3, 4):
        keys = {"key": GROUP, "key_type": 0, "coordinator_keys": [GROUP, "others"]}
        yield Case(f"FindCoordinator {version}", 10, version, keys, (R_GROUP,), others=((f"DESCRIBE group {GROUP}",),))
        yield Case(
            f"FindCoordinator {version}, id",
            10,
            version,
            {"key": TXN, "key_type": 1, "coordinator_keys": [TXN, "others"]},
            (f"DESCRIBE id {TXN}",),
        )
    for version in (0, 5, 7):
        join = {
            "group_id": GROUP,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "m",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        yield Case(f"JoinGroup {version}", 11, version, join, (R_GROUP,))
    yield Case(
        "SyncGroup",
        14,
        5,
        {**MEMBER, "group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range", "assignments": []},
        (R_GROUP,),
    )
    yield Case("Heartbeat", 12, 4, {**MEMBER, "group_instance_id": None}, (R_GROUP,))
    for version in (1, 4):
        yield Case(
            f"LeaveGroup {version}",
            13,
            version,
            {**MEMBER, "members": [{"member_id": "m", "group_instance_id": None}]},
            (R_GROUP,),
        )
    commit = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    topics = [{"name": name, "topic_id": f"$id:{name}", "partitions": commit} for name in ALL_THREE]
    simple = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": ""}
    yield Case("OffsetCommit", 8, 8, {**simple, "topics": topics}, (R_GROUP, "READ topic orders", "READ topic nothing"))
    yield Case("OffsetCommit by id", 8, 10, {**simple, "topics": topics[:2]}, (R_GROUP, "READ topic orders"))
    asked = [{"name": name, "topic_id": f"$id:{name}", "partition_indexes": [0]} for name in ALL_THREE]
    rights = (f"DESCRIBE group {GROUP}", "DESCRIBE topic orders")
    for version in (1, 7):
        yield Case(
            f"OffsetFetch {version}", 9, version, {"group_id": GROUP, "topics": asked, "require_stable": False}, rights
        )
    for version, named in ((8, asked), (10, asked[:2]), (8, None), (10, None)):
        groups = [
            {"group_id": one, "topics": named, "member_id": None, "member_epoch": -1} for one in (GROUP, "others")
        ]
        yield Case(
            f"OffsetFetch {version}, {'all' if named is None else 'some'}",
            9,
            version,
            {"groups": groups, "require_stable": False},
            rights,
        )
    parts = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ALL_THREE]
    yield Case(
        "OffsetDelete", 47, 0, {"group_id": "others", "topics": parts}, ("DELETE group others", "READ topic orders")
    )
    for version in (2, 5):
        yield Case(
            f"DescribeGroups {version}",
            15,
            version,
            {"groups": [GROUP, "others"], "include_authorized_operations": True},
            (f"DESCRIBE group {GROUP}", "READ group others"),
            others=((f"ALL group {GROUP}",),),
        )
    yield Case(
        "ListGroups", 16, 4, {"states_filter": []}, (f"DESCRIBE group {GROUP}",), others=(("DESCRIBE cluster",),)
    )
    yield Case("DeleteGroups", 42, 2, {"groups_names": ["others", "more"]}, ("DELETE group others",))
    begin = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    yield Case("InitProducerId, transactional", 22, 4, {**begin, "transactional_id": TXN}, (W_TXN,))
    yield Case(
        "InitProducerId",
        22,
        4,
        {**begin, "transactional_id": None},
        ("IDEMPOTENT_WRITE cluster",),
        others=(
            ("WRITE topic other",),
            ("READ topic other",),
            ("prefixed WRITE topic o", "deny WRITE topic other"),
            ("WRITE topic other", "prefixed deny WRITE topic ot".replace("prefixed deny", "deny prefixed")),
            ("WRITE topic *", "deny WRITE topic other"),
            ("WRITE topic other", "deny WRITE topic *"),
            ("ALL topic other",),
            ("WRITE topic other from 10.0.0.1",),
        ),
    )
    below = {f"v3_and_below_{name}": value for name, value in OWNER.items()}
    added = [{"name": name, "partitions": [0]} for name in ALL_THREE]
    yield Case("AddPartitionsToTxn", 24, 3, {**below, "v3_and_below_topics": added}, (W_TXN, "WRITE topic orders"))
    yield Case(
        "AddPartitionsToTxn of one", 24, 3, {**below, "v3_and_below_topics": added[:1]}, (W_TXN, "WRITE topic orders")
    )
    yield Case(
        "AddPartitionsToTxn, internal",
        24,
        3,
        {**below, "v3_and_below_topics": [{"name": "__consumer_offsets", "partitions": [0]}]},
        (W_TXN, "WRITE topic __consumer_offsets"),
    )
    yield Case(
        "AddPartitionsToTxn of brokers",
        24,
        5,
        {"transactions": [{**OWNER, "verify_only": False, "topics": added[:1]}]},
        ("CLUSTER_ACTION cluster",),
    )
    yield Case("AddOffsetsToTxn", 25, 4, {**OWNER, "group_id": GROUP}, (W_TXN, R_GROUP))
    yield Case("EndTxn", 26, 4, {**OWNER, "committed": True}, (W_TXN,))
    marker = {
        "producer_id": 777_777,
        "producer_epoch": 0,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "transaction_version": 0,
        "topics": [{"name": "nothing", "partition_indexes": [0]}],
    }
    yield Case(
        "WriteTxnMarkers", 27, 1, {"markers": [marker]}, ("ALTER cluster",), others=(("CLUSTER_ACTION cluster",),)
    )
    yield Case(
        "TxnOffsetCommit",
        28,
        3,
        {**OWNER, "group_id": GROUP, "generation_id": -1, "member_id": "", "group_instance_id": None, "topics": topics},
        (W_TXN, R_GROUP, "READ topic orders"),
    )
    yield Case("DescribeTransactions", 65, 0, {"transactional_ids": [TXN, "others"]}, (f"DESCRIBE id {TXN}",))
    yield Case(
        "ListTransactions",
        66,
        1,
        {"state_filters": [], "producer_id_filters": [], "duration_filter": -1},
        (f"WRITE id {TXN}",),
    )
    joins = {
        "group_id": "modern", "member_id": "m", "member_epoch": 0, "instance_id": None, "rack_id": None,
        "rebalance_timeout": 60_000, "subscribed_topic_names": ["orders", "secret"], "subscribed_topic_regex": None,
        "server_assignor": None, "topic_partitions": [],
    }  # fmt: skip
    sees = ("DESCRIBE topic orders", "DESCRIBE topic secret")
    for version in (0, 1):
        yield Case(f"ConsumerGroupHeartbeat {version}", 68, version, joins, ("READ group modern", *sees))
    yield Case(
        "ConsumerGroupDescribe",
        69,
        1,
        {"group_ids": ["modern", "others"], "include_authorized_operations": True},
        ("DESCRIBE group modern", *sees),
        others=(("ALL group modern", "READ topic *"),),
    )
    update = {"feature": "group.version", "max_version_level": 1, "upgrade_type": 1, "allow_downgrade": False}
    features = {"timeout": 30_000, "feature_updates": [update], "validate_only": True}
    for version in (1, 2):
        yield Case(f"UpdateFeatures {version}", 57, version, features, ("ALTER cluster",))
