"""Names of the options `storage.*`: obstore's settings of stores and of its HTTP client, and three of kafkalog's own.

A test compares the names with the installed obstore.
"""

from __future__ import annotations

import re

from kafkalog_spark.errors import OptionError
from kafkalog_spark.options import OptionSpec, plain_text

OBSTORE_PREFIX = "storage."

MAX_RETRIES = 10
RETRY_TIMEOUT = 120.0
"""Seconds: long enough for a bucket that responds with SlowDown while S3 splits it. Spark retries a failed task."""


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1e6:
        raise OptionError(f"option '{OBSTORE_PREFIX}{name}' must be a number from 0 to 999999, got '{text}'")
    return number


def _whole_number(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text.strip(), re.ASCII):
        raise OptionError(f"option '{OBSTORE_PREFIX}{name}' must be a whole number from 0 to 999999, got '{text}'")
    return int(text)


OUR_OPTIONS = (
    OptionSpec("profile", plain_text),
    OptionSpec("max_retries", _whole_number, str(MAX_RETRIES)),
    OptionSpec("retry_timeout", _number, str(RETRY_TIMEOUT)),
)
"""Options of kafkalog, which are not passed to obstore."""
OUR_NAMES = frozenset(spec.name for spec in OUR_OPTIONS)

S3_NAMES = frozenset({
    "access_key_id", "secret_access_key", "session_token", "region", "default_region", "endpoint",
    "virtual_hosted_style_request", "s3_express", "imdsv1_fallback", "metadata_endpoint", "unsigned_payload",
    "checksum_algorithm", "container_credentials_relative_uri", "container_credentials_full_uri",
    "container_authorization_token_file", "web_identity_token_file", "role_arn", "role_session_name",
    "endpoint_url_sts", "skip_signature", "disable_tagging", "disable_bulk_delete", "request_payer",
    "server_side_encryption", "sse_kms_key_id", "sse_bucket_key_enabled", "sse_customer_key_base64",
    "conditional_put",
})  # fmt: skip
GCS_NAMES = frozenset({
    "service_account", "service_account_key", "base_url", "application_credentials", "bearer_token", "skip_signature",
})  # fmt: skip
AZURE_NAMES = frozenset({
    "account_name", "account_key", "client_id", "client_secret", "tenant_id", "authority_host", "sas_key", "token",
    "use_emulator", "use_fabric_endpoint", "endpoint", "msi_endpoint", "object_id", "msi_resource_id",
    "federated_token_file", "use_azure_cli", "skip_signature", "disable_tagging", "fabric_token_service_url",
    "fabric_workload_host", "fabric_session_token", "fabric_cluster_identifier", "credential_type", "encryption_key",
})  # fmt: skip
CLIENT_NAMES = frozenset({
    "allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only",
    "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "pool_idle_timeout",
    "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate", "proxy_excludes", "randomize_addresses",
    "read_timeout", "timeout", "user_agent",
})  # fmt: skip
OBSTORE_NAMES = S3_NAMES | GCS_NAMES | AZURE_NAMES | CLIENT_NAMES | OUR_NAMES
"""All names after `storage.`, OUR_NAMES included."""

_ALIASES = {
    "aws_token": "session_token",
    "endpoint_url": "endpoint",
    "aws_endpoint_url": "endpoint",
    "aws_endpoint_url_s3": "endpoint",
    "aws_endpoint_url_sts": "endpoint_url_sts",
    "storage_account_name": "account_name",
    "storage_account_key": "account_key",
    "storage_access_key": "account_key",
    "access_key": "account_key",
    "sas_token": "sas_key",
    "storage_sas_token": "sas_key",
    "storage_sas_key": "sas_key",
}
"""Other names that obstore accepts, with the name in OBSTORE_NAMES."""
_VENDOR_PREFIXES = ("aws_", "azure_", "google_")


def obstore_name(name: str) -> str | None:
    """Return the name in OBSTORE_NAMES for a name, alias, or name with a vendor's prefix; None if there is none."""
    name = name.lower()
    for candidate in (_ALIASES.get(name), name, *(name.removeprefix(prefix) for prefix in _VENDOR_PREFIXES)):
        if candidate is not None:
            candidate = _ALIASES.get(candidate, candidate)
            if candidate in OBSTORE_NAMES:
                return candidate
    return None
