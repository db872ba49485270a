"""Run client suites against the broker and compare their outcomes with the expected ones.

    python -m tests.broker.suites.run [SUITE...] [-k WORDS] [--update]

Ends with 1 when a test did something else than the list says. `--update` writes the lists anew, keeping the reasons,
and tests/broker/suites/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kafkalog_broker.testing import running_broker
from tests.broker.suites import expectations, page
from tests.broker.suites.sources import SUITES, SourceMissing, Suite, fetch

PLUGINS = Path(__file__).parent / "plugins"
TEST_SECONDS = 300  # the longest test of the suites takes a minute


def run(suite: Suite, options: list[str]) -> dict[str, dict[str, Any]]:
    """Run the suite's tests in a process of their own: name to outcome and why. Raises SourceMissing, RuntimeError."""
    directory = fetch(suite)
    with tempfile.TemporaryDirectory() as work, running_broker(suite.properties) as broker:
        outcomes = Path(work, "outcomes.json")
        command = [sys.executable, "-m", "pytest", "-p", "outcomes", "-p", suite.plugin, "-p", "no:cacheprovider"]
        # Without the suite's own pytest settings, and without those of this project, which lies above its directory.
        command += [
            "-c",
            os.devnull,
            "--rootdir",
            str(directory),
            "--timeout",
            str(TEST_SECONDS),
            "-q",
            "--tb=short",
            "--disable-warnings",
        ]
        command += ["-o", "log_level=WARNING", *suite.options, *options, *suite.paths]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(PLUGINS), *([str(directory)] if suite.own_client else [])]),
            "KAFKALOG_OUTCOMES": str(outcomes),
            **{name: value.format(bootstrap=broker.bootstrap) for name, value in suite.environment.items()},
        }
        ran = subprocess.run(command, cwd=directory, env=environment, check=False)
        if not outcomes.exists():
            raise RuntimeError(f"the tests of {suite.name} could not be run: pytest ended with {ran.returncode}")
        found: dict[str, dict[str, Any]] = json.loads(outcomes.read_text())
        warnings = [line for line in broker.log().splitlines() if " ERROR " in line]
    for line in warnings:
        print(f"the broker logged: {line}")
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.suites.run", description=__doc__)
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("-k", metavar="WORDS", help="only tests that fit, as for pytest; the others are not missed")
    parser.add_argument("--update", action="store_true", help="write the lists and README.md anew")
    asked = parser.parse_args(arguments)
    wrong = 0
    for name in asked.suites or SUITES:
        expected = expectations.load(name)
        try:
            outcomes = run(SUITES[name], ["-k", asked.k] if asked.k else [])
        except (SourceMissing, RuntimeError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            wrong += 1
            continue
        if asked.update:
            text = expectations.dump(expected, outcomes, keep=asked.k is not None)
            (expectations.EXPECTED / f"{name}.toml").write_text(text, encoding="utf-8")
        lines = expectations.differences(expected, outcomes)
        if asked.k:
            lines = [line for line in lines if not line.endswith("but not run")]
        print("\n".join([f"{name}: {len(outcomes)} tests, {len(lines)} not as the list says", *lines]))
        wrong += len(lines)
    if asked.update:
        try:
            page.PATH.write_text(page.text(), encoding="utf-8")
        except expectations.BadExpectations as error:
            print(f"{page.PATH.name} is as it was: {error}", file=sys.stderr)
            wrong += 1
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
