"""What the README says of itself is held by the code."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import kafkalog_spark
from kafkalog_spark.sink.options import options_table as sink_options_table
from kafkalog_spark.source.option_spec import options_table

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


def test_the_tree_names_every_room_and_no_other() -> None:
    text = (
        (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("## Where is what")[1].split("\n## ")[0]
    )
    named = set(re.findall(r"(\w+)/", text.split("```")[1]))
    packages = [ROOT / "kafkalog_spark", ROOT / "broker" / "kafkalog_broker"]
    rooms = {path.parent.name for package in packages for path in package.rglob("*.py")}
    assert named - {"broker"} == rooms
    files = {path.name for package in packages for path in package.rglob("*.py")}
    assert set(re.findall(r"\w+\.py", text)) <= files


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
