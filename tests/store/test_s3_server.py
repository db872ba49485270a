"""The S3 server of the tests: it serves objects and files, ranges and listings, alone and through the proxy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyarrow.fs import FileSelector

from tests.store.fault_proxy import Fault, FaultKind, FaultProxy, at
from tests.store.s3_server import S3Server, available

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

BODY = bytes(range(256)) * 4000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3") / "buckets") as made:
        made.make_bucket("tier")
        with made.file_system().open_output_stream("tier/some/key ö-1.log") as out:
            out.write(BODY)
        yield made


def test_objects_are_written_listed_and_read_by_ranges(server: S3Server) -> None:
    files = server.file_system()
    found = {info.path: info.size for info in files.get_file_info(FileSelector("tier/some", recursive=True))}
    assert found == {"tier/some/key ö-1.log": len(BODY)}
    with files.open_input_file("tier/some/key ö-1.log") as source:
        assert source.read_at(1000, 5000) == BODY[5000:6000]
        assert source.read() == BODY


def test_files_of_the_directory_are_objects(server: S3Server) -> None:
    if not server.serves_files:
        pytest.skip("moto keeps its objects in memory")
    folder = server.directory / "tier" / "orders-0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.log").write_bytes(b"a log")
    with server.file_system().open_input_file("tier/orders-0/00000000000000000000.log") as source:
        assert source.read() == b"a log"


def test_signed_requests_pass_the_proxy_and_are_counted(server: S3Server) -> None:
    with FaultProxy(server.endpoint) as proxy:
        files = server.file_system(proxy.endpoint)
        with files.open_input_file("tier/some/key ö-1.log") as source:
            proxy.forget()
            assert source.read_at(1000, 5000) == BODY[5000:6000]
        (seen,) = proxy.seen
        assert (seen.operation, seen.range, seen.status, seen.sent) == ("GET", "bytes=5000-5999", 206, 1000)
        files.get_file_info(FileSelector("tier/some"))
        assert "LIST" in [one.operation for one in proxy.seen]


def test_client_that_retries_succeeds_despite_faults(server: S3Server) -> None:
    with FaultProxy(server.endpoint) as proxy:
        files = server.file_system(proxy.endpoint)
        with files.open_input_file("tier/some/key ö-1.log") as source:
            proxy.forget()
            proxy.plan = at({0: Fault(FaultKind.SLOW_DOWN), 1: Fault(FaultKind.INTERNAL_ERROR)})
            assert source.read_at(1000, 0) == BODY[:1000]
        assert [seen.status for seen in proxy.seen] == [503, 500, 206]
