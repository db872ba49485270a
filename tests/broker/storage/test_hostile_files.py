"""Files of a log directory that are a pipe or a sparse file of a terabyte.

The broker neither blocks on the pipe nor reads more bytes than a file of that kind may have."""

from __future__ import annotations

import os

import pytest

from kafkalog_broker.errors import BrokerError
from kafkalog_broker.storage.log_directories import LogDirError
from tests.broker.storage.helpers.managed_logs import offsets_of, started

STEM = "orders-0/00000000000000000000"
FILES = (
    ".kafka_cleanshutdown",
    "kafkalog.topics.json",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    f"{STEM}.log",
    f"{STEM}.index",
    f"{STEM}.timeindex",
    f"{STEM}.txnindex",
    "orders-0/00000000000000000003.snapshot",
    "orders-0/leader-epoch-checkpoint",
    "orders-0/partition.metadata",
)


@pytest.mark.parametrize("kind", ["pipe", "sparse"])
@pytest.mark.parametrize("name", FILES)
def test_start_with_a_pipe_or_sparse_file_serves_the_log_or_names_the_file(tmp_path, name, kind):
    broker = started(tmp_path)
    broker.create("orders")
    for _ in range(3):
        broker.append()
    broker.logs.shutdown()
    path = tmp_path / name
    if kind == "pipe":
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    said = None
    try:
        again = started(tmp_path)
        assert offsets_of(again) == (0, 3)
        again.logs.shutdown()
    except (BrokerError, LogDirError) as error:
        said = str(error)
    if said is not None:
        assert str(path) in said
        assert ("is not a regular file" if kind == "pipe" else f"it has {1 << 40} bytes") in said
