"""Construction of obstore's clients from storage options."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from kafkalog_spark.errors import OptionError, install_hint
from kafkalog_spark.store.paths import GCS_SCHEMES, S3_SCHEMES
from kafkalog_spark.store.retrying import FIRST_WAIT, LONGEST_WAIT
from kafkalog_spark.store.storage_options import ClientSettings, RetryPolicy

_CLIENT_DEFAULTS = {"timeout": "60s", "connect_timeout": "5s", "read_timeout": "20s"}
"""A connection counts as broken if a block of 8 MiB takes more than 60 s, or no data arrives for 20 s."""

_AWS_KEYS_ELSEWHERE = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Environment variables that the library reads itself."""

_AWS_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_PUBLIC_AZURE = ("dfs.core.windows.net", "blob.core.windows.net")


def client_of(scheme: str, bucket: str, settings: ClientSettings, retry: RetryPolicy) -> Any:
    """Return obstore's client of one bucket.

    Args:
        scheme: Normalised scheme.
        bucket: Bucket or container.
        settings: Settings of the client.
        retry: Limits of obstore's own retries.

    Raises:
        OptionError: If obstore is not installed, or refuses the settings.
    """
    module = import_obstore_store()
    arguments: dict[str, Any] = {
        "config": dict(settings.config),
        "client_options": {**_CLIENT_DEFAULTS, **settings.client},
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
            arguments["client_options"].setdefault("allow_http", "true")  # such an endpoint is intended
        provider, region = _aws_provider(settings)
        if provider is not None:
            arguments["credential_provider"] = provider
        if region and "region" not in arguments["config"]:
            arguments["config"]["region"] = region
        return _create(module.S3Store, bucket, arguments)
    if scheme in GCS_SCHEMES:
        return _create(module.GCSStore, bucket, arguments)
    return _create(module.AzureStore, _azure_container(bucket, arguments["config"]), arguments)


def _azure_container(bucket: str, config: dict[str, str]) -> str:
    """Return the container of `container@account.dfs.core.windows.net` or of `container`.

    The account, and the endpoint of a cloud that is not the public one, are added to `config`.

    Raises:
        OptionError: If path, options and environment do not name the account.
    """
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
            f"the path names a container of Azure, {container}, but no account",
            hint=f"write abfss://{container}@ACCOUNT.dfs.core.windows.net/…, or give storage.account_name",
        )
    return container


def import_obstore_store() -> Any:
    """Return the module obstore.store. Raises OptionError if obstore is not installed."""
    try:
        import obstore.store
    except ImportError:
        raise OptionError(
            "object stores are read with the package obstore, which is not installed here",
            hint=f"{install_hint('object-store')} on the driver and on every worker",
        ) from None
    return obstore.store


def _create(store_class: Any, bucket: str, arguments: dict[str, Any]) -> Any:
    """Create a client. The library's errors may contain values of settings, so their text is not passed on."""
    try:
        return store_class(bucket, **arguments)
    except Exception as error:  # noqa: BLE001 - as above
        name = type(error).__name__
    given = [option for option, value in arguments["client_options"].items() if _CLIENT_DEFAULTS.get(option) != value]
    names = ", ".join(sorted([*arguments["config"], *given])) or "the environment variables"
    raise OptionError(
        f"no client can be created from the storage options ({name})", hint=f"check the values of {names}"
    )


def _aws_provider(settings: ClientSettings) -> tuple[Any, str | None]:
    """Return boto3's credential provider and the region of the AWS profile; (None, None) if no profile is needed.

    The library itself uses the environment, containers, web identity and the machine's role, but not profiles.
    """
    config = settings.config
    if "access_key_id" in config or config.get("skip_signature", "").lower() == "true":
        return None, None
    if settings.profile is None and (
        any(name.removeprefix("AWS_").lower() in config for name in _AWS_KEYS_ELSEWHERE)
        or any(os.environ.get(name) for name in _AWS_KEYS_ELSEWHERE)
    ):
        return None, None
    profile = settings.profile or os.environ.get("AWS_PROFILE")
    files = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
    paths = [Path(os.environ.get(name, path)).expanduser() for name, path in files.items()]
    if profile is None and not any(path.exists() for path in paths):
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
    raise OptionError(f"the AWS profile {profile or 'default'} cannot be used ({name})", hint="check ~/.aws/config")
