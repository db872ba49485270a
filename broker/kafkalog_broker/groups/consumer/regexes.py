"""Regular expressions that members subscribe with, resolved by the broker (Kafka's TopicRegexResolver, KIP-848).

A new expression is checked at once and matched in the background; what it matched becomes a record, and the group's
epoch rises. All expressions of a group are matched again when there are new topics, ten seconds after the last time at
the earliest, and every group.consumer.regex.refresh.interval.ms.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer.changes import EpochValue, Kind
from kafkalog_broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember, ResolvedRegex
from kafkalog_broker.groups.consumer.draft import Draft
from kafkalog_broker.groups.consumer.group_store import GroupStore

# Regular expressions of RE2, as Kafka's brokers match them (re2j there, google-re2 here).
#
# The package is imported when the first member subscribes with an expression.

_MEGABYTE = 1 << 20
_MEMORY = _MEGABYTE  # for one expression; with RE2's own default, 8, one that is too large takes 40 ms to be refused
_LONGEST = 2**15 - 1  # bytes: what it matches is a record with the expression in its key
_WORDS = {
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


def check(regex: str) -> None:
    """Raises BrokerError (INVALID_REGULAR_EXPRESSION)."""
    re2 = _re2()
    size = len(regex.encode())
    if size > _LONGEST:
        raise BrokerError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex has {size} bytes, at most {_LONGEST} are taken.",
        )
    try:
        re2.compile(regex, _options(re2))
    except re2.error as error:
        raise BrokerError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {_as_re2j(str(_text(error)))}.",
        ) from None


def _text(error: Exception) -> str:
    said = error.args[0] if error.args else error
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)


def _as_re2j(said: str) -> str:
    code = said.partition(": ")[0]
    return _WORDS.get(code, code)


def matches(regexes: Iterable[str], names: Iterable[str]) -> dict[str, list[str]]:
    """The names that each expression matches from beginning to end; none where it is no expression."""
    re2 = _re2()
    listed: Sequence[str] = list(names)
    found: dict[str, list[str]] = {}
    for regex in regexes:
        try:
            pattern = re2.compile(regex, _options(re2))
        except re2.error:
            found[regex] = []  # it was checked when a member brought it, perhaps by another version of RE2
            continue
        found[regex] = [name for name in listed if pattern.fullmatch(name) is not None]
    return found


log = logging.getLogger(__name__)

_SHORTEST_REFRESH_MS = 10_000
MayDescribe = Callable[[str], bool] | None


class RegexUpdate(Enum):
    """Effect of a heartbeat on the member's expression."""

    NONE = auto()
    UPDATED = auto()
    RESOLVED = auto()
    """It is another one, of which the topics are known already, or none any more."""


class Regexes:
    """The expressions of all groups of one partition of __consumer_offsets."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._resolving: set[str] = set()
        """Groups."""
        self._created_versions: dict[str, int] = {}
        """Version of the topics that a group's expressions were last matched with in this process."""

    def note(
        self, draft: Draft, group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember,
        may_describe: MayDescribe,
    ) -> RegexUpdate:  # fmt: skip
        """Raises BrokerError (INVALID_REGULAR_EXPRESSION)."""
        old, new = member.regex, updated.regex
        update, is_new = RegexUpdate.NONE, False
        if old != new:
            update = RegexUpdate.UPDATED
            if old and group.subscribed_regexes[old] == 1:
                draft.change(Kind.REGEX, old, None)
            if new and not group.subscribed_regexes[new]:
                check(new)
                is_new = True
            elif (new and new in group.regexes) or (old and not new):
                update = RegexUpdate.RESOLVED
        if is_new or group.subscribed_regexes:
            self._resolve_if_due(draft, group, old or "", new or "", is_new, may_describe)
        return update

    def _resolve_if_due(
        self, draft: Draft, group: ConsumerGroup, old: str, new: str, is_new: bool, may_describe: MayDescribe
    ) -> None:
        now_ms, group_id = self._store.now_ms(), group.group_id
        last = next(iter(group.regexes.values()), None)
        if group_id in self._resolving or (last is not None and now_ms <= last.timestamp_ms + _SHORTEST_REFRESH_MS):
            return
        subscribed = group.subscribed_regexes.copy()
        if old:
            subscribed[old] -= 1
        if new:
            subscribed[new] += 1
        wanted = sorted(+subscribed)
        seen = self._created_versions.get(group_id, -1) if last is not None else -1
        interval_ms = self._store.config.group_consumer_regex_refresh_interval_ms
        due = (
            is_new
            or len(wanted) != len(group.regexes)
            or seen != self._store.topics.created_version
            or (last is not None and now_ms > last.timestamp_ms + interval_ms)
        )
        if due and wanted:
            draft.then(lambda: self._resolve(group_id, wanted, may_describe))

    def _resolve(self, group_id: str, regexes: list[str], may_describe: MayDescribe) -> None:
        topics, now_ms = self._store.topics, self._store.now_ms()
        version, created = topics.version, topics.created_version
        names = topics.names()
        self._resolving.add(group_id)

        def done(found: Mapping[str, Iterable[str]] | Exception) -> None:
            self._resolving.discard(group_id)
            if isinstance(found, Exception):
                return  # the next heartbeat begins again
            visible = {
                regex: frozenset(name for name in matched if may_describe is None or may_describe(name))
                for regex, matched in found.items()
            }
            self._created_versions[group_id] = created
            try:
                self._use(group_id, {regex: ResolvedRegex(seen, version, now_ms) for regex, seen in visible.items()})
            except BrokerError as error:  # the next heartbeat begins again: nothing is resolved
                self._created_versions.pop(group_id, None)
                log.warning("group %.200r: what its expressions match could not be written: %s", group_id, error)

        self._store.background(lambda: matches(regexes, names), done)

    def _use(self, group_id: str, resolved: Mapping[str, ResolvedRegex]) -> None:
        group = self._store.groups.get(group_id)
        if group is None:
            return
        draft, names, bump = Draft(group_id), group.regex_names.copy(), False
        for regex, found in resolved.items():
            if not group.subscribed_regexes[regex]:
                continue
            before = group.regexes.get(regex)
            known = before.topics if before is not None else frozenset()
            if known != found.topics:
                bump = True
                names.subtract(known)
                names.update(found.topics)
            draft.change(Kind.REGEX, regex, found)
        metadata_hash = self._store.hashes.of_group({*group.names, *(+names)})
        if bump or metadata_hash != group.metadata_hash:
            draft.change(Kind.EPOCH, "", EpochValue(group.epoch + 1, metadata_hash))
            log.info("group %.200r: epoch %d, its expressions match other topics", group_id, group.epoch + 1)
        self._store.commit(draft)

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._created_versions.pop(group_id, None)
