"""ACL cases of administrators' requests."""

from __future__ import annotations

from collections.abc import Iterator

from tests.broker.security.helpers.acl_case import ALL_THREE, GROUP, TOPICS, Case, Values


def new_topics(*names: str, validate_only: bool = True) -> Values:
    topics = [
        {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": "retention.ms", "value": "5000"}],
        }
        for name in names
    ]
    return {"topics": topics, "timeout": 30_000, "validate_only": validate_only}


def admin_cases() -> Iterator[Case]:
    """Return the cases of administrators' requests."""
    yield Case(
        "CreateTopics",
        19,
        7,
        new_topics("one", "two"),
        ("CREATE topic one", "DESCRIBE_CONFIGS topic one"),
        others=(("CREATE cluster",), ("ALTER_CONFIGS topic one", "CREATE cluster")),
    )
    yield Case("CreateTopics 4", 19, 4, new_topics("one", "one", "two"), ("CREATE topic two",))
    yield Case(
        "CreatePartitions",
        37,
        3,
        {
            "topics": [{"name": name, "count": 9, "assignments": None} for name in ALL_THREE],
            "timeout": 5000,
            "validate_only": True,
        },
        ("ALTER topic orders", "ALTER topic nothing"),
    )
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": ["retention.ms", "background.threads"]}
        for kind, name in ((2, "orders"), (2, "nothing"), (2, "secret"), (4, "1"), (8, "1"), (32, GROUP))
    ]
    yield Case(
        "DescribeConfigs",
        32,
        4,
        {"resources": resources[:4], "include_synonyms": False, "include_documentation": False},
        ("DESCRIBE_CONFIGS topic orders", "DESCRIBE_CONFIGS topic nothing", "DESCRIBE_CONFIGS cluster"),
        others=(("ALTER_CONFIGS topic orders", "DESCRIBE topic secret"),),
    )
    changed = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": "retention.ms", "value": "7000", "config_operation": 0}],
        }
        for kind, name in ((2, "orders"), (2, "secret"), (2, "nothing"))
    ]
    broker = [
        {
            "resource_type": 4,
            "resource_name": "1",
            "configs": [{"name": "log.cleaner.backoff.ms", "value": "7000", "config_operation": 0}],
        }
    ]
    rights = ("ALTER_CONFIGS topic orders", "ALTER_CONFIGS topic nothing", "ALTER_CONFIGS cluster")
    for key, version in ((33, 2), (44, 1)):
        yield Case(f"AlterConfigs {key}", key, version, {"resources": changed + broker, "validate_only": True}, rights)
    logger = [
        {
            "resource_type": 8,
            "resource_name": "1",
            "configs": [{"name": "root", "value": "INFO", "config_operation": 0}],
        }
    ]
    yield Case(
        "AlterConfigs of loggers",
        44,
        1,
        {"resources": logger, "validate_only": True},
        ("ALTER_CONFIGS cluster", "CLUSTER_ACTION cluster"),
        with_all=False,
    )
    yield Case("DescribeLogDirs", 35, 4, {"topics": []}, ("DESCRIBE cluster",), with_all=False)
    yield Case("DescribeLogDirs 2", 35, 2, {"topics": []}, ("DESCRIBE cluster",), with_all=False)
    moved = {"dirs": [{"path": "/nowhere", "topics": [{"name": "orders", "partitions": [0, 1]}]}]}
    yield Case("AlterReplicaLogDirs", 34, 2, moved, ("ALTER cluster",))
    for kind in ("User", "Group"):
        token = {"max_lifetime": 1000, "renewers": [{"principal_type": kind, "principal_name": "a"}]}
        nobody = {"owner_principal_type": None, "owner_principal_name": None}
        other = {"owner_principal_type": "User", "owner_principal_name": "other"}
        yield Case(f"CreateDelegationToken, {kind}", 38, 3, {**token, **nobody}, ())
        yield Case(f"CreateDelegationToken for another, {kind}", 38, 3, {**token, **other},
                   ("CREATE_TOKENS user User:other",))  # fmt: skip
    yield Case("RenewDelegationToken", 39, 2, {"hmac": b"abcd", "renew_period": 1000}, ())
    yield Case("ExpireDelegationToken", 40, 2, {"hmac": b"abcd", "expiry_time_period": 1000}, ())
    yield Case("DescribeDelegationToken", 41, 3, {"owners": None}, ())
    quorum = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    for version in (0, 2):
        yield Case(f"DescribeQuorum {version}", 55, version, {"topics": quorum}, ("DESCRIBE cluster",))
    yield Case("UnregisterBroker", 64, 0, {"broker_id": 7}, ("ALTER cluster",))
    voter: Values = {"cluster_id": None, "voter_id": 2, "timeout": 1000, "ack_when_committed": True}
    voter["voter_directory_id"] = "11111111-2222-3333-4444-555555555555"
    voter["listeners"] = [{"name": "CONTROLLER", "host": "a", "port": 1}]
    yield Case("AddRaftVoter", 80, 1, voter, ("ALTER cluster",))
    yield Case("RemoveRaftVoter", 81, 0, voter, ("ALTER cluster",))
    subscribed = [{"resource_type": 16, "resource_name": "a", "configs": [
        {"name": "interval.ms", "config_operation": 0, "value": "1000"}]}]  # fmt: skip
    yield Case("IncrementalAlterConfigs of client metrics", 44, 1, {"resources": subscribed, "validate_only": True},
               ("ALTER_CONFIGS cluster",))  # fmt: skip
    described = [{"resource_type": 16, "resource_name": "a", "configuration_keys": None}]
    yield Case("DescribeConfigs of client metrics", 32, 4, {
        "resources": described, "include_synonyms": False, "include_documentation": False,
    }, ("DESCRIBE_CONFIGS cluster",))  # fmt: skip
    elected = [{"topic": "orders", "partitions": [0]}]
    for version in (0, 2):
        yield Case(
            f"ElectLeaders {version}",
            43,
            version,
            {"election_type": 0, "topic_partitions": elected, "timeout": 5000},
            ("ALTER cluster",),
        )
    yield Case(
        "AlterPartitionReassignments",
        45,
        0,
        {"timeout": 5000, "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "replicas": None}]}]},
        ("ALTER cluster",),
    )
    yield Case("ListPartitionReassignments", 46, 0, {"timeout": 5000, "topics": None}, ("DESCRIBE cluster",))
    yield Case("DescribeUserScramCredentials", 50, 0, {"users": [{"name": "carol"}]}, ("DESCRIBE cluster",))
    yield Case(
        "AlterUserScramCredentials",
        51,
        0,
        {"deletions": [{"name": "carol", "mechanism": 1}], "upsertions": []},
        ("ALTER cluster",),
    )
    for version in (0, 1):
        yield Case(
            f"DescribeCluster {version}",
            60,
            version,
            {"include_cluster_authorized_operations": True, "endpoint_type": 1},
            ("DESCRIBE cluster",),
            others=(("ALTER_CONFIGS cluster",), ("ALL cluster", "deny ALTER cluster")),
        )
    yield Case("ListConfigResources", 74, 1, {"resource_types": [2]}, ("DESCRIBE_CONFIGS cluster",))
    asked = [{"entity_type": "user", "match_type": 0, "match": "carol"}]
    for version in (0, 1):
        yield Case(f"DescribeClientQuotas {version}", 48, version, {"components": asked, "strict": False},
                   ("DESCRIBE_CONFIGS cluster",), others=(("ALTER_CONFIGS cluster",),))  # fmt: skip
        entry = {"entity": [{"entity_type": "user", "entity_name": "carol"}],
                 "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]}  # fmt: skip
        yield Case(f"AlterClientQuotas {version}", 49, version, {"entries": [entry], "validate_only": True},
                   ("ALTER_CONFIGS cluster",))  # fmt: skip
    yield from acl_cases()
    yield Case(
        "DeleteTopics",
        20,
        6,
        {"topics": [{"name": name, "topic_id": "0" * 32} for name in ("nothing", "secret")], "timeout": 5000},
        ("DESCRIBE topic nothing", "DELETE topic nothing"),
        others=(("DESCRIBE topic secret",),),
    )
    yield Case(
        "DeleteTopics by id",
        20,
        6,
        {"topics": [{"name": None, "topic_id": f"$id:{name}"} for name in TOPICS], "timeout": 5000},
        ("DESCRIBE topic orders",),
    )
    yield Case(
        "DeleteTopics 3",
        20,
        3,
        {"topic_names": ["orders", "nothing"], "timeout": 5000},
        ("DELETE topic nothing",),
        others=(("DELETE cluster",),),
        changes=True,
    )


def acl_cases() -> Iterator[Case]:
    """ACLs themselves: of `User:kept`, whom no other case has."""
    fields = {
        "resource_type": 2,
        "resource_name": "ledger",
        "resource_pattern_type": 3,
        "principal": "User:kept",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    good = [
        fields,
        fields,
        {**fields, "resource_pattern_type": 4, "resource_name": "led"},
        {**fields, "resource_name": "*"},
        {**fields, "permission_type": 2, "host": "10.0.0.1"},
        {**fields, "resource_type": 4},
        {**fields, "resource_name": ""},
        {**fields, "resource_type": 4, "resource_name": "kafka-cluster", "operation": 5},
        {**fields, "resource_type": 3, "operation": 12},
        {**fields, "resource_type": 7, "operation": 13},
        {**fields, "resource_name": "a b"},
        {**fields, "host": "no address"},
    ]
    yield Case("CreateAcls", 30, 3, {"creations": good}, ("ALTER cluster",), changes=True)
    bad: dict[str, Values] = {
        "any operation": {"operation": 1},
        "any permission": {"permission_type": 1},
        "match": {"resource_pattern_type": 2},
        "any pattern": {"resource_pattern_type": 1},
        "any resource": {"resource_type": 1},
        "unknown operation": {"operation": 99},
        "unknown resource": {"resource_type": 0},
        "unknown permission": {"permission_type": 0},
        "unknown pattern": {"resource_pattern_type": 9},
    }
    for name, wrong in bad.items():
        yield Case(f"CreateAcls, {name}", 30, 3, {"creations": [{**fields, **wrong}, fields]}, ("ALTER cluster",))
    any_of_kept = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": "User:kept",
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    filters: dict[str, Values] = {
        "all": {},
        "literal": {"pattern_type_filter": 3, "resource_name_filter": "ledger"},
        "what matches": {"pattern_type_filter": 2, "resource_name_filter": "ledger"},
        "of a name": {"resource_name_filter": "led"},
        "a star": {"pattern_type_filter": 2, "resource_name_filter": "*"},
        "denied": {"permission_type": 2},
        "of a host": {"host_filter": "10.0.0.1"},
        "topics": {"resource_type_filter": 2, "operation": 3},
        "somebody": {"principal_filter": "User:nobody"},
    }
    for name, wanted in filters.items():
        yield Case(
            f"DescribeAcls, {name}",
            29,
            3,
            {**any_of_kept, **wanted},
            ("DESCRIBE cluster",),
            others=(("ALTER cluster",),) if name == "all" else (),
        )
    yield Case("DescribeAcls 1", 29, 1, {**any_of_kept, **filters["literal"]}, ("DESCRIBE cluster",))
    some = [
        {**any_of_kept, "host_filter": "10.0.0.1"},
        {**any_of_kept, "principal_filter": "User:nobody"},
        {**any_of_kept, "resource_type_filter": 4},
        {**any_of_kept, "resource_type_filter": 4},
    ]
    yield Case("DeleteAcls", 31, 3, {"filters": some}, ("ALTER cluster",), changes=True)
    for name, wrong in {
        "resource": {"resource_type_filter": 99},
        "operation": {"operation": 99},
        "permission": {"permission_type": 0},
        "pattern": {"pattern_type_filter": 0},
    }.items():
        yield Case(f"DescribeAcls, unknown {name}", 29, 3, {**any_of_kept, **wrong}, ("DESCRIBE cluster",))
        yield Case(
            f"DeleteAcls, unknown {name}", 31, 3, {"filters": [{**any_of_kept, **wrong}, some[1]]}, ("ALTER cluster",)
        )
    yield Case("DescribeAcls, what is left", 29, 2, any_of_kept, ("DESCRIBE cluster",))
