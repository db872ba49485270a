"""Record the throttle times of Kafka's own classes: python -m tests.broker.quotas.record_throttles

Writes kafka-4.3.0-throttles.json beside this file: random loads (time in ms, value recorded) and the throttle times
(ms) that Rate with QuotaUtils and TokenBucket give for them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.interop.real_kafka import VERSION, classpath

HERE = Path(__file__).parent
RECORDED = HERE / f"kafka-{VERSION}-throttles.json"


def main() -> None:
    command = ["java", "-cp", classpath(), str(HERE / "DumpThrottles.java")]
    RECORDED.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
