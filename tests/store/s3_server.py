"""A real S3 server on loopback over a directory: versitygw (Go), or moto's where there is no Go.

    with S3Server(tmp_path / "buckets") as server:
        server.make_bucket("tier")
        server.endpoint, server.access_key, server.secret_key, server.region

versitygw is built once with `go install`, into .tools/bin of the checkout; a binary on PATH takes precedence. It serves
a directory: what is put there as a file is an object, so golden trees are served with a symbolic link or a copy.
"""

from __future__ import annotations

import atexit
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kafkalog_broker.testing_support.kept_port import kept_port

VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@latest"
CHOICE = "KAFKALOG_TEST_S3"
"""Environment: `moto` takes that server also where there is Go."""
CACHE = Path(__file__).parents[2] / ".tools"
ACCESS_KEY, SECRET_KEY, REGION = "kafkalog-tests", "not-a-secret-kafkalog", "us-east-1"
BUILD_SECONDS = 900
START_SECONDS = 60


@cache
def versitygw() -> Path | None:
    """The binary, built when Go is there; None without Go. Raises RuntimeError with Go's own words."""
    if os.environ.get(CHOICE) == "moto":
        return None
    found = shutil.which("versitygw")
    if found:
        return Path(found)
    binary = CACHE / "bin" / "versitygw"
    if not binary.exists() and shutil.which("go") is None:
        return None
    binary.parent.mkdir(parents=True, exist_ok=True)
    with (binary.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs may want to build at once
        if not binary.exists():
            places = {"GOPATH": str(CACHE / "go"), "GOBIN": str(binary.parent), "GOFLAGS": "-modcacherw"}
            ran = subprocess.run(["go", "install", VERSITYGW], env={**os.environ, **places}, capture_output=True,
                                 text=True, check=False, timeout=BUILD_SECONDS)  # fmt: skip
            if ran.returncode:
                raise RuntimeError(f"go could not build {VERSITYGW}: {ran.stderr[-2000:]}")
    return binary


def available() -> str | None:
    """Why no S3 server can run here, in one line; None when one can."""
    if versitygw() is not None or importlib.util.find_spec("moto") is not None:
        return None
    return "an S3 server needs Go on PATH (versitygw is built with it, once) or the package moto[server]"


class S3Server:
    """One server over `directory`, whose folders are buckets. Started and stopped as a context manager. moto: that
    server in any case; it takes whatever credentials a client has."""

    def __init__(self, directory: Path, *, moto: bool = False) -> None:
        self.directory = directory
        self._binary = None if moto else versitygw()
        self.access_key, self.secret_key, self.region = ACCESS_KEY, SECRET_KEY, REGION
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def endpoint(self) -> str:
        """http://127.0.0.1:PORT"""
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """Options of a load, by Hadoop's names."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": self.region,
            "fs.s3a.access.key": self.access_key,
            "fs.s3a.secret.key": self.secret_key,
            "fs.s3a.path.style.access": "true",
        }

    @property
    def serves_files(self) -> bool:
        """Files below `directory` are objects (versitygw); moto keeps its objects in memory."""
        return self._binary is not None

    def __enter__(self) -> Self:
        reason = available()
        if reason:
            raise RuntimeError(reason)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = kept_port(self)
        binary = self._binary
        if binary is not None:
            # Attributes of objects go into a folder of their own: not every file system has extended attributes.
            # (versitygw compares names as text: this one must not begin with the directory's.)
            sidecar = self.directory.with_name(f"attributes-of-{self.directory.name}")
            sidecar.mkdir(exist_ok=True)
            command = [str(binary), "--port", f"127.0.0.1:{self.port}", "--region", self.region, "--quiet", "posix",
                       "--sidecar", str(sidecar), str(self.directory)]  # fmt: skip
        else:
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        keys = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        self._log = self.directory.with_name(f"{self.directory.name}.log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env={**os.environ, **keys}, stdout=log, stderr=log)
        atexit.register(self._end)
        self._wait_until_it_serves(self._process)
        return self

    def _wait_until_it_serves(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(self.endpoint, timeout=5).close()
                return
            except urllib.error.HTTPError:
                return  # it asks for credentials, so it serves
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    self._end()
                    raise RuntimeError(f"the S3 server does not serve: {self._log.read_text()[-2000:]}") from None
            time.sleep(0.02)

    def make_bucket(self, name: str) -> None:
        self.file_system().create_dir(name)

    def file_system(self, endpoint: str | None = None) -> Any:
        """A pyarrow S3FileSystem that talks to this server, or to a proxy before it at `endpoint`."""
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(
            access_key=self.access_key, secret_key=self.secret_key, region=self.region, allow_bucket_creation=True,
            endpoint_override=endpoint or self.endpoint, scheme="http",
        )  # fmt: skip

    def _end(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()
        atexit.unregister(self._end)
