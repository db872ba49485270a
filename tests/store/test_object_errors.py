"""What users read when something is wrong with bucket, credentials, endpoint or network: of texts as the library writes
them, and of a real server. No secret in any of it."""

from __future__ import annotations

import errno
import logging
import pickle
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.testing_support.kept_port import kept_port
from kafkalog_spark.errors import OptionError
from kafkalog_spark.store.failures import failure_of, placeholders_for
from kafkalog_spark.store.object_store import ObjectStore
from kafkalog_spark.store.storage_options import StorageOptions
from tests.store.buckets import s3_options, s3_store
from tests.store.fault_proxy import Fault, FaultKind, FaultProxy, at
from tests.store.s3_server import S3Server

PLACEHOLDERS = placeholders_for("tier", "minio:9000")


def answered(status: int, code: str = "") -> Exception:
    """As the library reports an answer."""
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>CANARY</Message></Error>' if code else ""
    return Exception(f"Generic S3 error: Server returned non-2xx status code: {status} Xyz: {body}\n\nDebug source: …")


@pytest.mark.parametrize(
    ("status", "code", "number", "said"),
    [
        (404, "NoSuchKey", errno.ENOENT, "the object does not exist"),
        (404, "", errno.ENOENT, "the object does not exist"),
        (404, "NoSuchBucket", errno.ENOENT, "there is no bucket tier at minio:9000"),
        (404, "ContainerNotFound", errno.ENOENT, "there is no container tier"),
        (403, "InvalidAccessKeyId", errno.EACCES, "minio:9000 does not know the access key: give fs.s3a.access.key"),
        (403, "SignatureDoesNotMatch", errno.EACCES, "the secret key does not belong to the access key"),
        (403, "AccessDenied", errno.EACCES, "access to tier is denied"),
        (403, "", errno.EACCES, "access to tier is denied"),
        (403, "SomethingNew", errno.EACCES, "access to tier is denied"),
        (400, "ExpiredToken", errno.EACCES, "the session token has expired"),
        (403, "RequestTimeTooSkewed", errno.EACCES, "the clock of this machine is wrong"),
        (403, "InvalidObjectState", errno.EACCES, "the object is archived"),
        (301, "PermanentRedirect", errno.EINVAL, "is in another region: give it as fs.s3a.endpoint.region"),
        (400, "AuthorizationHeaderMalformed", errno.EINVAL, "is in another region"),
        (400, "", errno.EINVAL, "rejects the request as invalid"),
        (401, "", errno.EACCES, "requires credentials"),
        (412, "PreconditionFailed", errno.ENOENT, "the object was replaced"),
        (416, "InvalidRange", errno.ENOENT, "the object was replaced"),
        (501, "NotImplemented", errno.ENOTSUP, "minio:9000 does not support the request"),
        (418, "", errno.EIO, "minio:9000 refuses the request (status 418)"),
    ],
)
def test_permanent_responses_are_classified_as_not_transient(status: int, code: str, number: int, said: str) -> None:
    failure = failure_of(answered(status, code), PLACEHOLDERS)
    assert (failure.errno, failure.is_transient, failure.was_answered) == (number, False, True)
    assert said in failure.sentence
    assert "CANARY" not in failure.sentence


@pytest.mark.parametrize(
    "error",
    [
        answered(500, "InternalError"),
        answered(503, "SlowDown"),
        answered(503),
        answered(429),
        answered(408),
        answered(400, "RequestTimeout"),
        answered(200, "SlowDown"),
    ],
)
def test_overload_responses_are_classified_as_transient(error: Exception) -> None:
    failure = failure_of(error, PLACEHOLDERS)
    assert (failure.is_transient, failure.was_answered) == (True, True)
    assert "overloaded or failing" in failure.sentence


@pytest.mark.parametrize("kind", ["Connect", "Request", "Timeout", "Interrupted", "Decode", "Unknown"])
def test_network_failures_are_classified_as_transient(kind: str) -> None:
    failure = failure_of(Exception(f"error sending request\n\nDebug source: HttpError {{ kind: {kind},"), PLACEHOLDERS)
    assert (failure.is_transient, failure.was_answered) == (True, False)
    assert "minio:9000" in failure.sentence


def test_other_library_errors_have_a_clear_message() -> None:
    bare = "Received redirect without LOCATION, this normally indicates an incorrectly configured region"
    assert "another region" in failure_of(Exception(bare), PLACEHOLDERS).sentence
    no_role = "Error performing PUT http://169.254.169.254/latest/api/token in 1s - HTTP error: kind: Connect"
    assert "no credentials were found" in failure_of(Exception(no_role), PLACEHOLDERS).sentence
    empty = ValueError('Could not parse path: Path "a//b" contained empty path segment')
    assert "rename that object" in failure_of(empty, PLACEHOLDERS).sentence
    assert (
        failure_of(RuntimeError("CANARY"), PLACEHOLDERS).sentence == "the request failed in the library (RuntimeError)"
    )
    assert failure_of(OSError(errno.ENOSPC, "CANARY"), PLACEHOLDERS).errno == errno.ENOSPC


@pytest.mark.parametrize(("vendor", "advice"), [("gs", "storage.service_account"), ("abfss", "storage.account_key")])
def test_advice_names_the_store_of_the_request(vendor: str, advice: str) -> None:
    sentence = failure_of(answered(401), placeholders_for("b", "", vendor)).sentence
    assert advice in sentence
    assert "fs.s3a" not in sentence


def ways_to_read(store: ObjectStore) -> list[Callable[[], Any]]:
    path = f"s3://{store.bucket}/errors/0.log"
    return [
        lambda: store.list(f"s3://{store.bucket}/errors"),
        lambda: store.list(f"s3://{store.bucket}/errors", after="a"),
        lambda: store.exists(f"s3://{store.bucket}/errors"),
        lambda: store.open(path),
        lambda: store.read_all(path, 10),
        lambda: store.put(path, b"x"),
        lambda: store.put_if_absent(path, b"x"),
        lambda: store.delete([path]),
    ]


CANARIES = {
    "fs.s3a.access.key": "AKIACANARY",
    "fs.s3a.secret.key": "CANARYSECRET",
    "fs.s3a.session.token": "CANARYTOKEN",
}


@pytest.mark.parametrize(
    ("more", "kind", "said"),
    [
        ({"fs.s3a.access.key": "AKIACANARY"}, PermissionError, r"does not know the access key|access to \w+ is denied"),
        ({"fs.s3a.secret.key": "CANARYSECRET"}, PermissionError, "does not belong to the access key|is denied"),
        ({"fs.s3a.session.token": "CANARYTOKEN"}, OSError, "session token"),
        ({"fs.s3a.endpoint": "http://127.0.0.1:{closed}"}, ConnectionRefusedError, "127.0.0.1:.* cannot be reached"),
        ({"fs.s3a.endpoint.region": "eu-west-7"}, OSError, "region"),
    ],
    ids=["access key", "secret key", "session token", "endpoint", "region"],
)
def test_each_wrong_setting_has_its_own_message(s3: S3Server, more: dict[str, str], kind: Any, said: str) -> None:
    if not s3.serves_files:
        pytest.skip("moto takes any credentials")
    more = {name: value.format(closed=kept_port(s3)) for name, value in more.items()}
    for read in ways_to_read(s3_store(s3, more=more)):
        with pytest.raises(kind, match=said) as caught:
            read()
        expect_no_canary(caught.value)
        assert caught.value.filename.startswith("s3://tier/errors")


def expect_no_canary(error: BaseException) -> None:
    for text in (str(error), repr(error), "".join(traceback.format_exception(error)), repr(pickle.dumps(error))):
        assert "CANARY" not in text
        assert "kafkalog-tests" not in text
        assert "not-a-secret" not in text
    assert error.__context__ is None, "what the library said would be printed above it"


def test_missing_bucket_is_reported(s3: S3Server) -> None:
    for read in ways_to_read(s3_store(s3, bucket="no-such-bucket")):
        with pytest.raises(FileNotFoundError, match=r"there is no bucket no-such-bucket at 127\.0\.0\.1"):
            read()


def test_missing_credentials_are_reported(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    nobody = f"http://127.0.0.1:{kept_port(s3)}"
    given = {"fs.s3a.endpoint": s3.endpoint, "storage.metadata_endpoint": nobody}
    store = ObjectStore("s3", "tier", StorageOptions.of(given))
    with pytest.raises(PermissionError, match=r"no credentials were found.*fs.s3a.access.key"):
        store.list("s3://tier/errors")


def test_credentials_are_read_from_the_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    store = ObjectStore("s3", "tier", StorageOptions.of({"fs.s3a.endpoint": s3.endpoint}))
    assert not store.exists("s3://tier/no-such-place")


def profile(folder: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> StorageOptions:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    text = f"[ours]\naws_access_key_id = {s3.access_key}\naws_secret_access_key = {s3.secret_key}\n"
    (folder / "credentials").write_text(text)
    (folder / "config").write_text("[profile ours]\nregion = us-east-1\n")
    return StorageOptions.of({"fs.s3a.endpoint": s3.endpoint, "storage.profile": "ours"})


def test_credentials_are_read_from_a_profile(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = ObjectStore("s3", "tier", profile(tmp_path, s3, monkeypatch))
    assert not store.exists("s3://tier/no-such-place")
    monkeypatch.setenv("AWS_PROFILE", "ours")
    by_environment = ObjectStore("s3", "tier", StorageOptions.of({"fs.s3a.endpoint": s3.endpoint + "/"}))
    assert not by_environment.exists("s3://tier/no-such-place")


def test_missing_profile_is_reported(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profile(tmp_path, s3, monkeypatch)
    options = StorageOptions.of({"fs.s3a.endpoint": s3.endpoint, "storage.profile": "other"})
    with pytest.raises(OptionError, match="the AWS profile other cannot be used"):
        ObjectStore("s3", "tier", options).list("s3://tier/x")


def test_anonymous_requests_are_not_signed(s3: S3Server, proxy: FaultProxy) -> None:
    given = {
        "fs.s3a.endpoint": proxy.endpoint,
        "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider",
    }
    store = ObjectStore("s3", "tier", StorageOptions.of(given))
    if s3.serves_files:
        with pytest.raises(PermissionError):
            store.list("s3://tier/errors")
    else:
        assert not store.exists("s3://tier/no-such-place")


def test_http_endpoint_without_permission_is_refused(s3: S3Server) -> None:
    store = s3_store(s3, more={"storage.allow_http": "false"})
    with pytest.raises(OSError, match=r"storage\.allow_http") as caught:
        store.list("s3://tier/x")
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize("kind", [FaultKind.SLOW_DOWN, FaultKind.INTERNAL_ERROR, FaultKind.RESET, FaultKind.TRUNCATE])
def test_transient_failure_is_retried_and_then_reported(s3: S3Server, proxy: FaultProxy, kind: FaultKind) -> None:
    s3_store(s3).put("s3://tier/errors/1.log", b"1" * 100_000)
    patient = s3_store(s3, proxy)
    facts = patient.list("s3://tier/errors").files["1.log"]
    first = proxy.count()
    proxy.plan = at({number: Fault(kind, 1000) for number in range(first, first + 2)})
    assert patient.open("s3://tier/errors/1.log", facts).read(0, 9) == b"1" * 9
    if kind is not FaultKind.RESET:  # a connection that was idle may be reset before a request is sent
        assert proxy.count("GET") == 3
    impatient = s3_store(s3, proxy, more={"storage.max_retries": "2"})
    proxy.plan = lambda request: Fault(kind, 1000)
    with pytest.raises(OSError, match=r"127.0.0.1.*\(3 tries\)") as caught:
        impatient.open("s3://tier/errors/1.log", facts).read(0, 9)
    expect_no_canary(caught.value)


def test_secrets_are_not_logged(s3: S3Server, proxy: FaultProxy, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = ObjectStore("s3", "tier", StorageOptions.of({**s3_options(s3, proxy), **CANARIES}))
    with ThreadPoolExecutor(1) as threads:
        error = threads.submit(lambda: store.exists("s3://tier/x")).exception()
    if error is not None:
        expect_no_canary(error)
    assert "CANARY" not in caplog.text
    assert "CANARY" not in repr(store)
    assert "CANARY" not in repr(pickle.loads(pickle.dumps(store)))
