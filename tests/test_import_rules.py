"""Who may import whom, where import-linter cannot say it: what is loaded at run time, and lists of what is allowed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "kafkalog_spark"

LOG_ROOMS = ("format", "kernels", "log", "store")
"""What reads and writes logs, without Spark."""
LOG_FILES = sorted(path for room in LOG_ROOMS for path in (PACKAGE / room).rglob("*.py"))
OURS = tuple(f"kafkalog_spark.{room}" for room in (*LOG_ROOMS, "errors", "options"))

LOG_MAY_IMPORT = {"numpy", "numba", "llvmlite", "pyarrow", "lz4", "snappy", "cramjam", "zstandard", "crc32c"}
# Encrypted segments: the extra [tiered], imported when the first of them is met.
TIERED_MAY_IMPORT = {"cryptography", "Crypto"}
# Buckets: the extra [object-store], imported with the first request; boto3 only for profiles.
STORE_MAY_IMPORT = {"obstore", "fsspec", "boto3", "botocore"}

# What planning needs must be there without waiting for numba; with these, everything in source/.
LIGHT = [
    f"kafkalog_spark.{name}"
    for name in (
        "errors",
        "format.layout",
        "log.decode.record_schema",
        "format.names",
        "format.atomic_file",
        "format.fsync",
        "format.regular_file",
        "format.offset_index",
        "format.time_index",
        "format.transaction_index",
        "format.producer_snapshot",
        "format.checkpoint",
        "format.partition_metadata",
        "format.meta_properties",
        "log.read.partition_log",
        "log.log_dir",
        "datasource",
    )
]


def modules(root: Path = PACKAGE) -> list[str]:
    """Dotted names of all modules under `root`."""
    paths = (path.relative_to(ROOT).with_suffix("") for path in sorted(root.rglob("*.py")))
    return [".".join(path.parts).removesuffix(".__init__") for path in paths]


@cache
def import_statements(path: Path) -> Sequence[ast.Import | ast.ImportFrom]:
    """Those of a file, anywhere in it."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(path: Path) -> Iterator[str]:
    """The dotted names that a file imports; relative imports are not used in this project."""
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{path} has a relative import"
            yield node.module or ""


@pytest.mark.parametrize(
    "path",
    LOG_FILES,
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_log_imports_only_arrays_codecs_and_our_errors(path: Path) -> None:
    extras = {"tiered": TIERED_MAY_IMPORT, "store": STORE_MAY_IMPORT}.get(path.parent.name, set())
    allowed = sys.stdlib_module_names | LOG_MAY_IMPORT | extras
    foreign = {name for name in imported(path) if name.partition(".")[0] not in allowed and not name.startswith(OURS)}
    assert not foreign


def test_numba_is_imported_by_kernels_only() -> None:
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any(name.partition(".")[0] == "numba" for name in imported(path))
    }
    typed = {user for user in users if user.startswith("typed/") and user.endswith("kernel.py")}
    assert {user for user in users - typed if not user.startswith("kernels/")} == set()


def test_pyspark_is_imported_by_the_data_source_only() -> None:
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any(name.partition(".")[0] == "pyspark" for name in imported(path))
    }
    # `kafkalog_spark.register` takes a session; it may name its type
    rooms = (
        "source/",
        "sink/",
        "spark/",
        "datasource.py",
        "registration.py",
        "__init__.py",
        "daemon.py",
    )
    assert {user for user in users if not user.startswith(rooms)} == set()


OF_A_JVM = {"_jvm", "_jsc", "_jdf", "_jconf", "_jsparkSession", "_sc", "sparkContext", "SparkContext", "_gateway"}
"""Names that a session of Spark Connect does not have: with them code works on a classic driver only."""


def of_a_jvm(tree: ast.AST) -> set[str]:
    """Which of them a file uses: as an attribute, by import, by its name alone, or as the text that getattr takes."""
    used = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.alias(name=name) | ast.Constant(value=str(name)):
                used.add(name)
    return used & OF_A_JVM


def test_product_does_not_call_the_jvm_or_use_a_spark_context() -> None:
    paths = [path for root in (PACKAGE, ROOT / "broker" / "kafkalog_broker") for path in sorted(root.rglob("*.py"))]
    users = {str(path.relative_to(ROOT)): of_a_jvm(ast.parse(path.read_text(encoding="utf-8"))) for path in paths}
    assert {path: names for path, names in users.items() if names} == {}
    py4j = [str(path) for path in paths if any(name.partition(".")[0] == "py4j" for name in imported(path))]
    assert py4j == []


def test_examples_and_notebooks_do_not_call_the_jvm() -> None:
    """They are what people begin with, on Spark Connect too; spark.log.level says what setLogLevel would."""
    users = {path.name: of_a_jvm(ast.parse(path.read_text(encoding="utf-8"))) for path in ROOT.glob("examples/*.py")}
    for path in ROOT.glob("notebooks/*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        users[path.name] = of_a_jvm(ast.parse(code))
    assert len(users) > 10
    assert {path: names for path, names in users.items() if names} == {}


@pytest.mark.parametrize(
    "line",
    ["spark.sparkContext.getConf()", "spark._jvm.java.lang.System", "from pyspark import SparkContext",
     "hasattr(spark, '_jsparkSession')", "SparkContext.getOrCreate()"],
)  # fmt: skip
def test_jvm_calls_are_detected(line: str) -> None:
    assert of_a_jvm(ast.parse(line))


def loaded_after(*names: str) -> dict[str, str]:
    """heavy package -> the module of `names` whose import loads it, in a fresh interpreter."""
    program = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    for heavy in ("numba", "pyspark", "pandas", "obstore", "fsspec", "boto3"):
        if heavy in sys.modules:
            print(heavy, name)
"""
    ran = subprocess.run([sys.executable, "-c", program, *names], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, str] = {}
    for line in ran.stdout.splitlines():
        heavy, name = line.split()
        found.setdefault(heavy, name)
    return found


def test_importing_the_package_loads_neither_numba_nor_pyspark() -> None:
    assert loaded_after("kafkalog_spark") == {}


def test_planning_and_small_files_load_no_numba() -> None:
    # Planning and committing happen in processes of their own, for each micro-batch anew.
    sink = [name for name in modules(PACKAGE / "sink") if name != "kafkalog_spark.sink.task_writer"]
    assert "numba" not in loaded_after(*LIGHT, *modules(PACKAGE / "source"), *sink)


def test_log_format_loads_no_pyspark_and_no_object_store_client() -> None:
    assert (
        not {"pyspark", "obstore", "fsspec", "boto3"}
        & loaded_after(*modules(PACKAGE / "log"), *modules(PACKAGE / "store")).keys()
    )


def test_kernel_module_loads_numba() -> None:
    assert loaded_after("kafkalog_spark.kernels.primitives") == {"numba": "kafkalog_spark.kernels.primitives"}


def test_every_module_logs_under_its_own_name() -> None:
    """So that a level can be set for it, or for the package it is in (BROKER_LOGGER, KIP-412)."""
    calls = re.compile(r"getLogger\((.*?)\)")
    named = {
        f"{path.relative_to(ROOT)}: {name}"
        for package in (PACKAGE, ROOT / "broker" / "kafkalog_broker")
        for path in package.rglob("*.py")
        for name in calls.findall(path.read_text(encoding="utf-8"))
        if name not in ("__name__", '"asyncio"', '"aiokafka"') and path.name != "logger_levels.py"
    }
    assert named == set()


BROKER = ROOT / "broker" / "kafkalog_broker"


def imports_within(package: Path) -> dict[str, set[str]]:
    """Module -> the modules of the same package that it imports anywhere, also for types only."""
    names = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in package.rglob("*.py")
    }
    found: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        for node in import_statements(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                found[name] |= (full & names.keys()) or ({node.module} & names.keys())
            elif isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names} & names.keys()
        found[name].discard(name)
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or not."""
    reached = {}
    for start in graph:
        seen: set[str] = set()
        left = [start]
        while left:
            for other in graph[left.pop()] - seen:
                seen.add(other)
                left.append(other)
        reached[start] = seen
    groups = {
        frozenset(other for other in reached[name] if name in reached[other]) for name in graph if name in reached[name]
    }
    return sorted(sorted(group) for group in groups)


def test_import_cycle_is_detected() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]


@pytest.mark.parametrize("package", [PACKAGE, BROKER], ids=lambda package: package.name)
def test_modules_have_no_import_cycles(package: Path) -> None:
    assert circles(imports_within(package)) == []


def test_no_module_keeps_state_by_broker() -> None:
    """What belongs to one broker is an attribute of one of its parts, not an entry of a table of all brokers."""
    users = [path.name for path in BROKER.rglob("*.py") if re.search(r"Dictionary\[Broker\b", path.read_text())]
    assert users == []


@pytest.mark.parametrize("package", ["kafkalog_spark", "broker/kafkalog_broker"])
def test_package_is_marked_as_typed(package: str) -> None:
    """PEP 561. The wheel takes whatever lies in the package; tests/release_check.py looks into it."""
    assert (ROOT / package / "py.typed").read_bytes() == b""


OWNER_OF_FSYNC = PACKAGE / "format" / "fsync.py"


def test_fsync_is_called_by_one_module() -> None:
    """All other modules call the functions of format.fsync, so that the order of writes can be reviewed."""
    sources = [path for root in (PACKAGE, ROOT / "broker" / "kafkalog_broker") for path in root.rglob("*.py")]
    calls = {
        path.relative_to(ROOT).as_posix()
        for path in sources
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("fsync", "fdatasync", "sync", "msync")
        and isinstance(node.value, ast.Name) and node.value.id == "os"
    }  # fmt: skip
    assert calls == {OWNER_OF_FSYNC.relative_to(ROOT).as_posix()}
