"""From a bucket and options to a client of the library: which class, which settings, whose credentials."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from kafkalog_spark.errors import OptionError
from kafkalog_spark.log.store.retrying import FIRST_WAIT, LONGEST_WAIT
from kafkalog_spark.log.store.storage_names import AZURE_NAMES, GCS_NAMES
from kafkalog_spark.log.store.storage_options import ClientSettings, Hidden, RetryPolicy, StorageOptions
from kafkalog_spark.log.store.urls import AZURE_SCHEMES, GCS_SCHEMES, S3_SCHEMES

OBJECT_SCHEMES = S3_SCHEMES | GCS_SCHEMES | AZURE_SCHEMES
"""Schemes that this library serves."""

_CLIENT_DEFAULTS = {"timeout": "60s", "connect_timeout": "5s", "read_timeout": "20s"}
"""A block of 8 MiB in 60 s is 140 kB/s: slower lines are taken for broken ones. A server that sends nothing for 20 s
has forgotten the request."""

_AWS_KEYS_ELSEWHERE = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Environment that the library reads itself."""

_AWS_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def vendor_of(scheme: str) -> str:
    """`s3`, `gs` or `abfss`: whose protocol is spoken."""
    return "s3" if scheme in S3_SCHEMES else "gs" if scheme in GCS_SCHEMES else "abfss"


def settings_of(scheme: str, bucket: str, options: StorageOptions) -> ClientSettings:
    """What the options say for this bucket. Raises OptionError."""
    if scheme in S3_SCHEMES:
        return options.for_s3(bucket)
    return options.for_others(GCS_NAMES if scheme in GCS_SCHEMES else AZURE_NAMES)


def client_of(scheme: str, bucket: str, settings: ClientSettings, retry: RetryPolicy) -> Any:
    """A client of the library for one bucket, which repeats requests as `retry` says. Raises OptionError."""
    module = library()
    given: dict[str, Any] = {
        "config": {name: value.text for name, value in settings.config.items()},
        "client_options": {**_CLIENT_DEFAULTS, **{name: value.text for name, value in settings.client.items()}},
        "retry_config": {
            "max_retries": retry.tries - 1,
            "retry_timeout": timedelta(seconds=retry.seconds),
            "backoff": {
                "init_backoff": timedelta(seconds=FIRST_WAIT),
                "max_backoff": timedelta(seconds=LONGEST_WAIT),
                "base": 2,
            },
        },
    }
    if scheme in S3_SCHEMES:
        if any(os.environ.get(name, "").startswith("http://") for name in _AWS_ENDPOINTS):
            given["client_options"].setdefault("allow_http", "true")  # who names such an endpoint means it
        provider, region = _aws_provider(settings)
        if provider is not None:
            given["credential_provider"] = provider
        if region and "region" not in given["config"]:
            given["config"]["region"] = region
        return _made(module.S3Store, bucket, given)
    if scheme in GCS_SCHEMES:
        return _made(module.GCSStore, bucket, given)
    return _made(module.AzureStore, _azure(bucket, given["config"]), given)


def _azure(bucket: str, config: dict[str, str]) -> str:
    """The container of `container@account.dfs.core.windows.net`, or of `container` alone; the account, and the endpoint
    of another cloud than the public one, go into `config`. Raises OptionError where nothing says the account."""
    container, at, host = bucket.partition("@")
    account, _, cloud = host.partition(".")
    if at:
        config.setdefault("account_name", account)
        if cloud.endswith(".fabric.microsoft.com"):
            config.setdefault("use_fabric_endpoint", "true")
        elif cloud not in _PUBLIC_AZURE:
            config.setdefault("endpoint", f"https://{account}.{cloud.replace('dfs.', 'blob.', 1)}")
    elif not {"account_name", "use_emulator"} & set(config) and not os.environ.get("AZURE_STORAGE_ACCOUNT_NAME"):
        raise OptionError(
            f"the path names a container of Azure, {container}, and no account",
            hint=f"write abfss://{container}@ACCOUNT.dfs.core.windows.net/…, or give storage.account_name",
        )
    return container


_PUBLIC_AZURE = ("dfs.core.windows.net", "blob.core.windows.net")


def library() -> Any:
    """obstore.store. Raises OptionError where it is not installed."""
    try:
        import obstore.store
    except ImportError:
        raise OptionError(
            "object stores are read with the package obstore, which is not installed here",
            hint="pip install 'kafkalog[object-store]' on the driver and on every worker",
        ) from None
    return obstore.store


def _made(make: Any, place: str, given: dict[str, Any]) -> Any:
    """A client. What the library says of settings that it cannot use may hold their values, so it is not passed on."""
    try:
        return make(place, **given)
    except Exception as error:  # noqa: BLE001 - as above
        name = type(error).__name__
    said = [option for option, value in given["client_options"].items() if _CLIENT_DEFAULTS.get(option) != value]
    names = ", ".join(sorted([*given["config"], *said])) or "what the environment says"
    raise OptionError(f"the options about storage make no client ({name})", hint=f"look at the values of {names}")


def _aws_provider(settings: ClientSettings) -> tuple[Any, str | None]:
    """(whom to ask for AWS credentials, region of the profile): boto3, where neither options nor environment hold any.

    The library looks at the environment, containers, web identity and the machine's role, but not at profiles.
    """
    config = settings.config
    if "access_key_id" in config or config.get("skip_signature", Hidden("")).text.lower() == "true":
        return None, None
    if settings.profile is None and (
        any(name.removeprefix("AWS_").lower() in config for name in _AWS_KEYS_ELSEWHERE)
        or any(os.environ.get(name) for name in _AWS_KEYS_ELSEWHERE)
    ):
        return None, None
    profile = settings.profile or os.environ.get("AWS_PROFILE")
    if profile is None and not any(path.exists() for path in _profile_files()):
        return None, None
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise OptionError(
            "profiles of ~/.aws are read with the package boto3, which is not installed here",
            hint="pip install boto3, or give fs.s3a.access.key and fs.s3a.secret.key",
        ) from None
    try:
        session = boto3.Session(profile_name=profile)
        return (Boto3CredentialProvider(session) if session.get_credentials() else None), session.region_name
    except BotoCoreError as error:
        name = type(error).__name__
    raise OptionError(f"the AWS profile {profile or 'default'} cannot be used ({name})", hint="look at ~/.aws/config")


def _profile_files() -> tuple[Path, Path]:
    credentials = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    config = os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")
    return Path(credentials).expanduser(), Path(config).expanduser()
