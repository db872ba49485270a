"""Decisions of a mirror, computed on plain data: topics, fetch sessions, error handling, properties and rates."""

from __future__ import annotations

import random
import re
import uuid

import pytest

from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.mirror.backoff import Backoff
from kafkalog_broker.mirror.client_properties import client_settings
from kafkalog_broker.mirror.fetch_session import ClientSession
from kafkalog_broker.mirror.mirror_file import MIRROR_FILE, OtherSource, check_source, keep_own_groups
from kafkalog_broker.mirror.rate_limit import RateLimit
from kafkalog_broker.mirror.source_address import parse_bootstrap
from kafkalog_broker.mirror.source_errors import TRANSIENT, error_text
from kafkalog_broker.mirror.topic_plan import is_wanted, plan_topics
from kafkalog_broker.protocol.mirror_fetch_messages import SourceFetchPartition
from kafkalog_broker.protocol.mirror_messages import SourcePartition, SourceTopic
from kafkalog_broker.storage.topic import Topic
from kafkalog_spark.errors import OptionError

ONE, TWO, NO_ID = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=0)


def source_topic(name="orders", topic_id=ONE, partitions=2, *, internal=False):
    return SourceTopic(name, topic_id, internal, {i: SourcePartition(1, 0) for i in range(partitions)})


@pytest.mark.parametrize(
    ("mine", "theirs", "field"),
    [
        (None, (ONE, 2), "create"),
        (None, (NO_ID, 2), "create"),
        ((ONE, 2), (ONE, 2), None),
        ((ONE, 2), (ONE, 3), "enlarge"),
        ((ONE, 2), (TWO, 2), "recreate"),
        ((ONE, 2), (TWO, 3), "recreate"),
        ((ONE, 2), (NO_ID, 2), None),  # a cluster without topic ids
        ((ONE, 2), (NO_ID, 4), "enlarge"),
        ((ONE, 2), (NO_ID, 1), "recreate"),  # no topic loses partitions
        ((ONE, 2), (ONE, 1), "refused"),  # the node is behind
        ((ONE, 2), None, "gone"),
    ],
)
def test_plan_topics_decides_each_topic(mine, theirs, field):
    local = {} if mine is None else {"orders": Topic("orders", *mine)}
    wanted = {} if theirs is None else {"orders": source_topic("orders", *theirs)}
    plan = plan_topics(local, wanted)
    found = {
        name: getattr(plan, name)
        for name in ("create", "enlarge", "recreate", "gone", "refused")
        if getattr(plan, name)
    }
    if field is None:
        assert found == {}
    else:
        assert list(found) == [field]
        assert list(found[field]) == ([wanted["orders"]] if theirs and field != "refused" else ["orders"])


def test_topic_with_missing_partitions_in_its_metadata_is_not_changed():
    odd = SourceTopic("orders", ONE, False, {0: SourcePartition(1, 0), 2: SourcePartition(1, 0)})
    plan = plan_topics({}, {"orders": odd})
    assert (plan.create, list(plan.refused)) == ([], ["orders"])


def test_topics_are_selected_by_pattern():
    pattern = re.compile("orders|clicks.*")
    names = ["orders", "orders2", "my-orders", "clicks", "clicks.eu"]
    assert [name for name in names if is_wanted(source_topic(name), pattern, internal=False)] == [
        "orders", "clicks", "clicks.eu",
    ]  # fmt: skip
    hidden = source_topic("__consumer_offsets", internal=True)
    everything = re.compile(".*")
    assert [is_wanted(hidden, everything, internal=internal) for internal in (False, True)] == [False, True]
    called = source_topic("__share_group_state", internal=False)  # of a cluster that knows no share groups
    assert [is_wanted(called, everything, internal=internal) for internal in (False, True)] == [False, True]
    assert not is_wanted(source_topic("__cluster_metadata"), everything, internal=True)


def test_fetch_session_sends_only_changed_partitions():
    """Against a server that keeps what KIP-227 lets it keep."""
    chance = random.Random(0)
    session, epoch, sent = ClientSession(is_served=True), 0, 0
    known: dict = {}
    for _ in range(400):
        wanted = {
            ("orders", i): SourceFetchPartition(
                chance.choice((ONE, TWO)) if chance.random() < 0.05 else ONE, i, chance.randrange(3), 9
            )
            for i in range(6)
            if chance.random() < 0.9
        }
        step = session.next_request(wanted)
        sent += len(step.partitions)
        if step.session == (0, 0):
            known, epoch = {}, 1
        else:
            assert step.session == (77, epoch)
            epoch += 1
            for key, topic_id in step.forgotten:
                assert known.pop((key, topic_id), None) is not None
        known.update({(key, fetch.topic_id): fetch for key, fetch in step.partitions})
        assert known == {(key, fetch.topic_id): fetch for key, fetch in wanted.items()}
        if chance.random() < 0.05:
            session.reset()  # the server has thrown it away
        else:
            session.advance(77)
    assert sent < 400 * 6 * 0.8


def test_fetch_without_a_session_names_every_partition():
    for session in (ClientSession(is_served=False), ClientSession(is_served=True)):
        wanted = {("orders", 0): SourceFetchPartition(ONE, 0, 5, 9)}
        for _ in range(3):
            step = session.next_request(wanted)
            assert (list(step.partitions), list(step.forgotten)) == (list(wanted.items()), [])
            assert step.session in ((0, -1), (0, 0))
            session.advance(0)  # a server without room for another one


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ErrorCode.not_leader_or_follower, True),
        (ErrorCode.fenced_leader_epoch, True),
        (ErrorCode.unknown_topic_id, True),
        (ErrorCode.topic_authorization_failed, False),
        (ErrorCode.corrupt_message, False),
    ],
)
def test_error_is_classified_as_transient_or_permanent(error, passes):
    assert (error in TRANSIENT) is passes
    assert error_text(error) == error.name.upper()


def test_unknown_error_code_is_permanent():
    assert 31999 not in TRANSIENT
    assert error_text(31999) == "error code 31999"


def test_librdkafka_properties_are_accepted(tmp_path):
    made = client_settings(
        ["security.protocol=SASL_PLAINTEXT", "sasl.mechanisms=scram-sha-512", "sasl.username=me", "sasl.password=a=b"]
    )
    assert (made.security_protocol, made.sasl_mechanism) == ("sasl_plaintext", "SCRAM-SHA-512")
    assert made.sasl_password == "a=b"
    assert "a=b" not in repr(made)
    assert made.tls_context() is None
    context = client_settings(["security.protocol=ssl", "enable.ssl.certificate.verification=false"]).tls_context()
    assert context is not None
    assert not context.check_hostname


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("security.protocol", "expected NAME=VALUE"),
        ("security.protocol=tls", "must be one of plaintext, ssl"),
        ("group.id=mine", "group.id: unsupported property; a mirror supports security.protocol"),
        ("fetch.max.bytes=1", "at least 1024"),
        ("security.protocol=sasl_ssl", "needs sasl.username and sasl.password"),
        ("enable.ssl.certificate.verification=maybe", "true or false"),
        ("ssl.key.location=x", "without ssl.certificate.location"),
    ],
)
def test_unusable_property_is_refused(given, said):
    with pytest.raises(OptionError, match=re.escape(said)):
        client_settings([given])


def test_unusable_tls_files_are_option_errors(tmp_path):
    with pytest.raises(OptionError, match="TLS cannot be set up"):
        client_settings(["security.protocol=ssl", f"ssl.ca.location={tmp_path / 'none'}"]).tls_context()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1", [("a", 1)]),
        ("a, b:2 ,", [("a", 9092), ("b", 2)]),
        ("[::1]:5", [("::1", 5)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_bootstrap_addresses_are_parsed(text, found):
    assert parse_bootstrap(text) == found


@pytest.mark.parametrize("text", ["", " , ", "a:x", "a:0", ":9092", "a:70000"])
def test_invalid_bootstrap_address_is_refused(text):
    with pytest.raises(OptionError, match="bootstrap"):
        parse_bootstrap(text)


def test_directory_of_another_cluster_is_refused(tmp_path):
    with pytest.raises(OtherSource, match="that no mirror created"):
        check_source(tmp_path, "one", is_empty=False)
    check_source(tmp_path, "one", is_empty=True)
    check_source(tmp_path, "one", is_empty=False)
    with pytest.raises(OtherSource, match="mirrors the cluster one, this one is two"):
        check_source(tmp_path, "two", is_empty=False)


def test_internal_topics_are_not_mirrored_into_a_directory_with_groups_of_a_broker(tmp_path):
    check_source(tmp_path, "one", is_empty=True, internal=True)
    check_source(tmp_path, "one", is_empty=False, serves=True)
    for _ in range(2):
        with pytest.raises(OtherSource, match="its groups are its own"):
            check_source(tmp_path, "one", is_empty=False, internal=True)
        check_source(tmp_path, "one", is_empty=False)


def test_groups_belong_to_the_broker_from_its_start_even_without_the_source(tmp_path):
    keep_own_groups(tmp_path)  # no mirror yet: nothing to say
    assert not (tmp_path / MIRROR_FILE).exists()
    check_source(tmp_path, "one", is_empty=True, internal=True)
    keep_own_groups(tmp_path)
    with pytest.raises(OtherSource, match="its groups are its own"):
        check_source(tmp_path, "one", is_empty=False, internal=True)


def test_retry_backoff_doubles():
    backoff = Backoff(250, 1000)
    assert [backoff.record_failure(5000) for _ in range(4)] == [250, 500, 1000, 1000]
    assert backoff.until_ms == 6000
    backoff.reset()
    assert backoff.record_failure(9000) == 250


def test_rate_limit_holds_over_many_responses():
    limit, now, size = RateLimit(1000), 50.0, 0
    for _ in range(100):
        now += limit.record(300, now)
        size += 300
    assert size / (now - 50.0) == pytest.approx(1000)
    assert limit.bound(10**6) == 1000
    assert RateLimit(None).bound(10**6) == 10**6
    assert RateLimit(None).record(10**9, 0.0) == 0
    now += 1000  # what was not used is not saved up
    assert limit.record(1000, now) == 1
