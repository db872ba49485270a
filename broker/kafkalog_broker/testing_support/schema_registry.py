"""Runs Karapace for a test: a schema registry that stores its schemas in the broker's topic `_schemas`.

Karapace is on no package index, and needs Python 3.12 and an environment of its own. KAFKALOG_KARAPACE_PYTHON names the
interpreter of that environment; the default is the interpreter of this process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from kafkalog_broker.testing_support.kept_port import HOST, kept_port

INTERPRETER = "KAFKALOG_KARAPACE_PYTHON"
START_SECONDS = 60  # time limit; a start takes about ten
STOP_SECONDS = 10
MISSING = (
    f"schema_registry=True needs Karapace, and {INTERPRETER} to name the interpreter that has it. It is installed from "
    "its sources into an environment of its own: pip install git+https://github.com/Aiven-Open/karapace"
)


def karapace_interpreter() -> str | None:
    """Return the interpreter that runs Karapace, or None if there is none."""
    configured = os.environ.get(INTERPRETER)
    if configured is None:
        return sys.executable if find_spec("karapace") else None
    return shutil.which(configured)


@contextmanager
def running_registry(bootstrap: str, log_file: Path) -> Iterator[str]:
    """Run a registry until the context ends, and yield its URL.

    Args:
        bootstrap: Address of the broker.
        log_file: File for the output of Karapace.

    Raises:
        RuntimeError: If Karapace is missing, ends, or does not respond in time.
    """
    python = karapace_interpreter()
    if python is None:
        raise RuntimeError(MISSING)
    with log_file.open("ab") as log:
        port = kept_port(log)  # reserved until the file object is freed
        url = f"http://{HOST}:{port}"
        settings = {
            "KARAPACE_REGISTRY": "true", "HOST": HOST, "PORT": port, "BOOTSTRAP_URI": bootstrap,
            "REGISTRY_HOST": HOST, "REGISTRY_PORT": port, "ADVERTISED_HOSTNAME": HOST, "ADVERTISED_PORT": port,
            "LOG_LEVEL": "WARNING",
        }  # fmt: skip
        environment = os.environ | {f"KARAPACE_{name}": str(value) for name, value in settings.items()}
        process = subprocess.Popen([python, "-m", "karapace"], env=environment, stdout=log, stderr=log)
        try:
            _wait_until_primary(process, url, log_file)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_primary(process: subprocess.Popen[bytes], url: str, log_file: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{url}/_health", timeout=5) as response:
                status = json.load(response)["status"]
            if status["schema_registry_ready"] and status["schema_registry_is_primary"]:
                return
            state = str(status)
        except OSError as error:
            state = str(error)
        if process.poll() is not None or time.monotonic() > end:
            log = log_file.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"Karapace does not serve at {url} ({state}); its log:\n{log}")
        time.sleep(0.1)
