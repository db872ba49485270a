"""The pytest plugin in other projects: it has no effect until its fixture is requested."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parent.parent.parent

TEST_OF_A_PROJECT = """
import sys

import broker  # the project's own


def test_of_a_project(pytestconfig):
    assert broker.OURS
    loaded = {name for name in sys.modules if name.startswith(("kafkalog", "numba", "pyarrow", "numpy"))}
    assert loaded == {"kafkalog_broker", "kafkalog_broker.pytest_plugin"}
    assert "kafkalog(" in "".join(pytestconfig.getini("markers"))
"""


def run_pytest(project: Path, *arguments: str, before: str = "pass") -> subprocess.CompletedProcess[str]:
    """pytest in `project` in a process of its own, with the plugin as an installed kafkalog brings it.

    Named by -p and not found as an entry point, so that it is this source tree's also where another is installed.
    """
    code = f"import sys; {before}; import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "-p", "kafkalog_broker.pytest_plugin", "-p", "no:cacheprovider", *arguments]
    paths = os.pathsep.join([str(project), str(ROOT), str(ROOT / "broker")])
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": paths}
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("place", ["broker.py", "broker/__init__.py"])
def test_project_with_its_own_broker_fixture_is_unaffected_and_nothing_is_imported(tmp_path, place):
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("OURS = True\n")
    (tmp_path / "test_project.py").write_text(TEST_OF_A_PROJECT)
    ran = run_pytest(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


def test_project_with_its_own_broker_fixture_can_request_kafkalog_broker(tmp_path):
    (tmp_path / "broker.py").write_text("raise ImportError('not yours')\n")
    (tmp_path / "test_project.py").write_text("def test(kafkalog_broker):\n    assert kafkalog_broker.port\n")
    ran = run_pytest(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_fixture_without_the_extra_names_the_missing_extra(tmp_path):
    (tmp_path / "test_project.py").write_text("def test(kafkalog_broker): pass\n")
    ran = run_pytest(tmp_path, before="sys.modules['xxhash'] = None")
    assert ran.returncode == 1
    assert "pip install 'cryptography>=42'" in ran.stdout
    assert "Traceback" not in ran.stdout + ran.stderr
    assert "ModuleNotFoundError" not in ran.stdout
