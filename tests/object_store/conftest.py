"""One S3 server for all tests of this folder, and a proxy before it that counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.object_store.fault_proxy import FaultProxy
from tests.object_store.s3_server import S3Server, available


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server with the empty bucket `tier`. Tests use paths of their own."""
    reason = available()
    if reason:
        pytest.skip(reason)
    with S3Server(tmp_path_factory.mktemp("s3") / "buckets") as server:
        server.make_bucket("tier")
        yield server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    """Before `s3`; without faults until a test sets its plan."""
    with FaultProxy(s3.endpoint) as made:
        yield made
