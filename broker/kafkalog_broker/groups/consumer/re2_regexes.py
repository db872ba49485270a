"""Regular expressions of RE2, as Kafka's brokers match them (re2j there, google-re2 here).

The package is imported when the first member subscribes with an expression.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode

_MEMORY = 1 << 20  # for one expression; with RE2's own default, 8, one that is too large takes 40 ms to be refused
_MAX_BYTES = 2**15 - 1  # bytes: what it matches is a record with the expression in its key
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
"""Error texts of RE2, and those of re2j for the same codes."""


def _re2() -> Any:
    try:
        import re2
    except ImportError:
        raise BrokerError(
            ErrorCode.invalid_regular_expression,
            "this broker resolves no regular expressions: the package google-re2 is missing, which comes with the "
            "extra [broker]",
        ) from None
    return re2


def _options(re2: Any) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    return options


def check_regex(regex: str) -> None:
    re2 = _re2()
    size = len(regex.encode())
    if size > _MAX_BYTES:
        raise BrokerError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex has {size} bytes, at most {_MAX_BYTES} are taken.",
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
    """The names that each expression matches from beginning to end; none where it is no expression."""
    re2 = _re2()
    names = list(names)
    matched: dict[str, list[str]] = {}
    for regex in regexes:
        try:
            pattern = re2.compile(regex, _options(re2))
        except re2.error:
            matched[regex] = []  # it was checked when a member brought it, perhaps by another version of RE2
            continue
        matched[regex] = [name for name in names if pattern.fullmatch(name) is not None]
    return matched
