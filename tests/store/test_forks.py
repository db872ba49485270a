"""Spark's daemon forks its Python workers, and loads modules before it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.store.buckets import s3_options, s3_store
from tests.store.s3_server import S3Server

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, os, sys
given = json.loads(sys.stdin.readline())
import obstore  # as a daemon that has loaded everything
from kafkalog_spark.store.read_ahead import read_ahead
from kafkalog_spark.store.storage_options import StorageOptions
from kafkalog_spark.store.stores import store_of

store = store_of("s3://tier/fork", StorageOptions.of(given["options"]))

made_by = {}  # process that made the threads

def read(who):
    try:
        file = store.open("s3://tier/fork/0.log")
        file.expect(0, file.size)
        data, own = file.read(0, file.size), made_by.setdefault(id(read_ahead()), os.getpid()) == os.getpid()
        print(who, len(data), own, store.counts().get, flush=True)
        file.close()
    except OSError as error:
        print(who, error.strerror, flush=True)

def in_fork(who):
    child = os.fork()
    if not child:
        read(who)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

if given["first"]:
    read("parent")
in_fork("child")
in_fork("other")
if not given["first"]:
    read("parent")
"""


def run(server: S3Server, *, first: bool) -> list[str]:
    s3_store(server).put("s3://tier/fork/0.log", bytes(3_000_000))
    given = json.dumps({"options": s3_options(server), "first": first}) + "\n"
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT, input=given, capture_output=True, text=True, check=False, timeout=60, env=dict(os.environ),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_forked_processes_create_their_own_clients(s3: S3Server) -> None:
    assert run(s3, first=False) == ["child 3000000 True 1", "other 3000000 True 1", "parent 3000000 True 1"]


def test_fork_after_a_read_raises_instead_of_hanging(s3: S3Server) -> None:
    parent, child, other = run(s3, first=True)
    assert parent == "parent 3000000 True 1"
    assert child.startswith("child this process is a fork of one that has sent requests to an object store")
    assert other.startswith("other this process is a fork")
