"""Record what Kafka's DumpLogSegments prints of the golden directories beside batches: run it when they change.

    python -m tests.log.tables.record_dumps

Needs Java and Maven. Writes the manifest's kafka-dumps.json.gz: decoder -> file, relative to the log directory -> text.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tests.golden_data import GOLDEN, KAFKA_4_3, data_dir
from tests.interop.real_kafka import run_tool

RECORDED = GOLDEN / KAFKA_4_3 / "manifest" / "kafka-dumps.json.gz"
OFFSETS, TRANSACTIONS, PLAIN = "--offsets-decoder", "--transaction-log-decoder", ""
_FILES = {
    OFFSETS: "__consumer_offsets-*/*.log",
    TRANSACTIONS: "__transaction_state-*/*.log",
    PLAIN: "*/*.[st][nx]*[px]*",  # .snapshot, .txnindex
}


def record() -> None:
    """Run the tool once for each decoder."""
    root = data_dir(KAFKA_4_3)
    dumps: dict[str, dict[str, str]] = {}
    for decoder, pattern in _FILES.items():
        paths = sorted(path for path in root.glob(pattern) if path.suffix in (".log", ".snapshot", ".txnindex"))
        text = run_tool("DumpLogSegments", *([decoder] if decoder else []), "--files", ",".join(map(str, paths)))
        dumps[decoder] = dict(_split(text, root))
    with gzip.GzipFile(RECORDED, "wb", mtime=0) as file:
        file.write(json.dumps(dumps, indent=1, sort_keys=True).encode())


def _split(text: str, root: Path) -> list[tuple[str, str]]:
    """(file, what was printed of it)."""
    parts = text.split("Dumping ")[1:]
    return [
        (str(Path(part.partition("\n")[0]).relative_to(root)), part.partition("\n")[2].replace(f"{root}/", ""))
        for part in parts
    ]


if __name__ == "__main__":
    record()
