"""make release-check: build what a release would upload, and use it where nothing else is installed.

The wheel is built from the sdist, as an index's users would. Both are checked by twine, then installed:

small   the wheel, and the sdist, with the extra [broker], each in an environment of its own: no pyspark comes along; a
        test broker writes records that LogDirs reads and kafkalog-check finds whole
spark   the wheel with [spark,broker]: the demo runs in an empty directory over the golden data

Needs Python with venv, and Java 17 for the demo; packages come from where pip is set to fetch them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import kafkalog_spark
from tests import golden_data

ROOT = Path(__file__).parent.parent
NAME = f"kafkalog-{kafkalog_spark.__version__}"

SMALL = """
import importlib.util, struct, sys
assert importlib.util.find_spec("pyspark") is None, "pyspark is installed"
import kafkalog_spark
from importlib.metadata import version
assert kafkalog_spark.__version__ == version("kafkalog"), version("kafkalog")
from kafkalog_broker.testing import running_broker
with running_broker(topics={"orders": 2}, log_dir=sys.argv[1]) as broker:
    print("a test broker serves", broker.bootstrap)
tables = kafkalog_spark.LogDirs.open(sys.argv[1]).table("partitions", "orders").read_all()
assert sorted(tables.column("partition").to_pylist()) == [0, 1], tables
print("LogDirs reads what it left")
"""


def run(command: Sequence[str | Path], *, cwd: Path, timeout_s: float = 900) -> str:
    """Run it; what it prints. Ends the program where it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, text=True, timeout=timeout_s, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"release-check: exit status {done.returncode} of {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def built(place: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, with what belongs into them and nothing else."""
    run([sys.executable, "-m", "build", "--outdir", place, ROOT], cwd=place)
    wheel, sdist = place / f"{NAME}-py3-none-any.whl", place / f"{NAME}.tar.gz"
    print(run([sys.executable, "-m", "twine", "check", "--strict", wheel, sdist], cwd=place), end="")
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
        untyped = {"kafkalog_spark/py.typed", "kafkalog_broker/py.typed"} - set(archive.namelist())
    expected = {"kafkalog_spark", "kafkalog_broker", "pyspark_kafkalog.py", f"{NAME}.dist-info"}
    if tops != expected:
        sys.exit(f"release-check: the wheel has {sorted(tops)}, expected {sorted(expected)}")
    if untyped:
        sys.exit(
            f"release-check: the wheel lacks {sorted(untyped)}, without which type checkers look at no types in it"
        )
    with tarfile.open(sdist) as source:
        names = {name.removeprefix(f"{NAME}/") for name in source.getnames()}
    missing = {"LICENSE", "README.md", "pyproject.toml", "kafkalog_spark/__init__.py"} - names
    if missing:
        sys.exit(f"release-check: the sdist lacks {sorted(missing)}")
    print(f"{wheel.name}: {wheel.stat().st_size >> 10} KiB, {sdist.name}: {sdist.stat().st_size >> 10} KiB")
    return wheel, sdist


def environment(place: Path, package: Path, extras: str) -> Path:
    """The folder with the programs of a new environment that has the package and nothing else."""
    print(f"installing {package.name}[{extras}] into an empty environment ...", flush=True)
    run([sys.executable, "-m", "venv", place], cwd=place.parent)
    programs = place / "bin"
    run([programs / "python", "-m", "pip", "install", "--quiet", f"kafkalog[{extras}] @ {package.as_uri()}"],
        cwd=place.parent)  # fmt: skip
    return programs


def check_small(place: Path, package: Path) -> None:
    """The package without Spark: broker, reader and check."""
    programs, logs = environment(place / "env", package, "broker"), place / "logs"
    print(run([programs / "python", "-c", SMALL, logs], cwd=place), end="")
    print(run([programs / "kafkalog-check", logs], cwd=place), end="")
    said = run([programs / "kafkalog-broker", "--version"], cwd=place)
    if kafkalog_spark.__version__ not in said:
        sys.exit(f"release-check: kafkalog-broker --version says {said!r}")


def check_demo(place: Path, package: Path) -> None:
    """The demo, in an empty directory."""
    programs = environment(place / "env", package, "spark,broker,producer")
    shutil.copyfile(ROOT / "examples" / "demo.py", place / "demo.py")
    lines = run([programs / "python", "demo.py", golden_data.data_dir(golden_data.KAFKA_4_3)], cwd=place).splitlines()
    if any("Traceback" in line for line in lines):
        sys.exit("release-check: the demo printed a traceback\n" + "\n".join(lines))
    print("the demo ran; its last line:", next(line for line in reversed(lines) if line.strip()))


def main() -> None:
    """All of it, in a directory that goes away."""
    with TemporaryDirectory(prefix="kafkalog-release-") as name:
        home = Path(name)
        parts = {part: home / part for part in ("dist", "wheel", "sdist", "demo")}
        for part in parts.values():
            part.mkdir()
        wheel, sdist = built(parts["dist"])
        check_small(parts["wheel"], wheel)
        check_small(parts["sdist"], sdist)
        check_demo(parts["demo"], wheel)
    print("release-check: all is well")


if __name__ == "__main__":
    main()
