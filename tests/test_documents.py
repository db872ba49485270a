"""Pages that list what the code has: errors with their cures, options by task."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

import kafkalog_broker.errors
import kafkalog_spark.errors
from kafkalog_spark.log.tiered.tier_options import is_tier_option
from kafkalog_spark.source.foreign_options import IGNORED
from kafkalog_spark.source.options import READ_OPTIONS
from kafkalog_spark.store.storage_options import is_storage_option
from tests.pages import PAGES, QUICKSTARTS, ROOT, listings, text_of

DOCS = ROOT / "docs"
ERRORS = (DOCS / "errors.md").read_text(encoding="utf-8")
BY_TASK = (DOCS / "options.md").read_text(encoding="utf-8").split("## By task")[1].split("## All options")[0]


def errors_of(module: ModuleType) -> set[str]:
    """Names of the exceptions that a module defines."""
    return {
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == module.__name__
    }


@pytest.mark.parametrize("module", [kafkalog_spark.errors, kafkalog_broker.errors], ids=lambda module: module.__name__)
def test_error_page_has_a_remedy_for_every_exception(module: ModuleType) -> None:
    missing = errors_of(module) - set(re.findall(r"^\| `(\w+)` \|", ERRORS, re.MULTILINE))
    assert not missing, f"docs/errors.md does not say what to do about {sorted(missing)}"


def test_error_page_lists_only_existing_exceptions() -> None:
    known = errors_of(kafkalog_spark.errors) | errors_of(kafkalog_broker.errors)
    rows = [row for row in re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", ERRORS, re.MULTILINE) if row[0][0].isupper()]
    named = [name for name, _, _ in rows if not name.isupper()]
    assert sorted(named) == sorted(set(named)), "each once"
    assert not set(named) - known
    assert all(happened.strip() and cure.strip() for _, happened, cure in rows)


def test_options_by_task_page_lists_only_existing_options() -> None:
    known = {option.name for option in READ_OPTIONS} | set(IGNORED)
    named = set()
    for row in re.findall(r"^\| (.*) \| (.*) \|$", BY_TASK, re.MULTILINE)[1:]:
        # a value follows its option: `mode` = `DROPMALFORMED` or `PERMISSIVE`
        texts = re.sub(r"= `[^`]*`( or `[^`]*`)?(?!\s*=)", "", row[1])
        named |= {name for name in re.findall(r"`([a-z][\w.]+)`", texts) if "(" not in name}
    unknown = {
        name for name in named - known if not is_storage_option(name.lower()) and not is_tier_option(name.lower())
    }
    assert unknown <= {"auto"}, f"docs/options.md names options that there are not: {sorted(unknown)}"
    assert len(named & known) > 30


def test_options_by_task_page_lists_all_our_options() -> None:
    """A reader who looks for a task finds it here, or the page says nothing of something that there is."""
    missing = {option.name for option in READ_OPTIONS} - set(re.findall(r"[\w.]+", BY_TASK))
    assert missing <= {"path", "paths", "kafka.isolation.level"}, f"docs/options.md lacks by task: {sorted(missing)}"


def test_listings_that_are_not_run_give_a_reason() -> None:
    """The others are run: tests/spark/test_pages.py, and tests/examples/test_pages.py for the quickstarts."""
    for page in PAGES:
        reasons = [listing.reason for listing in listings(page) if listing.reason is not None]
        assert text_of(page).count("<!-- not run") == len(reasons), f"{page}: a reason that stands before no listing"
        assert all(reason.startswith("it needs ") for reason in reasons), page


def test_listings_that_are_not_run_parse_as_python() -> None:
    for page in PAGES:
        for listing in listings(page, "python"):
            compile(listing.code, str(listing), "exec")


def test_quickstart_listings_have_known_languages() -> None:
    for page in QUICKSTARTS:
        assert {listing.language for listing in listings(page) if listing.reason is None} <= {"shell", "python"}
