"""The table of a run: what was tried, what came of it, errors by side, and the number of anomalies of each class."""

from __future__ import annotations

from collections.abc import Sequence

from tests.histories.checker import Anomaly, Finding, count_anomalies, count_producers, count_transactions
from tests.histories.history import History, Kind


def table(history: History, findings: Sequence[Finding]) -> str:
    """Return the table as Markdown."""
    lines = ["", "| producers | sent | acknowledged | never sent | unknown | unknown, in the log | repeated |",
             "|---|--:|--:|--:|--:|--:|--:|"]  # fmt: skip
    for kind in Kind:
        counts = count_producers(history, kind)
        lines.append(f"| {kind.value} | {' | '.join(map(str, counts))} |")
    transactions = count_transactions(history)
    lines += ["", "| transactions committed | aborted | unknown | unknown, visible | with offsets |",
              "|--:|--:|--:|--:|--:|", f"| {' | '.join(map(str, transactions))} |"]  # fmt: skip
    lines += ["", "| consumers | sessions | records |", "|---|--:|--:|"]
    for name in sorted({session.consumer for session in history.sessions}):
        sessions = [session for session in history.sessions if session.consumer == name]
        lines.append(f"| {name} | {len(sessions)} | {sum(len(session.seen) for session in sessions)} |")
    entries = [entry for found in history.log.values() for entry in found]
    visible = sum(entry.is_committed for entry in entries)
    reads = len(history.offset_reads) + len(history.position_reads)
    text = f"The final log has {len(entries)} records, {visible} of them committed. Offsets were read {reads} times."
    lines += ["", text]
    lines += ["", "| error | client | side | count |", "|---|---|---|--:|"]
    for error, count in sorted(history.errors.items(), key=lambda item: (not item[0].is_broker, item[0])):
        lines.append(f"| {error.name} | {error.client} | {'broker' if error.is_broker else 'client'} | {count} |")
    counts_of = count_anomalies(findings)
    lines += ["", "| anomaly | count |", "|---|--:|"]
    lines += [f"| {anomaly.value} | {counts_of[anomaly]} |" for anomaly in Anomaly]
    return "\n".join(lines)
