"""What the README says of itself is held by the code."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import kafkalog_spark
from kafkalog_spark.sink.option_names import options_table as sink_options_table
from kafkalog_spark.source.options import options_table

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_options_is_the_one_that_the_declarations_make() -> None:
    text = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- options:.*?-->\n(.*)<!-- options end -->", text, re.DOTALL)
    assert shown is not None
    assert shown[1] == options_table()


def test_the_table_of_the_sinks_options_is_the_one_that_the_declarations_make() -> None:
    text = (ROOT / "docs" / "sink.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- options:.*?-->\n(.*)<!-- options end -->", text, re.DOTALL)
    assert shown is not None
    assert shown[1] == sink_options_table()


def test_the_version_is_said_in_one_place() -> None:
    """kafkalog_spark/__init__.py; whatever prints another number has been forgotten."""
    assert tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["version"] == {
        "path": "kafkalog_spark/__init__.py"
    }
    assert version("kafkalog") == kafkalog_spark.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changes, re.MULTILINE)[0] == kafkalog_spark.__version__
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for said in re.findall(r"kafkalog-(\d+\.\d+\.\d+\w*)", page.read_text(encoding="utf-8")):
            assert said == kafkalog_spark.__version__, page


def test_every_file_that_the_documents_name_exists() -> None:
    pages = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))
    for name in ("README.md", "CONTRIBUTING.md", *pages):
        text = (ROOT / name).read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            if "://" not in link:
                assert (ROOT / name).parent.joinpath(link).exists(), f"{name} links to {link}"


def test_the_file_map_names_every_module_and_no_other() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for package in ("log", "source", "sink"):
        modules = {
            str(path.relative_to(ROOT / "kafkalog_spark" / package))
            for path in (ROOT / "kafkalog_spark" / package).rglob("*.py")
            if path.name != "__init__.py"
        }
        missing = {module for module in modules if Path(module).name not in text}
        assert not missing, f"docs/architecture.md does not say what these hold: {sorted(missing)}"
    known = {path.name for path in ROOT.rglob("*.py") if ".venv" not in path.parts}
    unknown = set(re.findall(r"`(?:[\w/]+/)?(\w+\.py)`", text)) - known
    assert not unknown, f"docs/architecture.md names files that are not there: {sorted(unknown)}"


def test_the_file_map_of_the_broker_names_every_module_in_its_folder_and_no_other() -> None:
    text = (ROOT / "docs" / "broker.md").read_text(encoding="utf-8").split("## File map")[1].split("\n## ")[0]
    package = ROOT / "broker" / "kafkalog_broker"
    named: dict[str, set[str]] = {}
    for heading, body in re.findall(r"\n\*\*([\w/ ]+)\*\*([^\n]*(?:\n(?!\*\*)[^\n]*)*)", text):
        firsts = "\n".join(line.split("|")[1] for line in body.splitlines() if line.startswith("| `"))
        named["." if heading == "the package itself" else heading] = set(re.findall(r"`(\w+\.py)`", firsts))
    held: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        if path.name != "__init__.py":
            held.setdefault(str(path.parent.relative_to(package)), set()).add(path.name)
    del held["api"], named["api"]  # a file an API
    assert named == held


@pytest.mark.parametrize(
    "document", ["README.md", *sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))]
)
def test_pip_lines_work_as_printed(document: str) -> None:
    """No package index has kafkalog: a checkout (".") or a wheel is what pip is given, with extras that exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wheel = f"kafkalog-{kafkalog_spark.__version__}-py3-none-any.whl"
    text = (ROOT / document).read_text(encoding="utf-8")
    for given, extras in re.findall(r"pip install '([^'\[]+)\[([a-z,]+)\]'", text):
        assert given in (".", wheel)
        assert set(extras.split(",")) <= set(project["optional-dependencies"])


def test_make_test_is_the_test_command_that_ci_runs() -> None:
    assert "make test " in README
    commands = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert {"make lint", "make test", "make test-end-to-end"} <= set(commands)


def test_the_number_of_apis_is_the_one_that_is_served() -> None:
    from kafkalog_broker import api

    assert f" {len(api.load_all())} APIs " in README
