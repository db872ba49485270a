"""Python workers: one that Spark stops reading from ends without output, one read to its end continues."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog_spark.spark.worker_process import closed_by_peer

ROOT = Path(__file__).parents[2]

# pyspark's daemon, as far as it matters: a forked child runs tasks in a function `worker(sock, authenticated)`, prints
# what it cannot write with a traceback, and collects garbage after each task.
DAEMON = """
import gc, os, socket, sys, traceback
from pyspark import TaskContext
from kafkalog_spark.spark.worker_process import yield_until_spark_stops

def rows():
    yield b"first"
    {after_first}
    yield b"second"

def worker(sock, authenticated):
    outfile = os.fdopen(os.dup(sock.fileno()), "wb", 65536)
    for row in yield_until_spark_stops(rows()):
        outfile.write(row)
        {after_row}
    {before_flush}
    outfile.flush()
    return 0

spark, sock = socket.{pair}
TaskContext._setTaskContext(TaskContext())
pid = os.fork()
if pid == 0:
    spark.close()
    try:
        worker(sock, True)
        gc.collect()
        import signal
        assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN, "SIGPIPE is not ignored again"
        print("went on", flush=True)
    except BaseException:
        traceback.print_exc()
    os._exit(0)
sock.close()
{spark_does}
os.waitpid(pid, 0)
"""


def ran(**parts: str) -> tuple[str, str]:
    """(stdout, stderr) of the daemon above."""
    texts = {
        "after_first": "pass",
        "after_row": "pass",
        "before_flush": "pass",
        "spark_does": "",
        "pair": "socketpair()",
    }
    done = subprocess.run(
        [sys.executable, "-c", DAEMON.format(**{**texts, **parts})],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout, done.stderr


def test_worker_whose_rows_are_all_read_continues() -> None:
    out, errors = ran(spark_does="assert spark.recv(100) == b'firstsecond'")
    assert out == "went on\n"
    assert errors == ""


# Spark has what it wants: it closes, and the worker learns of that (os.read returns) before it goes on
CLOSED = "os.read(ready[0], 1)"
WITH_PIPE = {"pair": "socketpair(); ready = os.pipe()", "spark_does": "spark.close(); os.write(ready[1], b'x')"}


@pytest.mark.parametrize("when", ["after_first", "before_flush"])
def test_worker_whose_rows_spark_stops_reading_ends_without_output(when: str) -> None:
    """While it reads on, and when there is nothing left but to write what is buffered."""
    out, errors = ran(**{when: CLOSED}, **WITH_PIPE)
    assert (out, errors) == ("", "")


def test_worker_that_cannot_write_a_row_ends_without_output() -> None:
    """pyspark closes the iterator then, and reports to nobody."""
    out, errors = ran(after_row=f"{CLOSED}; outfile.flush()", **WITH_PIPE)
    assert "went on" not in out
    assert errors == ""


def test_unread_bytes_do_not_hide_a_closed_connection() -> None:
    here, there = socket.socketpair()
    with here:
        assert not closed_by_peer(here)
        there.sendall(b"more")
        assert not closed_by_peer(here)
        there.close()
        assert closed_by_peer(here)


def test_reset_tcp_connection_counts_as_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as here:
        there, _ = server.accept()
        here.sendall(b"not read")
        assert not closed_by_peer(here)
        there.close()
        assert closed_by_peer(here)
