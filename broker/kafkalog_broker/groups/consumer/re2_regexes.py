"""Regular expressions in the syntax of RE2 (re2j in Kafka, google-re2 here).

The package is imported at the first use, which keeps it out of brokers without such subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode

_MAX_MEMORY_BYTES = 1 << 20
"""Largest memory of one compiled expression. With RE2's default of 8 MB, rejecting an expression takes too long."""
_MAX_BYTES = 2**15 - 1  # length of a string in the key of a record
_RE2J_MESSAGES = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "regexp/syntax: internal error",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "trailing \\": "trailing backslash at end of expression",
    "invalid named capture group": "invalid named capture",
}
"""Error texts of re2j, by the equivalent texts of RE2."""


def check_regex(regex: str) -> None:
    """Raise BrokerError invalid_regular_expression if the expression is not valid or too long."""
    re2 = _re2()
    size = len(regex.encode())
    if size > _MAX_BYTES:
        raise BrokerError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex has {size} bytes, at most {_MAX_BYTES} are allowed.",
        )
    try:
        re2.compile(regex, _options(re2))
    except re2.error as error:
        text = error.args[0] if error.args else error
        code = (text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)).partition(": ")[0]
        raise BrokerError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {_RE2J_MESSAGES.get(code, code)}.",
        ) from None


def matching_names(regexes: Iterable[str], names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names that each expression matches completely. An invalid expression matches none."""
    re2 = _re2()
    names = list(names)
    matched: dict[str, list[str]] = {}
    for regex in regexes:
        try:
            pattern = re2.compile(regex, _options(re2))
        except re2.error:
            matched[regex] = []  # written by a broker with another version of RE2
            continue
        matched[regex] = [name for name in names if pattern.fullmatch(name) is not None]
    return matched


def _re2() -> Any:
    try:
        import re2
    except ImportError:
        raise BrokerError(
            ErrorCode.invalid_regular_expression,
            "this broker cannot resolve regular expressions: the package google-re2 is not installed. Install it with "
            "the extra [broker]",
        ) from None
    return re2


def _options(re2: Any) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY_BYTES
    return options
