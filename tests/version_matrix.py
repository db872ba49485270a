"""make test-matrix: the tests marked `matrix` on each Spark and each Python, each pair in an environment of its own.

    python -m tests.version_matrix                  # all pairs that this machine can run
    python -m tests.version_matrix 3.11/4.0 3.13    # one pair, and all of Python 3.13

Environments lie in .tools/matrix and are kept; the first run of a pair installs some 900 MB from the package index. A
Python that is not on this machine is left out, and said to be.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENVIRONMENTS = ROOT / ".tools" / "matrix"
PYTHONS = ("3.11", "3.12", "3.13")
SPARKS = ("4.0", "4.1", "4.2", "4.3")
TEST_TOOLS = ("pytest>=8.3", "pytest-timeout>=2.3", "hypothesis>=6.100")
TEST_SECONDS = 900  # of one test: a machine that does other things too takes minutes to start Spark

Pair = tuple[str, str]


def find_python(version: str) -> Path | None:
    """An interpreter of this release: on PATH, or one of pyenv's; one that can make environments."""
    candidates = [shutil.which(f"python{version}")]
    candidates += sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")), reverse=True)
    for candidate in filter(None, candidates):
        asked = subprocess.run(
            [candidate, "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if asked.stdout.strip() == version:
            return Path(candidate)
    return None


def chosen(wanted: Iterable[str]) -> list[Pair]:
    """The pairs that `wanted` names ("3.11", "3.11/4.0"); all without any. Raises SystemExit for an unknown one."""
    pairs = [(python, spark) for python in PYTHONS for spark in SPARKS]
    names = {name for python, spark in pairs for name in (python, f"{python}/{spark}")}
    asked = list(wanted)
    unknown = set(asked) - names
    if unknown:
        raise SystemExit(f"unknown: {' '.join(sorted(unknown))}; there are {' '.join(sorted(names))}")
    return [pair for pair in pairs if not asked or pair[0] in asked or "/".join(pair) in asked]


def environment(interpreter: Path, pair: Pair) -> Path:
    """The Python of the pair's environment, made where it is not there by one process. Raises CalledProcessError."""
    python, spark = pair
    home = ENVIRONMENTS / f"python{python}-pyspark{spark}"
    made = home / "bin" / "python"
    stamp = home / "installed"
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with open(f"{home}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of one test run want the same environment at once
        if not stamp.exists() or stamp.stat().st_mtime < (ROOT / "pyproject.toml").stat().st_mtime:
            print(f"installing into {home.relative_to(ROOT)} ...", flush=True)
            if not made.exists():
                subprocess.run([interpreter, "-m", "venv", home], check=True)
            # pip takes this pyspark only if pyproject.toml allows it
            packages = ["--editable", f"{ROOT}[spark,broker]", f"pyspark=={spark}.*", *TEST_TOOLS]
            pip = [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, *packages], check=True)
            stamp.touch()
    return made


def run(python: Path) -> str:
    """What the tests come to: pytest's last line."""
    command = [str(python), "-m", "pytest", "-m", "matrix", "-o", f"timeout={TEST_SECONDS}", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "broker")])}  # also of workers
    ran = subprocess.run(
        [*command, "tests/spark/test_every_version.py"],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    last = re.sub(r" in [0-9.:() ]+s.*", "", ran.stdout.strip().rpartition("\n")[2].strip("= "))
    if ran.returncode:
        print(ran.stdout[-6000:], ran.stderr[-2000:], sep="\n", flush=True)
    return last if ran.returncode == 0 else f"FAILED: {last}"


def main(wanted: list[str]) -> int:
    results: dict[Pair, str] = {}
    for pair in chosen(wanted):
        interpreter = find_python(pair[0])
        results[pair] = "not on this machine" if interpreter is None else run(environment(interpreter, pair))
        print(f"Python {pair[0]}, pyspark {pair[1]}: {results[pair]}", flush=True)
    return int(any(result.startswith("FAILED") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
