"""Run the share script against a real Kafka and record its responses: python -m tests.broker.share.record_share

Writes kafka-4.3.0-share.json.xz beside this file: the responses by label.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from pathlib import Path

from tests.broker.share.helpers.share_script import PROPERTIES, prepared
from tests.interop.real_kafka import VERSION, RealKafka

ANSWERS = Path(__file__).with_name(f"kafka-{VERSION}-share.json.xz")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, RealKafka(directory, PROPERTIES, short_lived=True) as kafka:
        answers = prepared(kafka.bootstrap)
    ANSWERS.write_bytes(lzma.compress(json.dumps(answers, indent=1, sort_keys=True).encode()))
    print(f"{len(answers)} responses in {ANSWERS.name}")


if __name__ == "__main__":
    main()
