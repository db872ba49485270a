"""The tests of the reader once more, with their directories read through an S3 server: `pytest --on-bucket`.

Tests write directories and give their paths. Here each path of a directory becomes that of the same directory in a
bucket, just before it is opened; so nothing of a test knows. There are two buckets: the directory that holds the tests'
temporary ones, and that of the golden data. What is about a local directory alone is marked `local_only`, with the
reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog_spark.log.read import roots
from kafkalog_spark.store.storage_options import StorageOptions
from tests import golden_data
from tests.store.s3_server import S3Server, versitygw

OPTION = "--on-bucket"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="read the directories of the reader's tests through S3")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption(OPTION):
        return
    if versitygw() is None:
        raise pytest.UsageError(f"{OPTION} needs versitygw, which serves a directory; it is built with Go")
    for item in items:
        marker = item.get_closest_marker("local_only")
        if marker is not None:
            item.add_marker(pytest.mark.skip(reason=f"about local directories: {marker.args[0]}"))


@pytest.fixture(scope="session", autouse=True)
def _on_bucket(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if not request.config.getoption(OPTION):
        yield
        return
    top = tmp_path_factory.mktemp("buckets")
    buckets = {"temporary": tmp_path_factory.getbasetemp(), "golden": golden_data.GOLDEN}
    for name, directory in buckets.items():
        (top / name).symlink_to(directory)
    real = roots._located
    with S3Server(top) as server, pytest.MonkeyPatch.context() as patch:
        storage = StorageOptions.of(server.options)

        def located(path: str, given: StorageOptions | None) -> roots.Root:
            root = real(path, given)
            if root.store.is_remote or not os.path.isdir(root.path) or not any(Path(root.path).iterdir()):
                return root  # an empty directory is nothing in a bucket
            for name, directory in buckets.items():
                if Path(root.path).is_relative_to(directory):
                    return real(f"s3://{name}/{Path(root.path).relative_to(directory)}", storage)
            return root

        patch.setattr(roots, "_located", located)
        yield
