"""The examples of docs/testing.md and examples/test_with_a_broker.py: pytest collects the functions they define."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkalog_broker.pytest_plugin import kafkalog_broker  # noqa: F401 - also where the plugin is not installed

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "testing.md"
FILE = ROOT / "examples" / "test_with_a_broker.py"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8").split("## An example")[1], re.DOTALL)

for number, example in enumerate(EXAMPLES):
    exec(compile(example, f"{PAGE}, example {number + 1}", "exec"), globals())
exec(compile(FILE.read_text(encoding="utf-8"), str(FILE), "exec"), globals())


def test_page_has_at_least_five_examples() -> None:
    assert sum(name.startswith("test_") for name in globals()) >= 7
