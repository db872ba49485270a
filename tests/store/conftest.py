"""One S3 server for all tests of this folder, and a proxy before it that counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkalog_spark.store.object_store import ObjectStore
from kafkalog_spark.store.storage_options import StorageOptions
from tests.store.azure_double import AzureDouble
from tests.store.fault_proxy import FaultProxy
from tests.store.s3_server import S3Server, available


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server with the empty bucket `tier`. Tests use paths of their own."""
    reason = available()
    if reason:
        pytest.skip(reason)
    with S3Server(tmp_path_factory.mktemp("s3") / "buckets") as server:
        server.make_bucket("tier")
        yield server


@pytest.fixture(scope="session")
def gs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """The bucket `tier` as Google's client reads it: its XML interface is S3's as far as reading goes, so moto can
    answer. It takes no notice of Google's condition for puts."""
    with S3Server(tmp_path_factory.mktemp("gs") / "buckets", moto=True) as server:
        server.make_bucket("tier")
        # with a token it asks nobody for one
        given = {"storage.base_url": server.endpoint, "storage.bearer_token": "token-of-the-tests"}
        yield ObjectStore("gs", "tier", StorageOptions.of(given))


@pytest.fixture(scope="session")
def azure() -> Iterator[AzureDouble]:
    with AzureDouble() as server:
        yield server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    """Before `s3`; without faults until a test sets its plan."""
    with FaultProxy(s3.endpoint) as made:
        yield made
