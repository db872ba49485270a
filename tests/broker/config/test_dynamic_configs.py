"""Storage of dynamic configuration properties."""

from __future__ import annotations

import errno

import pytest

from kafkalog_broker.config.dynamic_configs import CLIENT_METRICS, FILE, GROUPS, DynamicConfigs
from kafkalog_spark.errors import UnsupportedFormat
from kafkalog_spark.format.regular_file import read_state


def loaded(*directories, node=1):
    configs = DynamicConfigs(directories, node)
    configs.load()
    return configs


@pytest.fixture
def two(tmp_path):
    directories = tmp_path / "a", tmp_path / "b"
    for directory in directories:
        directory.mkdir()
    return directories


def test_load_returns_the_saved_properties(two):
    loaded(*two).save({"log.retention.ms": "5"}, {"message.max.bytes": "6"})
    again = loaded(*two)
    assert (again.default, again.broker) == ({"log.retention.ms": "5"}, {"message.max.bytes": "6"})


def test_file_is_readable_by_its_owner_only(two):
    for directory in two:
        (directory / FILE).touch(mode=0o644)  # as a release before this one left it
    loaded_anew = DynamicConfigs(two, 1)
    loaded_anew.save({"ssl.keystore.password": "secret"}, {})
    assert [(directory / FILE).stat().st_mode & 0o777 for directory in two] == [0o600, 0o600]


def test_load_returns_the_newest_copy(two):
    configs = loaded(*two)
    configs.save({"a": "1"}, {})
    old = (two[0] / FILE).read_bytes()
    configs.save({"a": "2"}, {})
    (two[0] / FILE).write_bytes(old)
    assert loaded(*two).default == {"a": "2"}


def test_save_keeps_the_properties_of_other_nodes(two):
    loaded(*two, node=1).save({}, {"a": "1"})
    loaded(*two, node=2).save({}, {"a": "2"})
    assert loaded(*two, node=1).broker == {"a": "1"}
    assert loaded(*two, node=2).broker == {"a": "2"}


def test_properties_survive_a_failed_log_directory(two):
    configs = loaded(*two)
    two[0].rmdir()
    configs.save({"a": "1"}, {})
    assert loaded(*two).default == {"a": "1"}
    (two[1] / FILE).unlink()
    two[1].rmdir()
    with pytest.raises(OSError, match="No such file"):
        configs.save({"a": "2"}, {})
    assert configs.default == {"a": "1"}


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"version": 0}', b'{"version":0,"generation":1,"default":{"a":1},"brokers":{}}']
)
def test_damaged_copy_is_ignored(two, damage):
    loaded(*two).save({"a": "1"}, {})
    (two[0] / FILE).write_bytes(damage)
    assert loaded(*two).default == {"a": "1"}


def test_load_fails_if_no_copy_can_be_read(two, monkeypatch):
    loaded(*two).save({"a": "1"}, {})

    def refuse(path, parse):
        raise OSError(errno.EIO, "Input/output error", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("kafkalog_broker.config.state_copies.read_state", refuse)
        with pytest.raises(OSError, match="Input/output error"):
            loaded(*two)
    assert loaded(*two).default == {"a": "1"}


def test_load_without_a_free_descriptor_fails_and_uses_no_older_copy(two, monkeypatch):
    configs = loaded(*two)
    configs.save({"a": "1"}, {})
    old = (two[0] / FILE).read_bytes()
    configs.save({"a": "2"}, {})
    (two[0] / FILE).write_bytes(old)

    def refuse(path, parse):
        if path.parent == two[1]:
            raise OSError(errno.EMFILE, "Too many open files", str(path))
        return read_state(path, parse)

    monkeypatch.setattr("kafkalog_broker.config.state_copies.read_state", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        loaded(*two)


def test_file_of_a_later_version_fails_the_start(two):
    (two[0] / FILE).write_bytes(b'{"version": 1}')
    with pytest.raises(UnsupportedFormat, match="version 1"):
        loaded(*two)


def test_client_metrics_subscriptions_survive_a_restart(two):
    configs = loaded(*two)
    configs.save_resource(GROUPS, "g", {"consumer.session.timeout.ms": "50000"})
    configs.save_resource(CLIENT_METRICS, "m", {"interval.ms": "1000"})
    configs.save_resource(CLIENT_METRICS, "n", {"interval.ms": "2000"})
    configs.save_resource(CLIENT_METRICS, "n", {})
    again = loaded(*two)
    assert again.resources == {
        GROUPS: {"g": {"consumer.session.timeout.ms": "50000"}},
        CLIENT_METRICS: {"m": {"interval.ms": "1000"}},
    }
