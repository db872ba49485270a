"""Kernels run wherever Python does: read-only packages, wheels on sys.path, users without a home."""

from __future__ import annotations

import json
import os
import pickle
import platform
import shutil
import stat
import subprocess
import sys
import zipfile
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import pytest

from kafkalog_spark.kernels import cache_directories
from kafkalog_spark.kernels.compile_cache import IndexFile

ROOT = Path(__file__).parent.parent.parent
PACKED = "a.kernel-0000000000000000"
NOWHERE = "/proc/kafkalog"  # can be made by nobody, also not by root

# The smallest kernel there is to compile, and what became of it.
CALL = """
import json, sys
import numpy as np
from kafkalog_spark.kernels import cache_directories, compile_cache
if "unwritable" in sys.argv:  # permissions stop anybody but root
    compile_cache.writable_directory = None
if "nowhere" in sys.argv:
    cache_directories.temporary_directory = lambda: "/proc/kafkalog"
from kafkalog_spark.kernels.batch_selection import first_invalid_batch
from kafkalog_spark.format.layout import HeaderColumn
first_invalid_batch(np.empty((0, len(HeaderColumn)), np.int64), -1, 0, 1)
stats = first_invalid_batch.stats
print(json.dumps([stats.cache_path, sum(stats.cache_hits.values()), compile_cache.__file__]))
"""


@pytest.fixture(autouse=True)
def forgotten() -> None:
    cache_directories.writable_directory.cache_clear()


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


def test_cache_index_of_another_numba_release_is_rewritten(tmp_path: Path) -> None:
    file = IndexFile(str(tmp_path), "kernel", "stamp")
    file.save("signature", "code")
    (index,) = tmp_path.glob("*.nbi")
    version = pickle.dumps(numba.__version__, protocol=-1)
    content = pickle.dumps(("stamp", {OrderedDict: "kernel.1.nbc"}), protocol=0).replace(b"OrderedDict", b"NoSuchClass")
    index.write_bytes(version + content)
    assert file.load("signature") is None
    file.save("signature", "code")
    assert file.load("signature") == "code"


@pytest.mark.end_to_end
def test_wheel_without_a_home_caches_kernels_in_tmpdir_and_logs_it_once(tmp_path: Path) -> None:
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


@pytest.mark.end_to_end
def test_read_only_package_caches_kernels_elsewhere(tmp_path: Path) -> None:
    """site-packages of an image, run by a user without rights there and without a home."""
    site = tmp_path / "site-packages"
    shutil.copytree(ROOT / "kafkalog_spark", site / "kafkalog_spark", ignore=shutil.ignore_patterns("__pycache__"))
    folders = [site, *(path for path in site.rglob("*") if path.is_dir())]
    for folder in folders:
        (folder / "__pycache__").touch()  # a file, since permissions stop anybody but root
        folder.chmod(0o555)
    try:
        directory, hits, _ = call(site, TMPDIR=str(tmp_path))
        assert Path(directory).parent == tmp_path / f"kafkalog-kernels-{os.getuid()}"
        assert hits == 0
        assert call(site, TMPDIR=str(tmp_path)) == (directory, 1, ""), "the next worker"
    finally:
        for folder in folders:
            folder.chmod(0o755)


@pytest.mark.end_to_end
def test_prewarmed_image_compiles_nothing_for_its_user(tmp_path: Path) -> None:
    """A package that root has warmed and that its user can only read, with a home and without one."""
    site = tmp_path / "site-packages"
    shutil.copytree(ROOT / "kafkalog_spark", site / "kafkalog_spark", ignore=shutil.ignore_patterns("__pycache__"))
    beside = str(site / "kafkalog_spark" / "kernels" / "__pycache__")
    assert call(site) == (beside, 0, "")
    folders = [path for path in site.rglob("*") if path.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    try:
        for environment in ({"TMPDIR": str(tmp_path)}, {"NUMBA_CACHE_DIR": str(tmp_path / "named")}):
            assert call(site, "unwritable", **environment) == (beside, 1, "")
        assert not (tmp_path / "named").exists()
        assert not list(tmp_path.glob("kafkalog-kernels-*"))
    finally:
        for folder in folders:
            folder.chmod(0o755)


@pytest.mark.end_to_end
def test_kernels_for_a_baseline_processor_are_used_by_a_better_one(tmp_path: Path) -> None:
    """Those that a platform's wheel brings: compiled elsewhere, for the processors that BASELINE names."""
    site = tmp_path / "site-packages"
    shutil.copytree(ROOT / "kafkalog_spark", site / "kafkalog_spark", ignore=shutil.ignore_patterns("__pycache__"))
    baseline = {"NUMBA_CPU_NAME": cache_directories.BASELINE[platform.machine()], "NUMBA_CPU_FEATURES": ""}
    compiled = site / "kafkalog_spark" / "compiled"
    directory, hits, _ = call(site, NUMBA_CACHE_DIR=str(compiled), **baseline)
    assert (Path(directory).parent, hits) == (compiled, 0)
    assert call(site) == (directory, 1, "")


@pytest.mark.end_to_end
def test_only_one_of_two_processes_compiles_a_kernel(tmp_path: Path) -> None:
    package = wheel(tmp_path)
    with ThreadPoolExecutor() as threads:
        calls = [threads.submit(call, package, NUMBA_CACHE_DIR=str(tmp_path / "named")) for _ in range(2)]
    assert sorted(one.result()[1] for one in calls) == [0, 1]


@pytest.mark.end_to_end
def test_numba_cache_dir_takes_precedence_also_for_a_wheel(tmp_path: Path) -> None:
    directory, _, said = call(wheel(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "named"))
    assert Path(directory).parent == tmp_path / "named"
    assert said == ""


@pytest.mark.end_to_end
def test_no_writable_cache_compiles_kernels_and_logs_the_cost_once(tmp_path: Path) -> None:
    directory, hits, said = call(wheel(tmp_path), "nowhere")
    assert directory is None
    assert hits == 0
    assert said.count("\n") == 1
    assert "every Python process compiles" in said
    assert "spark.executorEnv.NUMBA_CACHE_DIR" in said


def test_cache_directories_are_tried_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def place(source: Path) -> str | None:
        cache_directories.writable_directory.cache_clear()
        return cache_directories.writable_directory(
            cache_directories.cache_directories("a.kernel", str(source / "kernel.py"), "0" * 64)
        )

    package, home, temporary = tmp_path / "package", tmp_path / "home", tmp_path / "temporary"
    package.mkdir()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "named"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(cache_directories, "temporary_directory", lambda: str(temporary))
    assert place(package) == str(tmp_path / "named" / PACKED)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    assert place(package) == str(package / "__pycache__")
    assert place(Path("/proc")) == str(home / ".cache" / "numba" / PACKED)  # a directory that takes no file
    monkeypatch.setenv("HOME", NOWHERE)
    assert place(Path("/proc")) == str(temporary / PACKED)
    monkeypatch.setattr(cache_directories, "temporary_directory", lambda: NOWHERE)
    assert place(Path("/proc")) is None


def test_planning_detects_whether_a_kernel_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Numba: in a package that was warmed, in NUMBA_CACHE_DIR, and nowhere."""
    package = tmp_path / "warmed"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "a_kernel.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HOME", NOWHERE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(cache_directories, "temporary_directory", lambda: str(tmp_path / "temporary"))
    assert not cache_directories.has_compiled("warmed.a_kernel")
    compiled = package / "__pycache__" / "a_kernel.decode-1.py311.nbi"
    compiled.touch()
    assert cache_directories.has_compiled("warmed.a_kernel")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "named"))
    named = tmp_path / "named" / "warmed.a_kernel-0123"
    named.mkdir(parents=True)
    (named / compiled.name).touch()
    compiled.unlink()
    assert cache_directories.has_compiled("warmed.a_kernel")


def test_directory_in_tmpdir_that_others_can_write_to_is_not_used(tmp_path: Path, monkeypatch: Any) -> None:
    """What is in a cache is run, and its name can be foreseen by everybody on the machine."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", NOWHERE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    shared, link = tmp_path / "shared", tmp_path / "link"
    shared.mkdir()
    shared.chmod(0o777)
    link.symlink_to(tmp_path)

    def directories() -> tuple[cache_directories.CacheDirectory, ...]:
        return cache_directories.cache_directories("a.kernel", "/proc/kernel.py", "0" * 64)

    for planted in (shared, link):
        monkeypatch.setattr(cache_directories, "temporary_directory", lambda planted=planted: str(planted))
        cache_directories.writable_directory.cache_clear()
        assert cache_directories.writable_directory(directories()) is None
        assert not any(entry.base == str(planted) for entry in directories()), "not looked at either"
    assert list(shared.iterdir()) == []


# What the stamp of a module is in a new process; with "then" a file is changed after its kernels are loaded.
STAMP = """
import importlib, sys
from pathlib import Path
from kafkalog_spark.kernels import cache_directories, compile_cache
importlib.import_module(sys.argv[1])
if sys.argv[2]:
    with Path(sys.argv[2]).open("a") as opened:
        opened.write("# changed\\n")
print(compile_cache.sources_digest(sys.argv[1]))
"""


def copy_packages(to: Path) -> Path:
    for root, package in ((ROOT, "kafkalog_spark"), (ROOT / "broker", "kafkalog_broker")):
        for file in (root / package).rglob("*.py"):
            copy = to / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    return to


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Both packages, in a directory where they can be changed."""
    return copy_packages(tmp_path)


def named(copied: Path, file: str) -> Path:
    (found,) = copied.rglob(file)
    return found


def module_of(copied: Path, file: str) -> str:
    return ".".join(named(copied, file).relative_to(copied).with_suffix("").parts)


def stamp(copied: Path, file: str, then: str = "") -> str:
    """Of the kernels in `file`. Without the compiler, unless a file is changed `then`."""
    ran = subprocess.run(
        [sys.executable, "-c", STAMP, module_of(copied, file), str(named(copied, then)) if then else ""],
        env={**os.environ, "PYTHONPATH": str(copied), "NUMBA_DISABLE_JIT": "0" if then else "1"},
        cwd="/", capture_output=True, text=True, check=True,
    )  # fmt: skip
    return ran.stdout.strip()


def change(file: Path) -> None:
    with file.open("a") as opened:
        opened.write("# changed\n")


KERNELS = ("decode_v2.py", "encode.py", "record_walk_kernel.py", "cleaner_kernel.py")
ANEW = {
    "primitives.py": {"decode_v2.py", "encode.py", "record_walk_kernel.py", "cleaner_kernel.py"},
    "layout.py": {
        "decode_v2.py",
        "encode.py",
        "record_walk_kernel.py",
        "cleaner_kernel.py",
    },  # constants
    "offset_map_kernel.py": {"cleaner_kernel.py"},
    "rows.py": {"decode_v2.py"},  # inlined helpers
    "record_fields.py": {"record_walk_kernel.py", "cleaner_kernel.py"},  # inlined helpers
}
"""A file that changes, and the files whose kernels have something of it."""

# The stamps of these modules as they are, and with each of these files changed: a fork for each, since a process reads
# a file once. Without the compiler: some imports would compile for 20 s.
STAMPS_OF_CHANGES = """
import importlib, os, sys
from pathlib import Path
import numba
modules, changes = sys.argv[1].split(","), ["", *sys.argv[2:]]
for changed in changes:
    before = Path(changed).read_bytes() if changed else b""
    if changed:
        Path(changed).write_bytes(before + b"# changed\\n")
    if os.fork() == 0:
        from kafkalog_spark.kernels import cache_directories, compile_cache
        for name in modules:
            importlib.import_module(name)
        print(*(compile_cache.sources_digest(name) for name in modules), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
    if changed:
        Path(changed).write_bytes(before)
"""


@pytest.fixture(scope="module")
def stamps_of_changes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The stamps of KERNELS by the file that was changed, "" for none."""
    root = copy_packages(tmp_path_factory.mktemp("packages"))
    ran = subprocess.run(
        [sys.executable, "-c", STAMPS_OF_CHANGES, ",".join(module_of(root, file) for file in KERNELS),
         *(str(named(root, file)) for file in ANEW)],
        env={**os.environ, "PYTHONPATH": str(root), "NUMBA_DISABLE_JIT": "1"},
        cwd="/", capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(zip(("", *ANEW), map(str.split, ran.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("changed", ANEW)
def test_changed_file_recompiles_exactly_the_kernels_that_use_it(
    stamps_of_changes: dict[str, list[str]], changed: str
) -> None:
    """Numba compares the file of the kernel only; the kernels call functions, and have constants, of other files."""
    before, after = stamps_of_changes[""], stamps_of_changes[changed]
    assert len(set(before)) == len(KERNELS)
    assert {file for file, old, new in zip(KERNELS, before, after, strict=True) if old != new} == ANEW[changed]


@pytest.mark.end_to_end
def test_kernel_compiled_from_an_old_file_is_not_cached_for_the_changed_file(copied: Path) -> None:
    """Kernels are compiled when they are first called, long after their helpers were loaded."""
    before = stamp(copied, "decode_v2.py")
    assert stamp(copied, "decode_v2.py", then="rows.py") == before
    assert stamp(copied, "decode_v2.py") != before


@pytest.mark.end_to_end
def test_kernel_with_a_changed_helper_is_not_loaded_from_the_cache(copied: Path) -> None:
    assert call(copied)[1] == 0
    assert call(copied)[1] == 1
    change(named(copied, "primitives.py"))
    assert call(copied)[1] == 0
