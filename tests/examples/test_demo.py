"""make demo on a machine that has too much to do."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> Any:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Step:
    """Fails as Spark does, so many times."""

    def __init__(self, failures: int, text: str = "SparkException: Python worker failed to connect back.") -> None:
        self.failures, self.text = failures, text
        self.runs = 0

    def __call__(self) -> None:
        self.runs += 1
        if self.runs <= self.failures:
            raise RuntimeError(f"{self.text}\n" + "\tat org.apache.spark.api.python\n" * 20)


@pytest.mark.parametrize("failures", [0, 1])
def test_step_whose_python_did_not_start_in_time_runs_once_again(demo: Any, failures: int) -> None:
    step = Step(failures)
    demo.with_one_retry(step)
    assert step.runs == failures + 1


def test_step_whose_python_did_not_start_twice_ends_with_one_sentence(demo: Any) -> None:
    step = Step(2)
    with pytest.raises(SystemExit) as ended:
        demo.with_one_retry(step)
    assert step.runs == 2
    assert str(ended.value).startswith(
        "A Python worker of Spark did not start within 10 s, which is a fixed limit, in two attempts"
    )
    assert "\n" not in str(ended.value)


def test_step_that_fails_otherwise_is_not_run_again(demo: Any) -> None:
    step = Step(1, "something else")
    with pytest.raises(RuntimeError, match="something else"):
        demo.with_one_retry(step)
    assert step.runs == 1


def test_demo_without_spark_says_what_to_type() -> None:
    code = "import sys; sys.modules['pyspark'] = None; sys.path.insert(0, sys.argv[1]); import demo; demo.main('.')"
    ran = subprocess.run([sys.executable, "-c", code, str(DEMO.parent)], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr == f"{sys.executable} has no Spark: type make demo, or install kafkalog[spark] there.\n"
