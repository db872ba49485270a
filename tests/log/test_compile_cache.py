"""Kernels run wherever Python does: read-only packages, wheels on sys.path, users without a home."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from numba import config

from kafkalog_spark.log.kernels import compile_cache

ROOT = Path(__file__).parent.parent.parent
NOWHERE = "/proc/kafkalog"  # can be made by nobody, also not by root

# The smallest kernel there is to compile, and what became of it.
CALL = """
import json, sys
import numpy as np
from kafkalog_spark.log.kernels import compile_cache
if "nowhere" in sys.argv:
    compile_cache.temporary_directory = lambda: "/proc/kafkalog"
from kafkalog_spark.log.kernels.choose import first_out_of_order
from kafkalog_spark.log.format.layout import H
first_out_of_order(np.empty((0, len(H)), np.int64), -1, 0, 1)
stats = first_out_of_order.stats
print(json.dumps([stats.cache_path, sum(stats.cache_hits.values()), compile_cache.__file__]))
"""


@pytest.fixture(autouse=True)
def forgotten() -> None:
    compile_cache._first_writable.cache_clear()


def wheel(folder: Path) -> Path:
    """The reader as `spark-submit --py-files` gives it to a worker."""
    made = folder / "kafkalog-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for file in (ROOT / "kafkalog_spark").rglob("*.py"):
            archive.write(file, file.relative_to(ROOT))
    return made


def call(path: Path, *arguments: str, **environment: str) -> tuple[Any, int, str]:
    """(cache directory, kernels taken from it, stderr) of a new process that has `path` and no home."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    ran = subprocess.run(
        [sys.executable, "-c", CALL, *arguments],
        env={**kept, "PYTHONPATH": str(path), "HOME": NOWHERE, **environment},
        cwd="/", capture_output=True, text=True, check=False, timeout=170,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    directory, hits, file = json.loads(ran.stdout)
    assert file.startswith(str(path))
    return directory, hits, ran.stderr


def test_a_wheel_without_a_home_keeps_its_kernels_in_tmpdir_and_says_so_once(tmp_path: Path) -> None:
    archive = wheel(tmp_path)
    place = tmp_path / f"kafkalog-kernels-{os.getuid()}"
    directory, hits, said = call(archive, TMPDIR=str(tmp_path))
    assert (Path(directory).parent, hits) == (place, 0)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert said.count("\n") == 1
    assert str(place) in said
    assert "NUMBA_CACHE_DIR" in said
    # the next worker; and the next application, to which Spark gives the wheel in another directory
    (tmp_path / "other").mkdir()
    assert call(archive.rename(tmp_path / "other" / archive.name), TMPDIR=str(tmp_path)) == (directory, 1, "")


def test_numba_cache_dir_takes_precedence_also_for_a_wheel(tmp_path: Path) -> None:
    directory, _, said = call(wheel(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "named"))
    assert Path(directory).parent == tmp_path / "named"
    assert said == ""


def test_without_any_place_kernels_are_compiled_and_one_line_says_what_it_costs(tmp_path: Path) -> None:
    directory, hits, said = call(wheel(tmp_path), "nowhere")
    assert directory is None
    assert hits == 0
    assert said.count("\n") == 1
    assert "every Python process compiles" in said
    assert "spark.executorEnv.NUMBA_CACHE_DIR" in said


def test_the_places_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def place(source: Path) -> str | None:
        compile_cache._first_writable.cache_clear()
        return compile_cache.cache_directory(str(source / "kernel.py"), "packed")

    package, home, temporary = tmp_path / "package", tmp_path / "home", tmp_path / "temporary"
    package.mkdir()
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "named"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(compile_cache, "temporary_directory", lambda: str(temporary))
    assert place(package) == str(tmp_path / "named" / "packed")
    monkeypatch.setattr(config, "CACHE_DIR", "")
    assert place(package) == str(package / "__pycache__")
    assert place(Path("/proc")) == str(home / ".cache" / "numba" / "packed")  # a directory that takes no file
    monkeypatch.setenv("HOME", NOWHERE)
    assert place(Path("/proc")) == str(temporary / "packed")
    monkeypatch.setattr(compile_cache, "temporary_directory", lambda: NOWHERE)
    assert place(Path("/proc")) is None


def test_a_directory_in_tmpdir_that_others_can_write_to_is_not_used(tmp_path: Path, monkeypatch: Any) -> None:
    """What is in a cache is run, and its name can be foreseen by everybody on the machine."""
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setenv("HOME", NOWHERE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    shared, link = tmp_path / "shared", tmp_path / "link"
    shared.mkdir()
    shared.chmod(0o777)
    link.symlink_to(tmp_path)
    for planted in (shared, link):
        monkeypatch.setattr(compile_cache, "temporary_directory", lambda planted=planted: str(planted))
        compile_cache._first_writable.cache_clear()
        assert compile_cache.cache_directory("/proc/kernel.py", "packed") is None
    assert list(shared.iterdir()) == []


def test_functions_of_other_projects_are_left_to_numba() -> None:
    assert compile_cache.KernelCacheLocator.from_function(json.dumps, json.__file__) is None


def test_a_change_in_any_kernel_makes_all_of_them_anew(tmp_path: Path) -> None:
    """Numba compares the file of the kernel only; the kernels call functions of other files."""
    code = (
        "from kafkalog_spark.log.kernels import compile_cache as c; import kafkalog_broker.storage as s;"
        "print(c.sources_digest('kafkalog_spark.log.kernels'), c.sources_digest('kafkalog_broker.storage'))"
    )

    def digests() -> list[str]:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd="/", capture_output=True, text=True, check=True
        ).stdout.split()

    for root, package in ((ROOT, "kafkalog_spark"), (ROOT / "broker", "kafkalog_broker")):
        for file in (root / package).rglob("*.py"):
            copy = tmp_path / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    before = digests()
    with (tmp_path / "kafkalog_broker" / "storage" / "offset_map_kernel.py").open("a") as opened:
        opened.write("# changed\n")
    middle = digests()
    assert middle[0] == before[0]
    assert middle[1] != before[1]
    with (tmp_path / "kafkalog_spark" / "log" / "kernels" / "primitives.py").open("a") as opened:
        opened.write("# changed\n")
    assert all(new != old for new, old in zip(digests(), middle, strict=True))
