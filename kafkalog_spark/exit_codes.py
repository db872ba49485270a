"""Exit codes of the commands, kafkalog-broker included."""

from __future__ import annotations

OK = 0

FAILED = 1  # the command ran and its result is negative; each command documents the cases

WRONG_USAGE = 2  # the command line or the configuration is invalid, as in argparse

INTERRUPTED = 130  # 128 + SIGINT

BROKEN_PIPE = 141  # 128 + SIGPIPE, as a shell reports for `command | head`
