"""A log directory's own file names remote storage: what a reader follows, and what an option has to allow."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkalog_spark.cli import cat, check, repair
from kafkalog_spark.errors import KeyNotGiven, OptionError
from kafkalog_spark.exit_codes import OK, WRONG_USAGE
from kafkalog_spark.format.meta_properties import format_properties
from kafkalog_spark.format.names import REMOTE_STORAGE_FILE
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.discovery import RemoteDir
from kafkalog_spark.log.read.partition_log import PartitionLocation
from kafkalog_spark.log.read.roots import Root
from kafkalog_spark.log.remote.recorded_storage import recorded_dirs
from kafkalog_spark.log.remote.refused_store import RefusedStore
from kafkalog_spark.log.remote.remote_storage_options import CLASS_NAME, LOCAL_TIERED_CLASS
from kafkalog_spark.log.tiered.tier_options import TierOptions
from kafkalog_spark.store.local_store import LOCAL, LocalStore
from kafkalog_spark.store.object_store import ObjectStore
from kafkalog_spark.store.storage_options import StorageOptions
from kafkalog_spark.store.stores import store_of
from tests.log.remote.moving_log import DATE, MovingLog
from tests.log.tiered.aiven_writer import KEY_ID, KEYS
from tests.log.tiered.golden_tiered import CLEAN
from tests.log.tiered.reading import consumed, opened, rows_of

TOPIC = "transactions"
S3 = {
    "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
    "rsm.config.storage.s3.bucket.name": "tier",
}
AZURE = {
    "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.azure.AzureBlobStorage",
    "rsm.config.storage.azure.container.name": "tier",
}
KEY_FILE = f"rsm.config.encryption.key.pairs.{KEY_ID}.private.key.file"


@dataclass(frozen=True)
class FileStore(LocalStore):
    """A store with one file, of these properties."""

    content: bytes
    is_remote = False

    def read_all(self, path: str, most: int) -> bytes:
        return self.content


class BucketStore(FileStore):
    is_remote = True


class UnreadableStore(LocalStore):
    def read_all(self, path: str, most: int) -> bytes:
        raise PermissionError(13, "Permission denied", path)


class Place(PartitionLocation):
    def topic_id(self) -> uuid.UUID | None:
        return uuid.UUID(int=1)


def found(
    log_dir: str,
    properties: Mapping[str, str],
    options: Mapping[str, str] | None = None,
    paths: tuple[Root, ...] = (),
    store: type[FileStore] = FileStore,
) -> RemoteDir:
    """The remote directory of a partition in a log directory with these properties, read with these options."""
    file = Root(f"{log_dir}/{REMOTE_STORAGE_FILE}", store(format_properties(properties, DATE)))
    given = dict(options or {})
    tier = TierOptions.of(given)
    storage = StorageOptions.of({name: text for name, text in given.items() if not name.startswith("tiered.")})
    place = Place("orders", 0, f"{log_dir}/orders-0", LOCAL)
    return recorded_dirs(file, [place], [Root(log_dir, LOCAL), *paths], storage, tier).dirs[0]


def refusal(remote: RemoteDir) -> str:
    with pytest.raises(OptionError) as refused:
        remote.store.list(remote.directory)
    return str(refused.value)


@pytest.mark.parametrize(
    "properties",
    [
        {"rsm.config.storage.root": "/data/tier"},
        {"rsm.config.storage.root": "/data/other/../tier"},
        {CLASS_NAME: LOCAL_TIERED_CLASS, "rsm.config.dir": "/data/tier"},
    ],
)
def test_folder_beside_the_log_directory_is_read(properties: dict[str, str]) -> None:
    remote = found("/data/logs", properties)
    assert remote.store is LOCAL
    assert remote.directory.startswith("/data/tier/")


@pytest.mark.parametrize(
    ("properties", "options"),
    [
        ({"rsm.config.storage.root": "/home/me"}, "tiered.root=/home/me"),
        ({"rsm.config.storage.root": "/data"}, "tiered.root=/data"),
        ({"rsm.config.storage.root": "/data/tier/deeper"}, "tiered.root=/data/tier/deeper"),
        ({"rsm.config.storage.root": "s3://tier"}, "tiered.root=s3://tier"),
        ({"rsm.config.storage.root": "/x;rm -rf ~"}, "'tiered.root=/x;rm -rf ~'"),
        ({CLASS_NAME: LOCAL_TIERED_CLASS, "rsm.config.dir": "/"}, "tiered.root=/kafka-tiered-storage"),
        (S3, "tiered.root=s3://tier"),
        (
            {**S3, "rsm.config.storage.s3.endpoint.url": "http://evil:9"},
            "tiered.root=s3://tier fs.s3a.endpoint=http://evil:9",
        ),
        (
            {
                **AZURE,
                "rsm.config.storage.azure.account.name": "them",
                "rsm.config.storage.azure.endpoint.url": "http://evil:9",
            },
            "tiered.root=az://tier storage.account_name=them storage.endpoint=http://evil:9",
        ),
        (
            {**S3, "rsm.config.encryption.key.pairs": KEY_ID, KEY_FILE: "/keys/one.pem"},
            f"tiered.root=s3://tier tiered.encryption.key.{KEY_ID}=/keys/one.pem",
        ),
    ],
)
def test_root_elsewhere_is_refused_and_names_the_options_that_allow_it(
    properties: dict[str, str], options: str
) -> None:
    remote = found("/data/logs", properties)
    assert isinstance(remote.store, RefusedStore)
    message = refusal(remote)
    assert f"/data/logs/{REMOTE_STORAGE_FILE}: names " in message
    assert f"give the options {options} (commands" in message


def test_endpoint_of_the_file_is_refused_although_the_root_is_given() -> None:
    properties = {**S3, "rsm.config.storage.s3.endpoint.url": "http://evil:9"}
    remote = found("/data/logs", properties, {"tiered.root": "s3://tier"})
    assert "give the options fs.s3a.endpoint=http://evil:9 (commands" in refusal(remote)


@pytest.mark.parametrize("name", ["fs.s3a.endpoint", "storage.endpoint", "fs.s3a.bucket.tier.endpoint"])
def test_endpoint_of_the_reader_is_used_instead_of_the_file(name: str) -> None:
    properties = {
        **S3,
        "rsm.config.storage.s3.endpoint.url": "http://evil:9",
        "rsm.config.storage.s3.path.style.access.enabled": "true",
        "rsm.config.storage.s3.region": "eu-north-1",
    }
    remote = found("/data/logs", properties, {"tiered.root": "s3://tier", name: "http://mine:9"})
    assert isinstance(remote.store, ObjectStore)
    config = remote.store.options.for_s3("tier").config
    assert config["endpoint"] == "http://mine:9"
    assert (config["region"], config["virtual_hosted_style_request"]) == ("eu-north-1", "false")


def test_region_that_would_change_the_host_is_ignored() -> None:
    properties = {**S3, "rsm.config.storage.s3.region": "x.evil.org/"}
    remote = found("/data/logs", properties, {"tiered.root": "s3://tier"})
    assert isinstance(remote.store, ObjectStore)
    assert "region" not in remote.store.options.for_s3("tier").config


def test_credentials_in_the_file_are_ignored() -> None:
    properties = {
        **S3,
        "rsm.config.storage.aws.access.key.id": "theirs",
        "rsm.config.storage.aws.secret.access.key": "theirs",
    }
    remote = found("/data/logs", properties, {"tiered.root": "s3://tier"})
    assert remote.store == store_of("s3://tier")


def test_root_option_replaces_the_recorded_root() -> None:
    local = {CLASS_NAME: LOCAL_TIERED_CLASS, "rsm.config.dir": "/var/tier"}
    assert found("/backup/logs", local, {"tiered.root": "/backup/t"}).tier_root == "/backup/t/kafka-tiered-storage"
    moved = {**S3, "rsm.config.storage.s3.endpoint.url": "http://other:9"}
    remote = found("/backup/logs", moved, {"tiered.root": "/backup/tier"})
    assert remote.store is LOCAL
    assert remote.directory.startswith("/backup/tier/orders-")


def test_remote_directories_below_a_path_of_the_read_are_allowed() -> None:
    store = store_of("s3://tier/a", StorageOptions.of({"fs.s3a.endpoint": "http://mine:9"}))
    properties = {**S3, "rsm.config.storage.s3.endpoint.url": "http://evil:9", "rsm.config.key.prefix": "a/"}
    remote = found("/data/logs", properties, paths=(Root("s3://tier/a", store),))
    assert remote.store is store
    other = found("/data/logs", properties, paths=(Root("s3://tier/abc", store),))
    assert isinstance(other.store, RefusedStore)


def test_bucket_is_not_beside_a_log_directory_in_another_bucket() -> None:
    remote = found("s3://backup", S3, store=BucketStore)
    assert isinstance(remote.store, RefusedStore)
    local = found("s3://backup/logs", {"rsm.config.storage.root": "/etc"}, store=BucketStore)
    assert isinstance(local.store, RefusedStore)


def test_unreadable_file_does_not_prevent_reading_local_records() -> None:
    file = Root(f"/data/logs/{REMOTE_STORAGE_FILE}", UnreadableStore())
    place = Place("orders", 0, "/data/logs/orders-0", LOCAL)
    (remote,) = recorded_dirs(file, [place], [], None, TierOptions()).dirs
    assert "cannot be read, and says where remote segments of this log are: Permission denied" in refusal(remote)


@pytest.fixture
def moved(tmp_path: Path) -> MovingLog:
    """A log of which most is remote, encrypted, in a folder that is not beside the log directory."""
    tier = tmp_path / "elsewhere" / "tier"
    log = MovingLog(
        tmp_path,
        TOPIC,
        {
            "rsm.config.storage.root": str(tier),
            "rsm.config.encryption.enabled": "true",
            "rsm.config.encryption.key.pair.id": KEY_ID,
            "rsm.config.encryption.key.pairs": KEY_ID,
            KEY_FILE: str(KEYS / "one.pem"),
        },
    )
    log.move(3)
    return log


def test_log_partly_elsewhere_is_read_with_the_options_named_in_the_error(moved: MovingLog) -> None:
    with pytest.raises(OptionError, match=rf"^{TOPIC}-0 .* which no option allows; if you trust it") as refused:
        opened(moved.data, topic=TOPIC, tier=TierOptions())
    said = str(refused.value).split("give the options ")[1].split(" (commands")[0]
    options = dict(option.split("=", 1) for option in said.split())
    assert list(options) == ["tiered.root", f"tiered.encryption.key.{KEY_ID}"]
    assert rows_of(opened(moved.data, topic=TOPIC, tier=TierOptions.of(options))) == consumed(CLEAN, TOPIC)
    with_path = TierOptions.of({f"tiered.encryption.key.{KEY_ID}": str(KEYS / "one.pem")})
    assert rows_of(opened(moved.data, options["tiered.root"], topic=TOPIC, tier=with_path)) == consumed(CLEAN, TOPIC)


def test_commands_name_the_options_for_remote_storage_elsewhere(
    moved: MovingLog, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (lambda: cat.main([str(moved.data), "-t", TOPIC]), lambda: check.main([str(moved.data)])):
        assert command() == WRONG_USAGE
        assert "give the options tiered.root=" in capsys.readouterr().err


def test_repair_reads_remote_storage_elsewhere_with_options_only(
    moved: MovingLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "repaired"
    command = [str(moved.data / f"{TOPIC}-0"), "--to", str(target)]
    assert repair.main(command) == WRONG_USAGE
    assert "give the options tiered.root=" in capsys.readouterr().err
    assert not target.exists()
    root, key = tmp_path / "elsewhere" / "tier", KEYS / "one.pem"
    options = ["--option", f"tiered.root={root}", "--option", f"tiered.encryption.key.{KEY_ID}={key}"]
    assert repair.main(command + options) == OK
    assert rows_of(opened(target, topic=TOPIC)) == consumed(CLEAN, TOPIC)


def test_key_file_that_the_directory_names_is_not_opened(moved: MovingLog, tmp_path: Path) -> None:
    file = moved.data / REMOTE_STORAGE_FILE
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    file.write_bytes(file.read_bytes().replace(str(KEYS / "one.pem").encode(), str(pipe).encode()))
    tier = TierOptions.of({"tiered.root": str(tmp_path / "elsewhere" / "tier")})
    with pytest.raises(KeyNotGiven, match=rf"option tiered.encryption.key.{KEY_ID} to .* has it in {pipe}"):
        rows_of(opened(moved.data, topic=TOPIC, tier=tier))


def test_key_option_that_names_a_pipe_or_a_device_is_refused(moved: MovingLog, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        tier = TierOptions.of(
            {"tiered.root": str(tmp_path / "elsewhere" / "tier"), f"tiered.encryption.key.{KEY_ID}": str(path)}
        )
        with pytest.raises(OptionError, match="is neither a PEM nor a path that can be read: is not a regular file"):
            rows_of(opened(moved.data, topic=TOPIC, tier=tier))


class Listener(threading.Thread):
    """Counts the connections to a port of this machine, which it closes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.connections = 0

    def run(self) -> None:
        try:
            while True:
                connection, _ = self.socket.accept()
                self.connections += 1
                connection.close()
        except OSError:
            return


@pytest.mark.parametrize("bucket", [{**S3, "endpoint": "s3"}, {**AZURE, "endpoint": "azure"}], ids=["s3", "azure"])
def test_endpoint_named_by_the_directory_receives_no_request(moved: MovingLog, bucket: dict[str, str]) -> None:
    listener = Listener()
    listener.start()
    vendor = bucket.pop("endpoint")
    properties = {**bucket, f"rsm.config.storage.{vendor}.endpoint.url": listener.endpoint}
    (moved.data / REMOTE_STORAGE_FILE).write_bytes(format_properties(properties, DATE))
    storage = StorageOptions.of({"storage.sas_key": "sig=abc", "fs.s3a.access.key": "k", "fs.s3a.secret.key": "s"})
    dirs = LogDirs.open(moved.data, storage)
    with pytest.raises(OptionError, match="which no option allows"):
        dirs.partition(TOPIC, 0)
    listener.socket.close()
    assert listener.connections == 0
