"""Paths: one text for one place, and which store it lies in."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.utils import infer_storage_options
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from kafkalog_spark.errors import NotALogDirectory, OptionError
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.store.fsspec_store import FsspecStore
from kafkalog_spark.store.hadoop_store import HadoopStore
from kafkalog_spark.store.object_store import ObjectStore
from kafkalog_spark.store.paths import PathParts, is_local, normalised, parse_path
from kafkalog_spark.store.storage_options import StorageOptions
from kafkalog_spark.store.stores import store_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://bucket/logs", "s3://bucket/logs"),
        ("s3a://bucket//logs/a///b/", "s3://bucket/logs/a/b"),
        ("S3A://bucket", "s3://bucket"),
        ("s3n://bucket/", "s3://bucket"),
        ("gcs://bucket/x", "gs://bucket/x"),
        ("abfs://c@account.dfs.core.windows.net/x/", "abfss://c@account.dfs.core.windows.net/x"),
        ("az://container/x y/ö", "az://container/x y/ö"),
        ("hdfs://name:8020/kafka/", "hdfs://name:8020/kafka"),
        ("hdfs:///kafka", "hdfs:///kafka"),
        ("memory://logs/a", "memory://logs/a"),
        ("file:///kafka//logs/", "/kafka/logs"),
        ("file:/kafka/logs", "/kafka/logs"),
        ("file://localhost/kafka", "/kafka"),
        ("/kafka/../logs", "/logs"),
        ("logs", os.path.join(os.getcwd(), "logs")),
        ("a:b", os.path.join(os.getcwd(), "a:b")),
    ],
)
def test_equal_locations_have_equal_text(path: str, expected: str) -> None:
    assert normalised(path) == expected
    assert normalised(normalised(path)) == expected
    assert is_local(path) == expected.startswith("/")


def test_url_paths_join_and_split_like_local_paths() -> None:
    joined = os.path.join(normalised("s3a://bucket/logs/"), "orders-0", "0.log")
    assert joined == "s3://bucket/logs/orders-0/0.log"
    assert parse_path(joined) == PathParts("s3", "bucket", "logs/orders-0/0.log")
    assert (os.path.basename(joined), os.path.dirname(joined)) == ("0.log", "s3://bucket/logs/orders-0")


@pytest.mark.parametrize("path", ["s3://", "s3:///key", "gs:///x", "abfss:///x", "s3://b/a/../c", "s3://b/./c"])
def test_invalid_paths_are_refused(path: str) -> None:
    with pytest.raises(OptionError, match=r"names no bucket|has a \. or \.\."):
        parse_path(path)


@pytest.mark.parametrize("path", ["s3://AKIA:CANARY@bucket/x", "s3a://AKIA@bucket", "hdfs://user:CANARY@host/x"])
def test_credentials_in_a_path_are_refused_without_being_shown(path: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_path(path)
    assert "credentials" in str(caught.value)
    assert "CANARY" not in str(caught.value)
    assert "AKIA" not in str(caught.value)


def test_path_determines_its_store() -> None:
    options = StorageOptions.of({"fs.s3a.endpoint": "h"})
    assert store_of("s3a://b/x", options) == store_of("s3://b//y/", options) == ObjectStore("s3", "b", options)
    assert store_of("s3://b/x") != store_of("s3://b/x", options)
    assert store_of("gs://b/x") == ObjectStore("gs", "b", StorageOptions())
    assert store_of("abfs://c@a.dfs.core.windows.net/x") == ObjectStore(
        "abfss", "c@a.dfs.core.windows.net", StorageOptions()
    )
    assert store_of("hdfs://h:1/x") == HadoopStore("hdfs", "h:1", StorageOptions())
    assert store_of("memory://m/x") == FsspecStore("memory", "m", StorageOptions())
    assert all(store_of(path).is_remote for path in ("s3://b", "hdfs:///x", "memory://m"))


WITHOUT = """
import sys
for name in ("obstore", "fsspec", "boto3"):
    sys.modules[name] = None  # as if it was not installed
from kafkalog_spark.store.stores import store_of
for path in ("s3://b/x", "memory://m/x"):
    try:
        store_of(path).list(path)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""


def test_library_that_is_missing_is_named_with_what_to_install() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    what_to_do = (
        "which is not installed here; pip install 'fsspec>=2024.6' 'obstore>=0.12' on the driver and on every worker"
    )
    assert ran.stdout.splitlines() == [
        f"OptionError: object stores are read with the package obstore, {what_to_do}",
        f"OptionError: memory:// is read with the package fsspec, {what_to_do}",
    ], ran.stderr


def test_scheme_unknown_to_fsspec_is_refused() -> None:
    with pytest.raises(OptionError, match="nosuchscheme:// cannot be read"):
        store_of("nosuchscheme://x/y").list("nosuchscheme://x/y")
    odd = StorageOptions.of({"storage.fsspec.target_protocol": "CANARY"})
    with pytest.raises(OptionError) as caught:
        store_of("dir://x/y", odd).list("dir://x/y")
    assert "CANARY" not in str(caught.value)


def test_hdfs_without_hadoop_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_HOME", "CLASSPATH", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(OSError, match="HADOOP_HOME"):
        store_of("hdfs://127.0.0.1:1/x").list("hdfs://127.0.0.1:1/x")


@pytest.mark.parametrize(
    ("path", "host", "port"),
    [
        ("hdfs://name:8020/a/b", "hdfs://name", 8020),
        ("viewfs://cluster/a/b", "viewfs://cluster", 0),
        ("hdfs:///a/b", "default", 0),
    ],
)
def test_hdfs_url_determines_the_name_node(monkeypatch: pytest.MonkeyPatch, path: str, host: str, port: int) -> None:
    asked: list[tuple[str, int, str | None]] = []

    def connect(host: str, port: int, user: str | None, **_: object) -> SubTreeFileSystem:
        asked.append((host, port, user))
        return SubTreeFileSystem("/nowhere", LocalFileSystem())

    monkeypatch.setattr("pyarrow.fs.HadoopFileSystem", connect)
    assert not store_of(path, StorageOptions.of({"storage.fsspec.user": host})).exists(path)
    assert asked == [(host, port, host)]


class RemoteFiles(MemoryFileSystem):  # type: ignore[misc]
    """A file system with a server, as SFTPFileSystem is one: the URL names the host, and a path has none."""

    protocol = "remotefiles"
    cachable = False
    arguments: ClassVar[list[dict[str, Any]]] = []
    error: ClassVar[Exception | None] = None

    def __init__(self, host: str, **arguments: Any) -> None:
        if self.error is not None:
            raise self.error
        super().__init__()
        self.arguments.append({"host": host, **arguments})

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(infer_storage_options(path)["path"])

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {name: value for name, value in infer_storage_options(path).items() if name not in ("path", "protocol")}


@pytest.fixture
def remote_files(monkeypatch: pytest.MonkeyPatch) -> type[RemoteFiles]:
    monkeypatch.setattr(RemoteFiles, "arguments", [])
    monkeypatch.setattr(RemoteFiles, "error", None)
    fsspec.register_implementation("remotefiles", RemoteFiles, clobber=True)
    return RemoteFiles


def test_host_port_and_user_of_a_url_reach_the_file_system(remote_files: type[RemoteFiles]) -> None:
    path = "remotefiles://me@server:2222/logs/orders-0"
    fsspec.filesystem("memory").pipe_file("/logs/orders-0/x.log", b"data")
    store = store_of(path)
    assert store.list(path).names == ["x.log"]
    assert store.read_all(f"{path}/x.log", 9) == b"data"
    assert remote_files.arguments[0] == {"host": "server", "port": 2222, "username": "me"}
    store_of(path, StorageOptions.of({"storage.fsspec.username": "other", "storage.fsspec.port": "22"})).exists(path)
    assert remote_files.arguments[-1] == {"host": "server", "port": 22, "username": "other"}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("look_for_keys", "false", False),
        ("allow_agent", "True", True),
        ("timeout", "5", 5),
        ("banner_timeout", "2.5", 2.5),
        ("offset", "-1", -1),
        ("password", "123456", "123456"),
        ("username", "true", "true"),
        ("key_filename", '["/a", "/b"]', ["/a", "/b"]),
        ("anything", '"5"', "5"),
        ("anything", "007", "007"),
        ("anything", "{no json", "{no json"),
        ("anything", "1.2.3.4", "1.2.3.4"),
    ],
)
def test_file_system_arguments_are_converted_to_their_types(
    name: str, text: str, value: object, remote_files: type[RemoteFiles]
) -> None:
    store_of("remotefiles://h/x", StorageOptions.of({f"storage.fsspec.{name}": text})).exists("remotefiles://h/x")
    given = remote_files.arguments[-1][name]
    assert (given, type(given)) == (value, type(value))


class AuthenticationException(Exception):
    """As paramiko's, which is no OSError."""


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "CANARY"), "Connection refused"),
        (socket.gaierror(-2, "CANARY"), "gaierror"),
        (AuthenticationException("CANARY"), "AuthenticationException"),
    ],
)
def test_server_that_cannot_be_reached_is_an_error_of_its_own_scheme(
    raised: Exception, reason: str, remote_files: type[RemoteFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_files, "error", raised)
    with pytest.raises(NotALogDirectory) as caught:
        LogDirs.open("remotefiles://server/logs")
    assert f"the file system fails ({reason})" in str(caught.value)
    assert "CANARY" not in str(caught.value)


def test_ftp_server_that_is_not_there_is_not_reported_as_hdfs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NotALogDirectory, match=r"ftp://127.0.0.1:[0-9]+/logs: cannot be read: .*Connection refused"):
        LogDirs.open(f"ftp://127.0.0.1:{port}/logs")
