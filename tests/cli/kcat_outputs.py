"""What kcat 1.7.1 (librdkafka 2.0.2) printed of topics of the golden directory, which our broker served: recorded by
tests/cli/test_kcat.py when KCAT_RECORD is set."""

from __future__ import annotations

EVERY_TOKEN = "%t|%p|%o|%k|%K|%S|%T|%h|%%|%s|%R\\x41\\101\\t\\065\\q\\n"

OUTPUTS = {
    "headers-tokens": ["-f", EVERY_TOKEN],
    "headers-json": ["-f", "json"],
    "logappend-json": ["-f", "json"],
    "logappend-tokens": ["-f", EVERY_TOKEN],
    "compacted-json": ["-f", "json"],
    "transactions-tokens": ["-f", EVERY_TOKEN, "--isolation-level", "read_committed"],
    "deleted-prefix-tail": ["-o", "-7", "-f", "%o %s\\n"],
    "deleted-prefix-offset": ["-o", "2900"],
    "deleted-prefix-times": ["-o", "s@1700002800000", "-o", "e@1700002900000"],
    "deleted-prefix-keys": ["-c", "30", "-K", ":", "-D", "\\x3b"],
    "large-null": ["-Z", "-f", "%k %K\\n"],
}
"""Options of kafkalog-cat by name, which begins with the topic."""


def topic_and_arguments(name: str) -> list[str]:
    """Topic and partition as options of both commands."""
    return ["-t", name.rpartition("-")[0], "-p", "0"]


def for_kcat(arguments: list[str]) -> list[str]:
    """The same options as kcat has them: -J, and its isolation level, which is read_committed unless it is set."""
    words: list[str] = []
    level = "read_uncommitted"
    rest = iter(arguments)
    for word in rest:
        if word == "--isolation-level":
            level = next(rest)
        elif word == "-f" and (format := next(rest)) == "json":
            words.append("-J")
        elif word == "-f":
            words += ["-f", format]
        else:
            words.append(word)
    return ["-X", f"isolation.level={level}", *words]
