"""Names of options about storage: Hadoop's of S3, and the library's (obstore), which users write after `storage.`.

A test holds the tables against the library that is installed.
"""

from __future__ import annotations

HADOOP_PREFIX = "fs.s3a."
SPARK_PREFIX = "spark.hadoop."
LIBRARY_PREFIX = "storage."
FSSPEC_PREFIX = "storage.fsspec."
"""What follows is an argument of the fsspec file system, whose names nobody here knows."""

HADOOP_NAMES = (
    "access.key",
    "secret.key",
    "session.token",
    "endpoint",
    "endpoint.region",
    "path.style.access",
    "connection.ssl.enabled",
    "aws.credentials.provider",
)
"""After `fs.s3a.`, or after `fs.s3a.bucket.NAME.` for one bucket."""

OUR_NAMES = {
    "profile": "the profile of ~/.aws/config and ~/.aws/credentials",
    "max_retries": "how often a request is tried again",
    "retry_timeout": "for how many seconds it is tried again",
}
"""After `storage.`, and not the library's."""

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
_VENDORS = ("aws_", "azure_", "google_")

PUBLIC_VALUES = frozenset({
    "endpoint.region", "path.style.access", "connection.ssl.enabled", "aws.credentials.provider", "region",
    "default_region", "virtual_hosted_style_request", "skip_signature", "allow_http", "max_retries", "retry_timeout",
    "timeout", "connect_timeout", "read_timeout", "use_emulator", "use_azure_cli", "request_payer",
})  # fmt: skip
"""Names whose values may be shown. All others may hold a secret, or lead to one (an endpoint can hold a password)."""

LIBRARY_NAMES = S3_NAMES | GCS_NAMES | AZURE_NAMES | CLIENT_NAMES | OUR_NAMES.keys()


def library_name(name: str) -> str | None:
    """What follows `storage.`, as the library calls it: without the vendor's prefix, which its environment variables
    have. None for an unknown one."""
    name = name.lower()
    for candidate in (_ALIASES.get(name), name, *(name.removeprefix(vendor) for vendor in _VENDORS)):
        if candidate is not None:
            candidate = _ALIASES.get(candidate, candidate)
            if candidate in LIBRARY_NAMES:
                return candidate
    return None


def is_storage_option(name: str) -> bool:
    """Whether an option, by its name, is about storage: then StorageOptions says whether there is one of that name."""
    name = name.lower()
    return name.startswith((HADOOP_PREFIX, SPARK_PREFIX + HADOOP_PREFIX, LIBRARY_PREFIX))
