"""Kinds of buckets of Aiven's plugin, and the properties that configure access to them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.options import Parser, boolean, plain_text, positive
from kafkalog_spark.store.storage_options import StorageOptions

_RETRY_TIMEOUT_S = 30.0
"""Seconds for which a request is retried. Meanwhile it blocks the reader's thread. Failed copies are retried later."""


class BucketProperty(NamedTuple):
    """Parser of a property, and the storage option that the property sets; None if it sets none."""

    parse: Parser
    option: str | None


class BucketBackend(NamedTuple):
    """Properties of one kind of bucket.

    Attributes:
        scheme: Scheme of the bucket's URL.
        bucket_property: Property with the name of the bucket.
        properties: The other properties, by name.
    """

    scheme: str
    bucket_property: str
    properties: Mapping[str, BucketProperty]


def _parse_endpoint(name: str, text: str) -> str:
    """Parse the URL of a store by the plugin's rules.

    Credentials in it are refused, because the URL is recorded and shown in errors.
    """
    url = text.strip()
    if re.search(r"[@?#]", url):
        raise OptionError(
            f"{name} contains a user, a query or a fragment",
            hint="give the URL alone, and credentials by their own properties or the environment",
        )
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or " " in url:
        raise OptionError(f"{name} is not a URL", hint="http://HOST:PORT or https://HOST")
    return url


def _parse_json_object(name: str, text: str) -> str:
    try:
        valid = isinstance(json.loads(text), dict)
    except ValueError:
        valid = False
    if not valid:
        raise OptionError(f"{name} is not a JSON object", hint="the content of the key file of a service account")
    return text


_parse_milliseconds = positive(MAX_INT64)


def _parse_call_timeout(name: str, text: str) -> str:
    return str(_parse_milliseconds(name, text) / 1000)


def _parse_attempt_timeout(name: str, text: str) -> str:
    return f"{_parse_milliseconds(name, text)}ms"


_PACKAGE = "io.aiven.kafka.tieredstorage.storage"
BUCKET_BACKENDS = {
    f"{_PACKAGE}.s3.S3Storage": BucketBackend(
        "s3",
        "storage.s3.bucket.name",
        {
            "storage.aws.access.key.id": BucketProperty(plain_text, "fs.s3a.access.key"),
            "storage.aws.secret.access.key": BucketProperty(plain_text, "fs.s3a.secret.key"),
            "storage.s3.endpoint.url": BucketProperty(_parse_endpoint, "fs.s3a.endpoint"),
            "storage.s3.region": BucketProperty(plain_text, "fs.s3a.endpoint.region"),
            "storage.s3.path.style.access.enabled": BucketProperty(boolean, "fs.s3a.path.style.access"),
            "storage.s3.api.call.timeout": BucketProperty(_parse_call_timeout, "storage.retry_timeout"),
            "storage.s3.api.call.attempt.timeout": BucketProperty(_parse_attempt_timeout, "storage.timeout"),
        },
    ),
    f"{_PACKAGE}.gcs.GcsStorage": BucketBackend(
        "gs",
        "storage.gcs.bucket.name",
        {
            "storage.gcs.credentials.json": BucketProperty(_parse_json_object, "storage.service_account_key"),
            "storage.gcs.credentials.path": BucketProperty(plain_text, "storage.application_credentials"),
            "storage.gcs.endpoint.url": BucketProperty(_parse_endpoint, "storage.base_url"),
            "storage.gcs.credentials.default": BucketProperty(boolean, None),
        },
    ),
    f"{_PACKAGE}.azure.AzureBlobStorage": BucketBackend(
        "az",
        "storage.azure.container.name",
        {
            "storage.azure.connection.string": BucketProperty(plain_text, None),
            "storage.azure.account.name": BucketProperty(plain_text, "storage.account_name"),
            "storage.azure.account.key": BucketProperty(plain_text, "storage.account_key"),
            "storage.azure.sas.token": BucketProperty(plain_text, "storage.sas_key"),
            "storage.azure.endpoint.url": BucketProperty(_parse_endpoint, "storage.endpoint"),
        },
    ),
}
"""Kinds of buckets by `storage.backend.class`."""

_CONNECTION_STRING_OPTIONS = {
    "AccountName": "storage.account_name",
    "AccountKey": "storage.account_key",
    "SharedAccessSignature": "storage.sas_key",
    "BlobEndpoint": "storage.endpoint",
}
"""Storage options by part of `storage.azure.connection.string`. The properties of single values override them."""


def bucket_storage_options(backend: BucketBackend, given: Mapping[str, str], prefix: str) -> StorageOptions:
    """Return the storage options that the properties of a bucket set.

    Args:
        backend: Kind of the bucket.
        given: Properties by name without prefix.
        prefix: Prefix of the names, for errors.

    Raises:
        OptionError: If a value is invalid.
    """
    parts = (part.partition("=")[::2] for part in given.get("storage.azure.connection.string", "").split(";"))
    options = {
        _CONNECTION_STRING_OPTIONS[name]: text for name, text in parts if name in _CONNECTION_STRING_OPTIONS and text
    }
    options["storage.retry_timeout"] = str(_RETRY_TIMEOUT_S)
    for name, (parse, option) in backend.properties.items():
        text = str(parse(prefix + name, given[name])) if name in given else ""
        if text and option is not None:
            options[option] = text
    return StorageOptions.of(options)
