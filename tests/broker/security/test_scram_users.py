"""SCRAM users: their files, alterations as in Kafka, and users from the command line."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.static.primitive import i8, i32

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.config.sasl_settings import SCRAM_MECHANISMS
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.security.new_scram_users import parse_add_scram
from kafkalog_broker.security.scram import derive_credential, salt_password
from kafkalog_broker.security.scram_changes import apply_changes, mechanism_number
from kafkalog_broker.security.scram_users import FILE, ScramUsers, Users
from kafkalog_spark.errors import CorruptFile, UnsupportedFormat

SHA_256, SHA_512 = SCRAM_MECHANISMS
KEPT = derive_credential(SHA_256, b"salted", b"salt", 4096)
OTHER = derive_credential(SHA_256, b"other", b"salt", 4096)


def users_of(*names: str) -> Users:
    return {SHA_256: dict.fromkeys(names, KEPT), SHA_512: {}}


def loaded(*directories: Path) -> ScramUsers:
    users = ScramUsers(directories)
    users.load()
    return users


def directories(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "a", tmp_path / "b"]
    for one in found:
        one.mkdir()
    return found


def test_load_returns_users_of_the_newest_copy(tmp_path: Path):
    both = directories(tmp_path)
    users = loaded(*both)
    assert users.find_credential(SHA_256, "alice") is None
    users.copies.save(users_of("alice"))
    assert users.find_credential(SHA_256, "alice") is None  # until it is used
    assert loaded(*both).find_credential(SHA_256, "alice") == KEPT
    one = loaded(both[0])
    one.copies.save({SHA_256: {"alice": OTHER}, SHA_512: {}})
    assert loaded(*both).find_credential(SHA_256, "alice") == OTHER


def test_file_is_readable_by_its_owner_only(tmp_path: Path):
    before = os.umask(0)
    try:
        (tmp_path / (FILE + ".tmp")).write_text("of a crash")
        loaded(tmp_path).copies.save(users_of("alice"))
    finally:
        os.umask(before)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_damaged_copy_is_ignored_but_load_fails_if_all_are_damaged(tmp_path: Path):
    both = directories(tmp_path)
    loaded(*both).copies.save(users_of("alice"))
    (both[0] / FILE).write_text('{"version": 0, "generation": 9, "users": {"SCRAM-SHA-256": {"alice": 5}}}')
    assert loaded(*both).find_credential(SHA_256, "alice") == KEPT
    with pytest.raises(CorruptFile, match=FILE):
        loaded(both[0])
    (both[0] / FILE).write_bytes(ScramUsers([]).copies.dump(9, users_of()).replace(b'"version": 0', b'"version": 7'))
    with pytest.raises(UnsupportedFormat, match="version 7"):
        loaded(*both)


def test_users_of_a_failed_save_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    users = ScramUsers([tmp_path])

    def fail(content: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(users.copies, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        users.load(parse_add_scram(["SCRAM-SHA-256=[name=alice,password=secret]"]))
    assert users.find_credential(SHA_256, "alice") is None


def deletion(mechanism: int) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name="alice", mechanism=i8(mechanism))


def upsertion(
    name: str = "alice", mechanism: int = 1, iterations: int = 4096, key: bytes = b"salted"
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=i8(mechanism), iterations=i32(iterations), salt=b"salt", salted_password=key
    )


@pytest.mark.parametrize(
    ("deletions", "upsertions", "outcome", "left"),
    [
        ([], [upsertion("carol")], (ErrorCode.none, None), {"alice", "carol"}),
        ([deletion(1)], [], (ErrorCode.none, None), set()),
        (
            [deletion(2)], [],
            (ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"), {"alice"},
        ),
        (
            [deletion(1)], [upsertion()],
            (ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"), {"alice"},
        ),
        (
            [], [upsertion("carol"), upsertion("carol", 2), upsertion("carol")],
            (ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"), {"alice"},
        ),
        ([], [upsertion("")], (ErrorCode.unacceptable_credential, "Username must not be empty"), {"alice"}),
        ([], [upsertion(mechanism=0)], (ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"), {"alice"}),
        ([], [upsertion(iterations=4095)], (ErrorCode.unacceptable_credential, "Too few iterations"), {"alice"}),
        ([], [upsertion(iterations=16385)], (ErrorCode.unacceptable_credential, "Too many iterations"), {"alice"}),
        ([], [upsertion(key=b"")], (ErrorCode.unknown_server_error, None), {"alice"}),
    ],
)  # fmt: skip
def test_change_has_the_outcome_of_kafka(
    deletions: list[ScramCredentialDeletion],
    upsertions: list[ScramCredentialUpsertion],
    outcome: object,
    left: set[str],
):
    users = users_of("alice")
    request = AlterUserScramCredentialsRequest(deletions=tuple(deletions), upsertions=tuple(upsertions))
    assert list(apply_changes(users, request).values()) == [outcome]
    assert set(users[SHA_256]) == left
    assert users[SHA_512] == {}


def test_mechanisms_have_the_numbers_of_kafka():
    assert [mechanism_number(mechanism) for mechanism in SCRAM_MECHANISMS] == [1, 2]


def test_user_is_parsed_from_the_command_line():
    (one,) = parse_add_scram(['SCRAM-SHA-512=[name=alice,iterations=8192,salt="c2FsdA==",password=a b]'])
    key = salt_password(SHA_512, "a b", b"salt", 8192)
    assert (one.mechanism, one.name, one.credential) == (
        SHA_512,
        "alice",
        derive_credential(SHA_512, key, b"salt", 8192),
    )
    text = base64.b64encode(key).decode()
    (same,) = parse_add_scram([f'SCRAM-SHA-512=[name="alice", salt=c2FsdA==,saltedpassword={text},iterations=8192]'])
    assert same == one
    first, second = parse_add_scram(["SCRAM-SHA-256=[name=alice,password=x]"] * 2)
    assert first.credential.salt != second.credential.salt
    assert "kept" not in repr(first)


@pytest.mark.parametrize(
    "text",
    ["", "SCRAM-SHA-1=[name=a,password=SECRET]", "SCRAM-SHA-256=name=a,password=SECRET",
     "SCRAM-SHA-256=[password=SECRET]",
     "SCRAM-SHA-256=[name=a]", "SCRAM-SHA-256=[name=a,password=SECRET,saltedpassword=SECRET]",
     "SCRAM-SHA-256=[name=a,saltedpassword=c2FsdA==]", "SCRAM-SHA-256=[name=a,password=SECRET,iterations=10]",
     "SCRAM-SHA-256=[name=a,password=SECRET,salt=??]", "SCRAM-SHA-256=[name=a,name=b,password=SECRET]",
     "SCRAM-SHA-256=[name=a,pass=SECRET]"],
)  # fmt: skip
def test_error_for_an_invalid_user_argument_shows_no_password(text: str):
    with pytest.raises(ConfigError) as error:
        parse_add_scram([text])
    assert "SECRET" not in str(error.value)
