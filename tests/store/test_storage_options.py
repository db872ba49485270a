"""Options about storage: names that people have, what becomes of them, what is refused; secrets stay hidden."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.store.hadoop_options import HADOOP_NAMES
from kafkalog_spark.store.obstore_clients import _azure_container, client_of, import_obstore_store
from kafkalog_spark.store.obstore_options import (
    AZURE_NAMES,
    CLIENT_NAMES,
    GCS_NAMES,
    MAX_RETRIES,
    OBSTORE_NAMES,
    OUR_NAMES,
    RETRY_TIMEOUT,
    S3_NAMES,
    obstore_name,
)
from kafkalog_spark.store.storage_options import ClientSettings, RetryPolicy, StorageOptions, is_storage_option


def shown(settings: ClientSettings) -> dict[str, str]:
    """What an S3 client would be made with."""
    return {**settings.config, **settings.client}


def s3(given: dict[str, str], bucket: str = "b") -> dict[str, str]:
    return shown(StorageOptions.of(given).for_s3(bucket))


def test_no_options_leave_credentials_to_the_default_chain() -> None:
    assert StorageOptions.of({"startingOffsets": "earliest"}) == StorageOptions()
    assert s3({}) == {}


def test_hadoop_option_names_are_translated() -> None:
    given = {
        "fs.s3a.access.key": "K",
        "fs.s3a.secret.key": "S",
        "fs.s3a.session.token": "T",
        "fs.s3a.endpoint": "minio:9000",
        "fs.s3a.endpoint.region": "eu-west-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }
    assert s3(given) == {
        "access_key_id": "K",
        "secret_access_key": "S",
        "session_token": "T",
        "endpoint": "http://minio:9000",
        "region": "eu-west-1",
        "virtual_hosted_style_request": "false",
        "allow_http": "true",
    }
    assert s3({name.upper(): value for name, value in given.items()}) == s3(given), "Spark lowers names"


@pytest.mark.parametrize(
    ("given", "endpoint"),
    [
        ({"fs.s3a.endpoint": "h"}, "https://h"),
        ({"fs.s3a.endpoint": "h/", "fs.s3a.connection.ssl.enabled": "true"}, "https://h"),
        ({"fs.s3a.endpoint": "http://h:1/"}, "http://h:1"),
        ({"fs.s3a.endpoint": "https://h", "fs.s3a.connection.ssl.enabled": "false"}, "https://h"),
        ({"fs.s3a.endpoint": "https://h:1", "fs.s3a.path.style.access": "false"}, "https://b.h:1"),
        ({"fs.s3a.endpoint": "http://s3.amazonaws.com"}, "http://s3.amazonaws.com"),
        (
            {"fs.s3a.endpoint": "s3.amazonaws.com", "fs.s3a.connection.ssl.enabled": "false"},
            "http://s3.amazonaws.com",
        ),
        (
            {"fs.s3a.endpoint": "http://s3.amazonaws.com", "fs.s3a.endpoint.region": "eu-west-1"},
            "http://s3.eu-west-1.amazonaws.com",
        ),
    ],
)
def test_endpoint_option_becomes_a_url(given: dict[str, str], endpoint: str) -> None:
    assert s3(given)["endpoint"] == endpoint


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, {}),
        (
            {"fs.s3a.endpoint": "https://s3.amazonaws.com/", "fs.s3a.endpoint.region": "eu-west-1"},
            {"region": "eu-west-1"},
        ),
        (
            {"fs.s3a.endpoint": "s3.us-gov-west-1.amazonaws.com"},
            {"endpoint": "https://s3.us-gov-west-1.amazonaws.com", "region": "us-gov-west-1"},
        ),
        (
            {"fs.s3a.endpoint": "s3.cn-north-1.amazonaws.com.cn"},
            {"endpoint": "https://s3.cn-north-1.amazonaws.com.cn", "region": "cn-north-1"},
        ),
        ({"fs.s3a.endpoint": "s3.example.com"}, {"endpoint": "https://s3.example.com"}),
    ],
)
def test_region_is_taken_from_an_aws_endpoint(given: dict[str, str], expected: dict[str, str]) -> None:
    assert s3(given) == expected


def test_more_specific_option_takes_precedence() -> None:
    given = {
        "spark.hadoop.fs.s3a.endpoint": "of-spark",
        "spark.hadoop.fs.s3a.endpoint.region": "r1",
        "spark.hadoop.fs.s3a.connection.maximum": "a name without a meaning here",
        "spark.hadoop.fs.s3a.bucket.b.endpoint.region": "r2",
        "fs.s3a.endpoint": "given",
        "fs.s3a.bucket.my.bucket.endpoint": "of-one",
        "storage.region": "r3",
    }
    assert (s3(given)["endpoint"], s3(given, "my.bucket")["endpoint"]) == ("https://given", "https://of-one")
    assert s3(given)["region"] == "r3"
    del given["storage.region"]
    assert (s3(given, "b")["region"], s3(given, "other")["region"]) == ("r2", "r1")


@pytest.mark.parametrize(
    ("providers", "skip"),
    [
        ("org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider", "true"),
        ("software.amazon.awssdk.auth.credentials.AnonymousCredentialsProvider", "true"),
        ("com.amazonaws.auth.DefaultAWSCredentialsProviderChain", None),
        ("org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider, x.IAMInstanceCredentialsProvider", None),
        ("", None),
    ],
)
def test_supported_hadoop_credential_providers_are_accepted(providers: str, skip: str | None) -> None:
    assert s3({"fs.s3a.aws.credentials.provider": providers}).get("skip_signature") == skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"fs.s3a.aws.credentials.provider": "com.example.Ours"}, "names com.example.Ours, which runs in a JVM only"),
        (
            {"fs.s3a.aws.credentials.provider": "a.AnonymousAWSCredentialsProvider,b.SimpleAWSCredentialsProvider"},
            "the anonymous provider among others",
        ),
        ({"fs.s3a.acces.key": "CANARY"}, "there is no option fs.s3a.acces.key; did you mean fs.s3a.access.key?"),
        ({"storage.acount_name": "CANARY"}, "did you mean storage.account_name?"),
        ({"storage.bucket": "CANARY"}, "there is no option storage.bucket"),
        ({"fs.s3a.path.style.access": "yes"}, "'fs.s3a.path.style.access' must be true or false"),
        ({"fs.s3a.bucket.b.path.style.access": "1"}, "must be true or false"),
        ({"storage.max_retries": "many"}, "'storage.max_retries' must be a whole number from 0 to 999999, got 'many'"),
        ({"storage.max_retries": "2.7"}, "'storage.max_retries' must be a whole number from 0 to 999999, got '2.7'"),
        ({"fs.s3a.access.key": "CANARY"}, "fs.s3a.access.key is given without fs.s3a.secret.key"),
    ],
)
def test_unsupported_options_are_refused_without_their_values(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        StorageOptions.of(given)
    assert said in str(caught.value)
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    ("bucket", "given", "expected"),
    [
        ("c@acc.dfs.core.windows.net", {}, {"account_name": "acc"}),
        ("c@acc.blob.core.windows.net", {}, {"account_name": "acc"}),
        (
            "c@acc.dfs.core.chinacloudapi.cn",
            {},
            {"account_name": "acc", "endpoint": "https://acc.blob.core.chinacloudapi.cn"},
        ),
        ("c@acc.dfs.fabric.microsoft.com", {}, {"account_name": "acc", "use_fabric_endpoint": "true"}),
        ("c", {"account_name": "given"}, {"account_name": "given"}),
        ("c@acc.dfs.core.windows.net", {"endpoint": "http://h"}, {"account_name": "acc", "endpoint": "http://h"}),
    ],
)
def test_azure_account_is_taken_from_the_url(bucket: str, given: dict[str, str], expected: dict[str, str]) -> None:
    config = dict(given)
    assert _azure_container(bucket, config) == "c"
    assert config == expected


def test_azure_container_without_an_account_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(OptionError, match=r"no account; write abfss://c@ACCOUNT.*storage\.account_name"):
        client_of("az", "c", StorageOptions().for_gcs_or_azure(AZURE_NAMES), RetryPolicy())


def test_retry_options_set_tries_and_seconds() -> None:
    assert StorageOptions.of({}).for_s3("b").retry == RetryPolicy()
    given = StorageOptions.of({"storage.max_retries": "2", "storage.retry_timeout": "1.5"})
    assert given.for_s3("b").retry == given.for_gcs_or_azure(GCS_NAMES).retry == RetryPolicy(3, 1.5)


def test_every_translated_name_is_known_to_the_library() -> None:
    """Each one, with and without the vendor's prefix, is one that the installed library takes."""
    store = import_obstore_store()
    values = {"application_credentials": None, "service_account": None, "service_account_key": None}
    errors = __import__("obstore.exceptions", fromlist=["x"])

    def known(make: Any, name: str, *given: str, **more: Any) -> bool:
        try:
            make(*given, config={name: values.get(name, "true")}, **more)
        except errors.UnknownConfigurationKeyError:
            return False
        except Exception:  # noqa: BLE001 - the value is not right, so the name was known
            pass
        return True

    for name in S3_NAMES:
        assert known(store.S3Store, name, "b"), name
    for name in GCS_NAMES:
        assert known(store.GCSStore, name, "b"), name
    for name in AZURE_NAMES:
        assert known(store.AzureStore, name, "b"), name
    for name in CLIENT_NAMES:
        assert known(store.S3Store, name, "b"), name
    assert not known(store.S3Store, "no_such_key", "b"), "this test can fail"


def test_documentation_lists_our_own_options() -> None:
    text = (Path(__file__).parents[2] / "docs" / "object_storage.md").read_text(encoding="utf-8")
    for name in (*HADOOP_NAMES, *(f"storage.{name}" for name in OUR_NAMES)):
        assert f"`{name}`" in text, name
    assert f"`storage.max_retries` ({MAX_RETRIES})" in text
    assert f"`storage.retry_timeout` ({RETRY_TIMEOUT:.0f} s)" in text


def test_option_aliases_are_resolved() -> None:
    assert obstore_name("aws_access_key_id") == "access_key_id"
    assert obstore_name("AWS_Session_Token") == obstore_name("aws_token") == "session_token"
    assert obstore_name("azure_storage_account_key") == "account_key"
    assert obstore_name("google_service_account") == "service_account"
    assert obstore_name("nothing") is None
    assert all(obstore_name(name) == name for name in OBSTORE_NAMES)


def test_storage_options_are_recognized_by_name() -> None:
    for name in ("fs.s3a.access.key", "FS.S3A.endpoint", "spark.hadoop.fs.s3a.x", "storage.region", "storage.typo"):
        assert is_storage_option(name)
    for name in ("startingOffsets", "spark.hadoop.fs.gs.x", "fs.defaultFS", "kafka.bootstrap.servers"):
        assert not is_storage_option(name)


SECRETS = {
    "fs.s3a.access.key": "CANARY1",
    "fs.s3a.secret.key": "CANARY2",
    "fs.s3a.session.token": "CANARY3",
    "fs.s3a.endpoint": "https://user:CANARY4@host",
    "fs.s3a.bucket.b.secret.key": "CANARY5",
    "fs.s3a.bucket.b.access.key": "CANARY5",
    "storage.account_key": "CANARY6",
    "storage.sas_key": "CANARY7",
    "storage.service_account_key": '{"private_key": "CANARY8"}',
    "storage.bearer_token": "CANARY9",
    "storage.proxy_url": "http://user:CANARY10@proxy",
    "storage.fsspec.password": "CANARY11",
    "storage.sse_customer_key_base64": "CANARY12",
    "fs.s3a.endpoint.region": "eu-west-1",
}


def test_secrets_are_absent_from_repr() -> None:
    options = StorageOptions.of(SECRETS)
    for text in (repr(options), str(options), f"{options}", repr([options]), repr(options.for_s3("b")),
                 repr(options.for_gcs_or_azure(AZURE_NAMES)), repr(options.values)):  # fmt: skip
        assert "CANARY" not in text
    assert "fs.s3a.endpoint.region=eu-west-1" in repr(options), "what is no secret is shown"
    assert "storage.account_key=***" in repr(options)


def test_secrets_survive_pickling_and_count_for_equality() -> None:
    options = StorageOptions.of(SECRETS)
    copy = pickle.loads(pickle.dumps(options))
    assert copy == options
    assert hash(copy) == hash(options)
    assert shown(copy.for_s3("b"))["secret_access_key"] == "CANARY5"
    assert StorageOptions.of({**SECRETS, "fs.s3a.secret.key": "other"}) != options


def test_client_creation_error_names_options_without_values() -> None:
    options = StorageOptions.of({"storage.timeout": "CANARY", "storage.region": "x"})
    with pytest.raises(OptionError) as caught:
        client_of("s3", "b", options.for_s3("b"), RetryPolicy())
    text = "".join(traceback.format_exception(caught.value))
    assert "CANARY" not in text
    assert "timeout" in str(caught.value)


@pytest.mark.parametrize("name", HADOOP_NAMES)
def test_every_hadoop_name_is_accepted_per_bucket(name: str) -> None:
    value = "true" if name in ("path.style.access", "connection.ssl.enabled") else ""
    assert StorageOptions.of({f"fs.s3a.bucket.a-b.{name}": value}) != StorageOptions()
