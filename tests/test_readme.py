"""Statements of the README and docs that must agree with the code."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version

import pytest

import kafkalog_spark
from benchmarks import figures
from docs_site import option_tables, property_table
from kafkalog_spark.options import OptionSpec
from kafkalog_spark.sink.options import WRITE_OPTIONS
from kafkalog_spark.source.options import READ_OPTIONS
from tests.pages import PAGES, ROOT, text_of

README = text_of("README.md")


@pytest.mark.parametrize("page", option_tables.PAGES)
def test_options_table_equals_the_declarations(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert text == option_tables.page_with_table(page), "python -m docs_site.option_tables writes it"


def test_own_properties_table_equals_the_definitions() -> None:
    assert text_of("docs/broker.md") == property_table.page_with_table(), "python -m docs_site.property_table writes it"


@pytest.mark.parametrize("declared", [READ_OPTIONS, WRITE_OPTIONS])
def test_every_option_has_a_description(declared: tuple[OptionSpec, ...]) -> None:
    for spec in declared:
        assert re.fullmatch(r"[^\s|][^|\n]*\.", spec.meaning), f"{spec.name}: sentences that fit a table's cell"


def test_version_is_defined_in_one_place() -> None:
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


def test_every_file_named_by_the_documents_exists() -> None:
    pages = sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))
    for name in ("README.md", "CONTRIBUTING.md", *pages):
        text = (ROOT / name).read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            if "://" not in link:
                assert (ROOT / name).parent.joinpath(link).exists(), f"{name} links to {link}"


@pytest.mark.parametrize("page", PAGES)
def test_every_source_named_by_a_page_exists(page: str) -> None:
    named = re.findall(r"`((?:tests|broker|kafkalog_spark|benchmarks|examples)/[\w/.*-]+)`", text_of(page))
    assert [name for name in named if not any(ROOT.glob(name.rstrip("/")))] == []


def test_every_file_listed_for_a_kafka_class_exists() -> None:
    """A name follows the folder of the one before it; a semicolon begins at a package again."""
    cells = re.findall(r"^\| [^|]+ \| (`[^|]*\.py`.*) \|$", text_of("docs/architecture.md"), re.MULTILINE)
    assert len(cells) > 12
    packages = [ROOT / "broker" / "kafkalog_broker", ROOT / "kafkalog_spark"]
    for part in "; ".join(cells).replace(" with ", ", ").split(";"):
        folders = packages
        for name in re.findall(r"`([\w/]+\.py)`", part):
            files = [path for folder in folders if (path := folder / name).exists()]
            assert files, f"{name} of:{part}"
            folders = [*(path.parent for path in files), *packages]


def test_benchmark_page_has_the_newest_results() -> None:
    assert text_of("docs/figures.md") == figures.page(), "python -m benchmarks.figures writes it"


def test_readme_figures_equal_the_benchmark_page() -> None:
    page = text_of("docs/figures.md")
    for number, unit in re.findall(r"([\d.]+) (times|MB|s)\b", README):
        assert re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d.])", page), f"{number} {unit}"


def test_directory_tree_lists_every_package_and_no_other() -> None:
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
def test_pip_commands_work_as_printed(document: str) -> None:
    """No package index has kafkalog: a checkout (".") or a wheel is what pip is given, with extras that exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wheel = f"kafkalog-{kafkalog_spark.__version__}-py3-none-any.whl"
    text = (ROOT / document).read_text(encoding="utf-8")
    for given, extras in re.findall(r"pip install '([^'\[]+)\[([a-z,]+)\]'", text):
        assert given in (".", wheel)
        assert set(extras.split(",")) <= set(project["optional-dependencies"])


def test_make_test_equals_the_test_command_of_ci() -> None:
    assert "make test " in README
    commands = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert {"make lint", "make test", "make test-end-to-end"} <= set(commands)


def test_number_of_apis_equals_the_served_ones() -> None:
    from kafkalog_broker import api

    assert f" {len(api.load_all())} APIs " in README
