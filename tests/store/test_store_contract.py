"""What every store promises (store/interface.py), asked of each of them over the same tree."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest
from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.store.fsspec_store import FsspecStore
from kafkalog_spark.store.hadoop_store import HadoopStore
from kafkalog_spark.store.interface import FileFacts, Store
from kafkalog_spark.store.local_store import LOCAL, LocalStore
from kafkalog_spark.store.object_store import ObjectStore
from kafkalog_spark.store.paths import parse_path
from kafkalog_spark.store.storage_options import StorageOptions
from tests.store.azure_double import AzureDouble
from tests.store.buckets import s3_store

BODY = bytes(range(256)) * 1200  # 300 kB: several pieces
FILES = {
    "orders-0/00000000000000000000.log": BODY,
    "orders-0/00000000000000000000.index": b"12345678",
    "orders-0/00000000000000001000.log": BODY[::-1],
    "orders-0/00000000000000001000.timeindex": b"",
    "orders ö%20-1/00000000000000000000.log": b"a",
    "meta.properties": b"version=0\n",
}


@dataclass
class Tree:
    """FILES in a store. write, remove: what somebody else does to it meanwhile."""

    store: Store
    top: str
    write: Callable[[str, bytes], None]
    remove: Callable[[str], None]

    def path(self, name: str) -> str:
        return f"{self.top}/{name}"


def in_bucket(store: ObjectStore) -> Tree:
    return Tree(store, f"{store.scheme}://tier/{uuid4().hex}", store.put, lambda path: store.delete([path]))


def with_arrow(folder: Path) -> Tree:
    files = ArrowFSWrapper(SubTreeFileSystem(str(folder), LocalFileSystem()))

    class Store(HadoopStore):
        """As of HDFS, over a local file system of Arrow's."""

        _files = files

    def write(path: str, data: bytes) -> None:
        file = folder / parse_path(path).key  # an absolute one is the file's own
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        os.utime(file, ns=(len(data), next(TIMES)))

    return Tree(
        Store("hdfs", "nowhere"), "hdfs://nowhere/logs", write, lambda path: (folder / parse_path(path).key).unlink()
    )


TIMES = iter(range(10**18, 10**19, 10**9))  # no two writes within one tick of the file system's clock


def with_fsspec() -> Tree:
    name = uuid4().hex
    files = fsspec.filesystem("memory")

    def write(path: str, data: bytes) -> None:
        files.pipe_file(f"{name}/{parse_path(path).key}", data)

    def remove(path: str) -> None:
        files.rm(f"{name}/{parse_path(path).key}")

    return Tree(FsspecStore("memory", name), f"memory://{name}/logs", write, remove)


def on_disk(folder: Path) -> Tree:
    arrow = with_arrow(folder)
    return Tree(LOCAL, str(folder), arrow.write, lambda path: os.unlink(path))


def in_azure(azure: AzureDouble) -> Tree:
    given = {"storage.endpoint": azure.endpoint, "storage.account_key": "a2V5"}
    store = ObjectStore("abfss", "tier@acc.dfs.core.windows.net", StorageOptions.of(given))
    top = f"abfss://tier@acc.dfs.core.windows.net/{uuid4().hex}"

    def write(path: str, data: bytes) -> None:
        azure.blobs[parse_path(path).key] = data

    return Tree(store, top, write, lambda path: azure.blobs.__delitem__(parse_path(path).key))


@pytest.fixture(params=["local", "s3", "gs", "abfss", "arrow", "fsspec"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    if request.param == "s3":
        made = in_bucket(s3_store(request.getfixturevalue("s3")))
    elif request.param == "gs":
        made = in_bucket(request.getfixturevalue("gs"))
    elif request.param == "abfss":
        made = in_azure(request.getfixturevalue("azure"))
    elif request.param == "fsspec":
        made = with_fsspec()
    else:
        made = on_disk(tmp_path) if request.param == "local" else with_arrow(tmp_path)
    for name, data in FILES.items():
        made.write(made.path(name), data)
    return made


def test_list_returns_the_files_and_directories(tree: Tree) -> None:
    top = tree.store.list(tree.top)
    assert sorted(top.names) == ["meta.properties", "orders ö%20-1", "orders-0"]
    assert [top.is_directory(name) for name in sorted(top.names)] == [False, True, True]
    assert not top.is_directory("gone")
    listing = tree.store.list(tree.path("orders-0"))
    sizes = {name.removeprefix("orders-0/"): len(data) for name, data in FILES.items() if name.startswith("orders-0/")}
    assert sorted(listing.names) == sorted(sizes)
    assert {name: facts.size for name, facts in listing.files.items()} == (sizes if tree.store.is_remote else {})


def test_list_after_a_name_returns_later_names(tree: Tree) -> None:
    listing = tree.store.list(tree.path("orders-0"), after="00000000000000000000.log")
    assert sorted(listing.names) == ["00000000000000001000.log", "00000000000000001000.timeindex"]
    assert tree.store.list(tree.path("orders-0"), after="00000000000000001000.timeindex").names == []


def test_missing_path_raises_file_not_found(tree: Tree) -> None:
    for ask in (
        lambda: tree.store.list(tree.path("nothing")),
        lambda: tree.store.open(tree.path("nothing")),
        lambda: tree.store.read_all(tree.path("nothing"), 10),
    ):
        with pytest.raises(FileNotFoundError) as caught:
            ask()
        assert caught.value.strerror
        assert caught.value.filename == tree.path("nothing"), "errors say which path it was"
    assert not tree.store.exists(tree.path("nothing"))
    assert tree.store.exists(tree.path("orders-0"))
    assert tree.store.exists(tree.top)


def test_file_and_directory_are_not_confused(tree: Tree) -> None:
    with pytest.raises(NotADirectoryError):
        tree.store.list(tree.path("meta.properties"))
    with pytest.raises(IsADirectoryError if tree.store.is_remote else OSError):
        tree.store.open(tree.path("orders-0"))


@pytest.mark.parametrize("known", [True, False], ids=["listed", "not listed"])
def test_file_reads_return_the_requested_bytes(tree: Tree, known: bool) -> None:
    directory, name = tree.path("orders-0"), "00000000000000000000.log"
    facts = tree.store.list(directory).files.get(name) if known else None
    file = tree.store.open(f"{directory}/{name}", facts)
    assert file.size == len(BODY)
    for position, size in [
        (0, 61),
        (299_000, 500),
        (100, 0),
        (150_000, 100_000),
        (307_199, 10),
        (307_200, 10),
        (1, 10),
    ]:
        assert file.read(position, size) == BODY[position : position + size]
    file.expect(1000, len(BODY))
    target = bytearray(200_000)
    assert file.read_into(1000, memoryview(target)) == 200_000
    assert target == BODY[1000:201_000]
    assert file.read_into(201_000, memoryview(target)) == len(BODY) - 201_000
    assert target[: len(BODY) - 201_000] == BODY[201_000:]
    assert file.read_into(len(BODY) + 5, memoryview(target)) == 0
    assert not file.has_changed()
    file.close()
    file.close()


def test_read_all_returns_small_files_within_the_limit(tree: Tree) -> None:
    assert tree.store.read_all(tree.path("meta.properties"), 1000) == b"version=0\n"
    if isinstance(tree.store, LocalStore):
        with pytest.raises(CorruptFile, match="it has 10 bytes"):
            tree.store.read_all(tree.path("meta.properties"), 7)
    else:
        assert tree.store.read_all(tree.path("meta.properties"), 7) == b"version"
    assert tree.store.read_all(tree.path("orders-0/00000000000000001000.timeindex"), 10) == b""
    assert tree.store.read_all(tree.path("orders ö%20-1/00000000000000000000.log"), 10) == b"a"
    empty = tree.store.open(tree.path("orders-0/00000000000000001000.timeindex"))
    assert (empty.size, empty.read(0, 10), empty.read_into(0, memoryview(bytearray(3)))) == (0, b"", 0)
    empty.expect(0, 100)
    empty.close()


def test_replaced_file_is_not_read_as_the_listed_one(tree: Tree) -> None:
    directory, name = tree.path("orders-0"), "00000000000000000000.log"
    facts = tree.store.list(directory).files.get(name)
    file = tree.store.open(f"{directory}/{name}", facts)
    assert file.read(0, 100) == BODY[:100]
    tree.write(f"{directory}/{name}", b"z" * len(BODY))
    assert file.has_changed()
    file.close()
    if facts is not None:
        with pytest.raises(FileNotFoundError, match="replaced"):
            tree.store.open(f"{directory}/{name}", facts).read(0, 100)
        with pytest.raises(FileNotFoundError, match="replaced"):
            tree.store.ranges(f"{directory}/{name}", facts)(0, 100)


def test_deleted_file_raises_file_not_found(tree: Tree) -> None:
    directory, name = tree.path("orders-0"), "00000000000000000000.log"
    facts = tree.store.list(directory).files.get(name)
    file = tree.store.open(f"{directory}/{name}", facts)
    tree.remove(f"{directory}/{name}")
    assert file.has_changed()
    file.close()
    assert name not in tree.store.list(directory).names
    with pytest.raises(FileNotFoundError):
        tree.store.open(f"{directory}/{name}", facts).read(0, 100)


def test_pickled_stores_are_small_and_equal() -> None:
    options = StorageOptions.of({"fs.s3a.access.key": "a", "fs.s3a.secret.key": "b"})
    for store in (first := ObjectStore("s3", "x", options), FsspecStore("memory", "x", options), LOCAL,
                  HadoopStore("hdfs", "host:8020")):  # fmt: skip
        copy = pickle.loads(pickle.dumps(store))
        assert (copy, hash(copy)) == (store, hash(store))
        assert len(pickle.dumps(store)) < 1000
    assert first != ObjectStore("s3", "x")


def test_file_facts_of_a_replaced_file_have_another_version(tree: Tree) -> None:
    if not tree.store.is_remote:
        pytest.skip("a local listing has no facts")
    path = tree.path("orders-0/00000000000000000000.index")
    before = tree.store.list(tree.path("orders-0")).files["00000000000000000000.index"]
    tree.write(path, b"87654321")
    after = tree.store.list(tree.path("orders-0")).files["00000000000000000000.index"]
    assert isinstance(before, FileFacts)
    assert before.size == after.size
    assert before.version != after.version
