"""The authorizer: decisions, ACL filters, cached decisions and log lines."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker import api
from kafkalog_broker.config.authorizer_settings import AuthorizerSettings
from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.protocol.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.security import authorizer as authorizer_module
from kafkalog_broker.security.acl import Acl, AclFilter, Pattern, normal_host
from kafkalog_broker.security.acl_store import FILE, AclStore, acl_file
from kafkalog_broker.security.api_rights import RIGHTS
from kafkalog_broker.security.authorizer import Authorizer
from kafkalog_spark.errors import CorruptFile, UnsupportedFormat

READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
TOPIC = ResourceType.TOPIC
HERE = "127.0.0.1"


def acl(
    name: str = "orders", operation: Operation = READ, *, principal: str = "User:alice", host: str = "*",
    denies: bool = False, prefixed: bool = False,
) -> Acl:  # fmt: skip
    pattern = Pattern(TOPIC, PatternType.PREFIXED if prefixed else PatternType.LITERAL, name)
    return Acl(pattern, principal, host, operation, Permission.DENY if denies else Permission.ALLOW)


def authorizer(*acls: Acl, allow_everyone: bool = False) -> Authorizer:
    made = Authorizer(AuthorizerSettings(frozenset({"User:root"}), allow_everyone))
    made.acls.change((), acls)
    return made


def may(made: Authorizer, operation: Operation = READ, name: str = "orders", principal: str = "User:alice") -> bool:
    return made.decide(principal, HERE, operation, TOPIC, name)


def test_without_acls_only_super_users_may_do_anything() -> None:
    assert not may(authorizer())
    assert may(authorizer(acl(principal="User:*", denies=True)), principal="User:root")


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([acl()], True),
        ([acl(principal="User:*")], True),
        ([acl(principal="User:bob")], False),
        ([acl("*")], True),
        ([acl("ord", prefixed=True)], True),
        ([acl("orders", prefixed=True)], True),
        ([acl("orders-", prefixed=True)], False),
        ([acl("ord")], False),
        ([acl("*", prefixed=True)], False),
        ([acl(operation=ALL)], True),
        ([acl(operation=WRITE)], False),
        ([acl(host=HERE)], True),
        ([acl(host="10.0.0.1")], False),
        ([acl(), acl(denies=True)], False),
        ([acl(), acl("o", denies=True, prefixed=True)], False),
        ([acl(), acl("*", principal="User:*", operation=ALL, denies=True)], False),
        ([acl(), acl(denies=True, host="10.0.0.1")], True),
        ([acl(), acl(denies=True, operation=WRITE)], True),
    ],
)
def test_read_is_decided_by_the_matching_acls(acls: list[Acl], allowed: bool) -> None:
    assert may(authorizer(*acls)) is allowed
    assert may(authorizer(*reversed(acls))) is allowed


def test_only_allowed_operations_imply_describe() -> None:
    for implying in (READ, WRITE, Operation.DELETE, Operation.ALTER):
        assert may(authorizer(acl(operation=implying)), DESCRIBE)
        assert may(authorizer(acl(operation=DESCRIBE), acl(operation=implying, denies=True)), DESCRIBE)
    assert not may(authorizer(acl(operation=Operation.CREATE)), DESCRIBE)
    assert may(authorizer(acl(operation=Operation.ALTER_CONFIGS)), Operation.DESCRIBE_CONFIGS)
    assert not may(authorizer(acl(operation=DESCRIBE)), READ)


def test_everyone_may_access_resources_without_acls_if_configured() -> None:
    made = authorizer(acl("ledger", principal="User:bob"), allow_everyone=True)
    assert may(made)
    assert not may(made, name="ledger")
    assert not may(authorizer(acl("o", principal="User:bob", prefixed=True), allow_everyone=True))


def test_acl_change_applies_to_open_connections() -> None:
    made = authorizer(acl())
    connection = ConnectionInfo(principal="User:alice")

    def reads() -> bool:
        access = made.access(Request(1, 12, 1, None, None, connection))
        return access.may(READ, TOPIC, "orders")

    assert reads()
    made.acls.change([acl()], ())
    assert not reads()
    made.acls.change((), [acl("or", prefixed=True)])
    assert reads()
    connection.principal = "User:bob"  # as when SASL comes after the connection
    assert not reads()


class Counted(Authorizer):
    decided = 0

    def decide(self, *asked: Any) -> bool:
        self.decided += 1
        return super().decide(*asked)


def test_number_of_cached_decisions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "MAX_CACHED", 10)
    monkeypatch.setattr(authorizer_module, "UNCACHED_UNTIL_CLEARED", 80)
    made = Counted(AuthorizerSettings())
    connection = ConnectionInfo(principal="User:alice")
    access = made.access(Request(3, 12, 1, None, None, connection))

    def decisions(names: Iterable[str]) -> int:
        before = made.decided
        for name in names:
            assert not access.may(READ, TOPIC, name)
        return made.decided - before

    long = "x" * 250
    assert decisions([long, long, long[:249], long[:249]]) == 3, "long names take memory, so they are decided again"
    every, others = [f"t{i}" for i in range(19)], [f"u{i}" for i in range(9)]
    assert [decisions(every) for _ in range(8)] == [19, *[10] * 7], "of more than there is room for, half is known"
    assert [decisions(others) for _ in range(2)] == [9, 0], "in the end room is made for others"


def test_denied_request_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    made = authorizer()
    request = Request(1, 12, 1, None, None, ConnectionInfo(principal="User:alice"))
    with caplog.at_level(logging.INFO):
        access = made.access(request)
        assert not access.may(DESCRIBE, TOPIC, "hidden", quiet=True)
        assert caplog.messages == []
        assert [access.authorization_error(name).name for name in ("orders\n", "more")] == [
            "topic_authorization_failed"
        ] * 2
    (line,) = caplog.messages
    assert line.startswith("Principal = User:alice is Denied operation = READ from host = 127.0.0.1 on resource = ")
    assert line.endswith("TOPIC:LITERAL:'orders\\n' for request = Fetch")
    made.access(request)
    for _ in range(1000):
        made.access(request).authorization_error("orders")
    assert len(caplog.messages) < 300


def test_set_of_operations_is_encoded_as_bits() -> None:
    made = authorizer(acl(operation=WRITE))
    access = made.access(Request(3, 12, 1, None, None, ConnectionInfo(principal="User:alice")))
    assert access.operations(TOPIC, "orders") == 1 << WRITE | 1 << DESCRIBE
    assert access.operations(ResourceType.CLUSTER, CLUSTER_NAME) == 0


def test_acls_survive_a_restart(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    kept = [acl(), acl("ö", denies=True, prefixed=True), acl("*", principal="User:CN=x,O=y")]
    store = AclStore()
    store.load([tmp_path / "a"])
    store.save(kept)
    assert list(store) == []  # until it is changed
    again = AclStore()
    again.load([tmp_path / "a", tmp_path / "b"])
    assert list(again) == kept
    assert (tmp_path / "a" / FILE).stat().st_mode & 0o077 == 0


def test_save_before_load_raises() -> None:
    with pytest.raises(RuntimeError, match="not loaded"):
        AclStore().save([acl()])


DUMPED = acl_file([]).dump(1, [acl()])


@pytest.mark.parametrize(
    "damaged",
    [b"", b"[]", b'{"version": 0}', DUMPED[:-9], DUMPED.replace(b"READ", b"REED")],
)
def test_load_of_a_damaged_file_fails(damaged: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(damaged)
    with pytest.raises(CorruptFile):
        AclStore().load([tmp_path])
    with pytest.raises(UnsupportedFormat):
        acl_file([]).parse(DUMPED.replace(b'"version": 0', b'"version": 1'))


def test_removed_acls_leave_an_empty_store() -> None:
    store, acls = AclStore(), [acl(), acl(host=HERE), acl("or", prefixed=True), acl("od", prefixed=True)]
    store.change((), [*acls, *acls])
    assert len(store) == len(acls)
    store.change(acls, ())
    assert (list(store), list(store.matching(TOPIC, "orders"))) == ([], [])
    store.change([acl()], ())  # of one that is gone
    assert len(store) == 0


def test_filter_matches_by_pattern_host_and_principal() -> None:
    some = [acl(), acl("*"), acl("or", prefixed=True), acl("orders2")]
    assert [AclFilter().matches(one) for one in some] == [True] * 4
    matching = AclFilter(name="orders", type=PatternType.MATCH)
    assert [matching.matches(one) for one in some] == [True, True, True, False]
    exactly = AclFilter(name="orders", type=PatternType.ANY)
    assert [exactly.matches(one) for one in some] == [True, False, False, False]
    assert not AclFilter(host=HERE).matches(acl())
    assert not AclFilter(principal="User:bob").matches(acl())


def test_addresses_are_normalized() -> None:
    assert normal_host("0:0:0:0:0:0:0:1") == normal_host("::1") == "::1"
    assert normal_host("::ffff:127.0.0.1") == HERE
    assert normal_host("a host") == "a host"


def test_operation_table_has_every_api() -> None:
    assert set(api.load_all()) <= set(RIGHTS)


STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def test_authorizer_properties_are_parsed() -> None:
    base = {"listeners": "PLAINTEXT://:0", "log.dirs": "/x"}
    assert BrokerConfig.from_properties(base).authorizer is None
    given = {"authorizer.class.name": STANDARD, "super.users": "User:a; User:CN=b,O=c ;"}
    config = BrokerConfig.from_properties({**base, **given, "allow.everyone.if.no.acl.found": "TRUE"})
    assert config.authorizer == AuthorizerSettings(frozenset({"User:a", "User:CN=b,O=c"}), True)
    assert config.without_effect() == []
    for wrong, text in (
        ({"super.users": "alice"}, "principalType:principalName"),
        ({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}, "cannot be loaded"),
    ):
        with pytest.raises(ConfigError, match=text):
            BrokerConfig.from_properties({**base, **given, **wrong})
    with pytest.raises(ConfigError, match="Cannot update these configs dynamically"):
        config.with_dynamic({}, {"super.users": "User:x"})
