"""The steps of the Dockerfile, run without Docker: a fresh environment stands for the image.

What the image's builder makes as root is then run by somebody who can write nowhere in it. Root keeps its name here,
and loses the right to ignore permissions (CAP_DAC_OVERRIDE), since other users may not reach this Python at all.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkalog_broker.testing_support.kept_port import kept_port
from tests.pages import ROOT

pytestmark = [pytest.mark.end_to_end, pytest.mark.xdist_group("dockerfile")]

TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STAGES = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", TEXT, re.MULTILINE | re.DOTALL))
BASES = {stage: base for base, stage in re.findall(r"^FROM (\S+) AS (\S+)$", TEXT, re.MULTILINE)}
ABSENT = ("useradd", "install", "apt-get")
"""Programs that change the machine: they do nothing here."""
RECORDS = 20_000


def steps(stage: str) -> list[tuple[str, str]]:
    """(instruction, its arguments) of a stage, without those that it stands on."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", STAGES[stage], flags=re.MULTILINE))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())]


def test_the_image_of_docker_build_is_the_broker() -> None:
    assert list(STAGES)[-1] == "broker"
    assert dict(steps("broker"))["ENTRYPOINT"].startswith('["kafkalog-broker"')


def test_metrics_of_the_image_are_served_to_its_health_check_only() -> None:
    """They have no authentication; `docker run IMAGE --metrics 0.0.0.0:9404` serves them to others."""
    entry = json.loads(dict(steps("broker"))["ENTRYPOINT"])
    assert entry[entry.index("--metrics") + 1] == "127.0.0.1:9404"
    assert "http://127.0.0.1:9404/readyz" in STAGES["broker"]
    assert "9404" not in dict(steps("broker"))["EXPOSE"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_step_that_fails_ends_the_build(stage: str) -> None:
    """Its parts are joined by && alone: neither `;` nor `||` may hide that one of them failed."""
    for instruction, arguments in steps(stage):
        if instruction == "RUN":
            assert not re.search(r"(?<!\|)\|\|(?!\|)", re.sub(r"\{.*?\}", "", arguments))
            assert ";" not in re.sub(r"\{.*?\}", "", arguments)


@pytest.mark.parametrize("stage", ["broker", "spark"])
def test_kernels_are_compiled_and_used_where_the_sources_are_not(stage: str) -> None:
    """Python prefers a package in the working directory to the installed one, in Spark's workers too."""
    words = [f"{instruction} {arguments}" for instruction, arguments in steps(stage)]
    workdir = words.index("WORKDIR /app")
    assert any("kafkalog_spark.warm" in word for word in words[workdir:])
    assert [word for word in words[workdir:] if word.startswith("COPY")] in ([], ["COPY examples examples"])


@pytest.mark.parametrize("stage", ["dependencies", "spark-dependencies"])
def test_packages_are_installed_before_the_sources_are_there(stage: str) -> None:
    """Docker makes a layer anew when what an instruction before it copied has changed."""
    copied = [arguments for instruction, arguments in steps(stage) if instruction == "COPY"]
    assert copied in ([], ["pyproject.toml build_kernels.py ./"])
    assert any("pip install" in arguments for instruction, arguments in steps(stage) if instruction == "RUN")


def test_what_the_dockerfile_copies_is_sent_to_docker() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {name for stage in STAGES for word, rest in steps(stage) if word == "COPY" for name in rest.split()[:-1]}
    assert copied == sent


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The environment of the broker's image, after all of its steps; nothing in it can be written to."""
    folder = tmp_path_factory.mktemp("image")
    subprocess.run([sys.executable, "-m", "venv", folder / "python"], check=True)
    for name in ABSENT:
        (folder / "python" / "bin" / name).symlink_to("/bin/true")
    paths = f"{folder / 'python' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
    for stage in (BASES["broker"], "broker"):
        for instruction, arguments in steps(stage):
            if instruction == "WORKDIR":
                (cwd := folder / arguments.lstrip("/")).mkdir()
            elif instruction == "COPY":
                copy(arguments.split(), cwd)
            elif instruction == "RUN":
                subprocess.run(
                    ["/bin/sh", "-c", arguments], cwd=cwd, env={**environment, "PATH": paths}, check=True, timeout=800
                )
    for path in (folder / "python").rglob("*"):
        if path.is_dir():
            path.chmod(0o555)
    yield folder
    for path in (folder / "python").rglob("*"):
        if path.is_dir():
            path.chmod(0o755)


def copy(names: list[str], cwd: Path) -> None:
    *sources, target = names
    for name in sources:
        to = cwd / target if target != "./" else cwd / name
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copyfile(ROOT / name, to)


def of_its_user(image: Path, *command: object) -> list[str]:
    """A command as the image's user runs it: without a right to write into the image, and without a home."""
    drop = ["setpriv", "--inh-caps=-dac_override", "--bounding-set=-dac_override"] if os.getuid() == 0 else []
    environment = (f"HOME={image}/python/none", f"PATH={image}/python/bin:/usr/bin:/bin", f"TMPDIR={image}")
    return [*drop, "env", "-u", "PYTHONPATH", "-u", "NUMBA_CACHE_DIR", *environment, *map(str, command)]


def test_the_user_of_the_image_compiles_nothing(image: Path, tmp_path: Path) -> None:
    """The broker takes batches that need its kernels and kafkalog-cat reads them, as a user that can write nowhere."""
    entry = json.loads(dict(steps("broker"))["ENTRYPOINT"])
    kernels = set(image.rglob("*.nbi"))
    with (tmp_path / "broker.log").open("w") as log:
        port = kept_port(log)
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{port}"
        given = {"/var/lib/kafkalog": str(tmp_path / "logs"), "listeners=PLAINTEXT://:9092": listeners,
                 "127.0.0.1:9404": "127.0.0.1:0"}  # fmt: skip
        command = of_its_user(image, *(given.get(word, word) for word in entry))
        broker = subprocess.Popen(command, cwd=image / "app", stdout=log, stderr=log)
        try:
            producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "compression.type": "lz4", "log_level": 0})
            for number in range(RECORDS):
                producer.produce("orders", b"%d" % number)
                producer.poll(0)
            assert producer.flush(60) == 0, (tmp_path / "broker.log").read_text()
            read = of_its_user(image, "kafkalog-cat", tmp_path / "logs", "-t", "orders")
            done = subprocess.run(read, capture_output=True, text=True, check=False, timeout=120)
            assert done.stdout.split() == [str(number) for number in range(RECORDS)], done.stderr
        finally:
            broker.terminate()
            broker.wait(60)
    assert kernels
    assert set(image.rglob("*.nbi")) == kernels, (tmp_path / "broker.log").read_text() + done.stderr
    assert broker.returncode in (0, -15), shlex.join(command)
