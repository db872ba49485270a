"""What a process holds while it reads a large object: measured by the system, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from kafkalog_spark.store.object_file import MAX_FILE_BYTES
from tests.store.buckets import s3_options
from tests.store.s3_server import S3Server

ROOT = Path(__file__).parents[2]
SIZE = 400 << 20
OTHERS = 40 << 20
"""Bytes for the library's threads and connections, and for memory that the allocator keeps."""

PROGRAM = """
import json, sys
given = json.loads(sys.stdin.readline())
from kafkalog_spark.store.storage_options import StorageOptions
from kafkalog_spark.store.stores import store_of

store = store_of(given["path"], StorageOptions.of(given["options"]))
file = store.open(given["path"])
target = memoryview(bytearray(2 << 20))

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name + ":"))

file.read(0, 100)
with open("/proc/self/clear_refs", "w") as control:
    control.write("5")  # the peak from now on (proc(5)); what the parent had counts otherwise
before = status("VmRSS")
file.expect(0, file.size)
position = 0
while count := file.read_into(position, target):
    position += count
print(position, status("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is asked of Linux")
def test_a_large_object_is_read_in_bounded_memory(s3: S3Server) -> None:
    if not s3.serves_files:
        pytest.skip("moto keeps its objects in memory")
    name = uuid4().hex
    with (s3.directory / "tier" / name).open("wb") as file:
        file.truncate(SIZE)
    given = json.dumps({"options": s3_options(s3), "path": f"s3://tier/{name}"}) + "\n"
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, input=given, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    read, grown = map(int, ran.stdout.split())
    assert read == SIZE
    assert MAX_FILE_BYTES // 8 < grown < MAX_FILE_BYTES + OTHERS, f"{grown >> 20} MB"
