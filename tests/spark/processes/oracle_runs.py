"""Runs of avro_oracle and protobuf_oracle, whose sessions of Spark have a jar of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def compared(oracle: str, jars: str, seed: int, schemas: int, values: int) -> Any:
    """What the oracle of that name prints last."""
    run = (sys.executable, "-m", f"tests.spark.processes.{oracle}", jars, *map(str, (seed, schemas, values)))
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
