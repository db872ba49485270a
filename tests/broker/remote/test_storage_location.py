"""Starts with a remote storage that is missing, empty, different from the recorded one, or misconfigured."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafkalog_broker.config.broker_config import BrokerConfig
from kafkalog_broker.remote.remote_log_metadata_cache import COPY_FINISHED
from kafkalog_broker.remote.remote_log_metadata_manager import RemoteLogMetadataManager
from kafkalog_broker.remote.storage_location import open_remote_storage, settle_location
from kafkalog_spark.errors import OptionError, RemoteStorageError
from kafkalog_spark.format.names import REMOTE_STORAGE_FILE, REMOTE_STORAGE_MARKER
from kafkalog_spark.log.remote.remote_storage import RemoteStorage
from tests.broker.remote.helpers.remote_logs import begun
from tests.broker.remote.helpers.tiered_broker import LOCAL_TIERED
from tests.broker.storage.helpers.managed_logs import NOW
from tests.log.tiered.aiven_writer import KEYS

_BACKEND = "io.aiven.kafka.tieredstorage.storage."
S3 = {
    "rsm.config.storage.backend.class": f"{_BACKEND}s3.S3Storage",
    "rsm.config.storage.s3.bucket.name": "tier", "rsm.config.storage.s3.region": "eu-central-1",
}  # fmt: skip
GCS = {"rsm.config.storage.backend.class": f"{_BACKEND}gcs.GcsStorage", "rsm.config.storage.gcs.bucket.name": "tier"}
AZURE = {
    "rsm.config.storage.backend.class": f"{_BACKEND}azure.AzureBlobStorage",
    "rsm.config.storage.azure.container.name": "tier",
}
ENCRYPTED = {
    "rsm.config.encryption.enabled": "true", "rsm.config.encryption.key.pair.id": "one",
    "rsm.config.encryption.key.pairs": "one",
}  # fmt: skip
KEY_FILE = "rsm.config.encryption.key.pairs.one.private.key.file"
NO_SEGMENTS = RemoteLogMetadataManager(1, None, None, None)  # type: ignore[arg-type]


def open_with(data: Path, properties: Mapping[str, object]) -> RemoteStorage:
    data.mkdir(exist_ok=True)
    config = BrokerConfig.from_properties({"remote.log.storage.system.enable": "true", **properties})
    return open_remote_storage(lambda: config, data, [data])


def moved_log(data: Path) -> RemoteLogMetadataManager:
    """A log directory whose remote segments are in LocalTieredStorage's folder beside it; what it knows of them."""

    async def run() -> RemoteLogMetadataManager:
        logs = await begun(data)
        logs.append(range(40))
        await logs.settle()
        assert logs.finished()
        await logs.stop()
        logs.broker.dirs.close()
        settle_location(logs.storage, logs.manager.metadata, [data], NOW)
        return logs.manager.metadata

    return asyncio.run(run())


def in_folder(folder: Path) -> dict[str, object]:
    return {"remote.log.storage.manager.class.name": LOCAL_TIERED, "rsm.config.dir": folder}


def test_default_folder_is_created_at_the_start_and_recorded(tmp_path: Path) -> None:
    storage = open_with(tmp_path / "data", {})
    settle_location(storage, NO_SEGMENTS, [tmp_path / "data"], NOW)
    assert (tmp_path / "data-remote" / REMOTE_STORAGE_MARKER).exists()
    assert str(tmp_path / "data-remote") in (tmp_path / "data" / REMOTE_STORAGE_FILE).read_text()


def test_recorded_location_is_readable_by_the_brokers_user_only_and_has_no_secret(tmp_path: Path) -> None:
    data = tmp_path / "data"
    secrets = {
        "rsm.config.storage.aws.access.key.id": "secret-id",
        "rsm.config.storage.aws.secret.access.key": "secret-key",
        "rsm.config.encryption.key.pairs.one.passphrase": "secret-phrase",
    }
    settle_location(open_with(data, {**S3, **secrets}), NO_SEGMENTS, [data], NOW)
    file = data / REMOTE_STORAGE_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert "secret" not in file.read_text()
    assert "storage.s3.bucket.name=tier" in file.read_text()


def test_default_folder_stays_beside_the_first_log_directory_while_that_is_offline(tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    config = BrokerConfig.from_properties({"remote.log.storage.system.enable": "true"})
    storage = open_remote_storage(lambda: config, tmp_path / "first", [second])
    assert storage.options.root == str(tmp_path / "first-remote")


def test_folder_that_is_not_writable_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tier"
    folder.mkdir()
    storage = open_with(tmp_path / "data", {"rsm.config.storage.root": folder})

    def mark(self: RemoteStorage) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(RemoteStorage, "mark", mark)
    with pytest.raises(OptionError, match=f"the folder of remote storage {folder} is not writable: Read-only"):
        settle_location(storage, NO_SEGMENTS, [tmp_path / "data"], NOW)
    assert not (tmp_path / "data" / REMOTE_STORAGE_FILE).exists()


@pytest.mark.parametrize("name", ["rsm.config.storage.root", "rsm.config.dir"])
@pytest.mark.parametrize("kind", ["missing", "file"])
def test_named_folder_that_does_not_exist_is_refused_and_not_created(tmp_path: Path, name: str, kind: str) -> None:
    folder = tmp_path / "tier"
    if kind == "file":
        folder.touch()
    layout = {"remote.log.storage.manager.class.name": LOCAL_TIERED} if name.endswith("dir") else {}
    with pytest.raises(OptionError, match=f"{name} is {folder}, which is not a directory; create it, or mount"):
        open_with(tmp_path / "data", {name: folder, **layout})
    assert folder.exists() == (kind == "file")


def test_empty_mount_point_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "data-remote"
    metadata = moved_log(data)
    recorded = (data / REMOTE_STORAGE_FILE).read_bytes()
    folder.rename(tmp_path / "unmounted")
    folder.mkdir()
    with pytest.raises(
        RemoteStorageError, match=f"{folder} holds none of the . remote segments that __remote_log_meta"
    ):
        settle_location(open_with(data, in_folder(folder)), metadata, [data], NOW)
    assert list(folder.iterdir()) == []
    assert (data / REMOTE_STORAGE_FILE).read_bytes() == recorded
    (folder / REMOTE_STORAGE_MARKER).touch()  # as the error says, where the segments are lost
    settle_location(open_with(data, in_folder(folder)), metadata, [data], NOW)


def test_folder_written_by_kafka_is_recognised_by_a_segment(tmp_path: Path) -> None:
    metadata = moved_log(tmp_path / "data")
    (tmp_path / "data-remote" / REMOTE_STORAGE_MARKER).unlink()
    (tmp_path / "data" / REMOTE_STORAGE_FILE).unlink()
    storage = open_with(tmp_path / "data", in_folder(tmp_path / "data-remote"))
    settle_location(storage, metadata, [tmp_path / "data"], NOW)
    assert (tmp_path / "data-remote" / REMOTE_STORAGE_MARKER).exists()


def test_other_location_without_the_segments_is_refused_and_the_recorded_location_is_kept(tmp_path: Path) -> None:
    """As after a move of the log directory alone: the default folder is beside it, by its name."""
    metadata = moved_log(tmp_path / "data")
    moved = (tmp_path / "data").rename(tmp_path / "moved")
    recorded = (moved / REMOTE_STORAGE_FILE).read_bytes()
    local_tiered = {"remote.log.storage.manager.class.name": LOCAL_TIERED}
    with pytest.raises(
        RemoteStorageError, match=r"is now .*/moved-remote, which holds none .* they are in .*/data-remote"
    ):
        settle_location(open_with(moved, local_tiered), metadata, [moved], NOW)
    assert not (tmp_path / "moved-remote").exists()
    assert (moved / REMOTE_STORAGE_FILE).read_bytes() == recorded
    (tmp_path / "data-remote").rename(tmp_path / "moved-remote")
    settle_location(open_with(moved, local_tiered), metadata, [moved], NOW)
    assert str(tmp_path / "moved-remote") in (moved / REMOTE_STORAGE_FILE).read_text()


def test_other_bucket_that_is_unreachable_is_reported_and_the_recorded_location_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    metadata = moved_log(data)
    recorded = (data / REMOTE_STORAGE_FILE).read_bytes()
    away = {
        **S3, "rsm.config.storage.s3.endpoint.url": "http://127.0.0.1:9",
        "rsm.config.storage.aws.access.key.id": "k", "rsm.config.storage.aws.secret.access.key": "s",
        "rsm.config.storage.s3.api.call.timeout": "100",
    }  # fmt: skip
    settle_location(open_with(data, away), metadata, [data], NOW)
    (line,) = [record.getMessage() for record in caplog.records if "remote storage is now" in record.getMessage()]
    assert "s3://tier" in line
    assert str(tmp_path / "data-remote") in line
    assert (data / REMOTE_STORAGE_FILE).read_bytes() == recorded


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "key file missing": ({**ENCRYPTED, KEY_FILE: "/nowhere/one.pem"}, f"{KEY_FILE} is neither a PEM nor a path"),
    "key file is junk": ({**ENCRYPTED, KEY_FILE: "{junk}"}, f"{KEY_FILE}: not a private RSA key"),
    "public key": ({**ENCRYPTED, KEY_FILE: "{public}"}, f"{KEY_FILE}: a public key"),
    "empty root": ({"rsm.config.storage.root": ""}, "rsm.config.storage.root is missing"),
    "no URL of S3": ({**S3, "rsm.config.storage.s3.endpoint.url": "not a url"}, "s3.endpoint.url is not a URL"),
    "no URL of Google": ({**GCS, "rsm.config.storage.gcs.endpoint.url": "store:9000"}, "gcs.endpoint.url is not a URL"),
    "no file of credentials": ({**GCS, "rsm.config.storage.gcs.credentials.path": "/nowhere"}, "gcs.credentials.path"),
    "credentials cut": ({**GCS, "rsm.config.storage.gcs.credentials.json": "{"}, "json is not a JSON object"),
    "no account": (AZURE, "no property names the account of az://tier; give storage.azure.account.name"),
    "junk connection string": (
        {**AZURE, "rsm.config.storage.azure.connection.string": "x"},
        "no property names the account",
    ),
    "junk account key": (
        {**AZURE, "rsm.config.storage.azure.account.name": "a", "rsm.config.storage.azure.account.key": "!"},
        "storage.azure.account.key",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_the_plugin_refuses_are_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    from Crypto.PublicKey import RSA

    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    public = RSA.import_key((KEYS / "one.pem").read_text()).public_key().export_key()
    files = {"{junk}": b"junk", "{public}": public}
    properties, why = REFUSED[case]
    given = dict(properties)
    for name, text in given.items():
        if text in files:
            (tmp_path / "key").write_bytes(files[text])
            given[name] = str(tmp_path / "key")
    with pytest.raises(OptionError, match=why):
        open_with(tmp_path / "data", given)


def test_settings_of_an_unreachable_storage_are_accepted(tmp_path: Path) -> None:
    open_with(tmp_path / "data", {**S3, "rsm.config.storage.s3.endpoint.url": "http://127.0.0.1:9"}).close()
    open_with(tmp_path / "data", {**ENCRYPTED, KEY_FILE: str(KEYS / "one.pem")}).close()


@pytest.mark.parametrize("left", ["nothing", "an empty folder"])
def test_missing_folder_fails_copies_reads_and_deletions_until_it_returns(tmp_path: Path, left: str) -> None:
    async def run() -> None:
        logs = await begun(tmp_path / "data")
        logs.append(range(40))
        await logs.settle()
        before = logs.objects()
        away = logs.remote_dir.rename(tmp_path / "away")
        if left != "nothing":
            logs.remote_dir.mkdir()
        logs.append(range(40))
        logs.broker.log("orders").delete_records(10)
        await logs.settle()
        assert logs.manager.counts.copy_errors > 0
        assert logs.manager.counts.delete_errors > 0
        assert logs.remote_dir.exists() == (left != "nothing")
        assert logs.objects() == set()
        segment = next(iter(logs.manager.metadata.partitions.values())).in_state(COPY_FINISHED)[-1]
        with pytest.raises(RemoteStorageError, match="the folder of remote storage"):
            logs.storage.fetch(segment, 0, 10)
        shutil.rmtree(logs.remote_dir, ignore_errors=True)
        away.rename(logs.remote_dir)
        assert logs.objects() == before
        await logs.settle()
        await logs.settle()
        assert logs.objects() == logs.finished() != before
        assert await logs.offsets() == list(range(10, 80))
        await logs.stop()

    asyncio.run(run())
