"""Failures of requests to object stores, explained in sentences without the text of obstore's exceptions.

That text contains the server's response, which for a wrong signature includes the ID of the key and the signed text. So
it is only searched for known patterns.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>\s*([A-Za-z0-9.]+)\s*</Code>|\\?\"code\\?\":\s*\\?\"([A-Za-z0-9.]+)\\?\"")
_KIND = re.compile(r"kind: (Connect|Request|Timeout|Interrupted|Decode|Unknown)\b")


@dataclass(frozen=True)
class Failure:
    """Failure of one try of a request.

    Attributes:
        errno: Number of the OSError to raise.
        sentence: Explanation, without any of the library's text.
        is_transient: True if another try may succeed.
        was_answered: True if a server responded, so that the endpoint is right.
    """

    errno: int
    sentence: str
    is_transient: bool = False
    was_answered: bool = True

    def error(self, path: str, tries: int = 1) -> OSError:
        """Return the OSError with the sentence. Its class is that of the number, such as PermissionError."""
        suffix = f" ({tries} tries)" if tries > 1 else ""
        return OSError(self.errno, f"{self.sentence}{suffix}", path)


class TryFailed(Exception):
    """Failure of a request that the library does not report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure


_ADVICE = {
    "s3": (
        "give fs.s3a.access.key and fs.s3a.secret.key, or set the environment or profile that the workers see",
        "give it as fs.s3a.endpoint.region",
        "s3:ListBucket and s3:GetObject",
    ),
    "gs": (
        "give storage.service_account or storage.application_credentials, a path that the workers can read",
        "check storage.base_url",
        "storage.objects.list and storage.objects.get",
    ),
    "abfss": (
        "give storage.account_key, storage.sas_key, or storage.client_id with .client_secret and .tenant_id",
        "check storage.endpoint",
        "the role Storage Blob Data Reader",
    ),
}
"""By the vendor's scheme: how to give credentials, how to give the region, and the permissions that reading needs."""
_NO_OBJECT = "the object does not exist"
_REPLACED = "the object was replaced since it was listed"
_UNSUPPORTED = "{endpoint} does not support the request"
_WRONG_REGION = "the bucket {bucket} is in another region: {region}"
_UNKNOWN_KEY = "{endpoint} does not know the access key: {credentials}"
_NO_CONTAINER = "there is no container {bucket} at {endpoint}: check the names of the container and the account"
_WRONG_ACCOUNT_KEY = "{endpoint} rejects the account key or token: check storage.account_key and storage.sas_key"
_MALFORMED_HEADER = "the bucket {bucket} is in another region, or the access key is incomplete: {region}"
_DENIED = "access to {bucket} is denied: the credentials in use do not allow it (reading needs {permissions})"
_BAD_REQUEST = "{endpoint} rejects the request as invalid: check the region ({region}) and the session token"
_UNREACHABLE = "{endpoint} cannot be reached: check the endpoint, the region and the network"
_INVALID_KEY = (
    "the key of an object has an empty name between two slashes, a name `.` or `..`, or a control character, so it "
    "cannot be read: rename that object"
)

_BY_CODE: dict[str, tuple[int, str]] = {
    "NoSuchKey": (errno.ENOENT, _NO_OBJECT),
    "BlobNotFound": (errno.ENOENT, _NO_OBJECT),
    "NoSuchBucket": (errno.ENOENT, "there is no bucket {bucket} at {endpoint}: check its name and the endpoint"),
    "ContainerNotFound": (errno.ENOENT, _NO_CONTAINER),
    "InvalidBucketName": (errno.EINVAL, "{bucket} cannot be the name of a bucket"),
    "AccessDenied": (errno.EACCES, _DENIED),
    "InvalidAccessKeyId": (errno.EACCES, _UNKNOWN_KEY),
    "XAdminUserNotFound": (errno.EACCES, _UNKNOWN_KEY),  # versitygw's, with status 404
    "SignatureDoesNotMatch": (errno.EACCES, "the secret key does not belong to the access key: {credentials}"),
    "AuthenticationFailed": (errno.EACCES, _WRONG_ACCOUNT_KEY),
    "ExpiredToken": (errno.EACCES, "the session token has expired: give a new one as fs.s3a.session.token"),
    "InvalidToken": (errno.EACCES, "the session token does not belong to the keys: check fs.s3a.session.token"),
    "TokenRefreshRequired": (errno.EACCES, "the session token has to be renewed"),
    "RequestTimeTooSkewed": (
        errno.EACCES,
        "the clock of this machine is wrong by more than {endpoint} allows: correct it",
    ),
    "AccountProblem": (errno.EACCES, "{endpoint} reports that the account cannot be used at present"),
    "InvalidObjectState": (errno.EACCES, "the object is archived: restore it to a storage class that can be read"),
    "PermanentRedirect": (errno.EINVAL, _WRONG_REGION),
    "IllegalLocationConstraintException": (errno.EINVAL, _WRONG_REGION),
    "AuthorizationHeaderMalformed": (errno.EINVAL, _MALFORMED_HEADER),
    "EntityTooLarge": (errno.EFBIG, "the object is larger than {endpoint} allows"),
    "QuotaExceeded": (errno.EDQUOT, "the bucket {bucket} is full"),
    "NotImplemented": (errno.ENOTSUP, _UNSUPPORTED),
}
"""By the code in the response's body: S3's, most of which Google's XML interface shares, and Azure's."""

_BY_STATUS: dict[int, tuple[int, str]] = {
    400: (errno.EINVAL, _BAD_REQUEST),
    401: (errno.EACCES, "{endpoint} requires credentials: {credentials}"),
    403: (errno.EACCES, _DENIED),
    404: (errno.ENOENT, _NO_OBJECT),
    405: (errno.ENOTSUP, "{endpoint} is not an object store of this kind: check the endpoint"),
    409: (errno.EEXIST, "another request was changing the object"),
    411: (errno.ENOTSUP, _UNSUPPORTED),
    412: (errno.ENOENT, _REPLACED),
    416: (errno.ENOENT, _REPLACED),
    501: (errno.ENOTSUP, _UNSUPPORTED),
}

_TRANSIENT_CODES = frozenset({
    "SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "ServerBusy", "OperationTimedOut",
    "RequestLimitExceeded", "ThrottlingException", "BadDigest",
})  # fmt: skip
_BY_KIND: dict[str, tuple[int, str]] = {
    "Connect": (errno.ECONNREFUSED, _UNREACHABLE),
    "Timeout": (errno.ETIMEDOUT, "{endpoint} did not respond in time"),
    "Request": (errno.ECONNRESET, "{endpoint} closed the connection"),
    "Interrupted": (errno.ECONNRESET, "{endpoint} closed the connection"),
    "Decode": (errno.ECONNRESET, "{endpoint} ended the response early"),
    "Unknown": (errno.ECONNRESET, "{endpoint} closed the connection"),
}
_CREDENTIAL_PATHS = ("/latest/api/token", "/latest/meta-data/", "computeMetadata", "/metadata/identity")
"""Parts of URLs of requests for credentials, which go to other servers."""
_NO_CREDENTIALS = (
    "no credentials were found, neither in options and environment nor from the machine's role: {credentials}; a "
    "public bucket is read with storage.skip_signature=true"
)

Placeholders = dict[str, str]
"""Values of the placeholders in the sentences above."""

REPLACED = Failure(errno.ENOENT, _REPLACED)


def placeholders_for(bucket: str, endpoint: str = "", vendor: str = "s3") -> Placeholders:
    """Return the values of the placeholders. endpoint: host and port; empty for the vendor's own endpoint."""
    credentials, region, permissions = _ADVICE[vendor]
    return {
        "bucket": bucket,
        "endpoint": endpoint or "the store",
        "credentials": credentials,
        "region": region,
        "permissions": permissions,
    }


def truncated(expected: int, received: int) -> Failure:
    """Return the failure of a response with fewer bytes than requested."""
    return Failure(errno.EIO, f"the response has {received} bytes, expected {expected}", is_transient=True)


def failure_of(error: BaseException, placeholders: Placeholders) -> Failure:
    """Return the failure for an exception of the library, by its class and by known patterns in its text."""
    text = str(error)
    status_match, kind_match = _STATUS.search(text), _KIND.search(text)
    status = int(status_match[1]) if status_match else 0
    code = _code(text)
    if "Error performing" in text and any(path in text for path in _CREDENTIAL_PATHS):
        return Failure(errno.EACCES, _NO_CREDENTIALS.format(**placeholders), was_answered=False)
    if code in _TRANSIENT_CODES or status in (408, 429) or (status >= 500 and status != 501):
        reason = f"{placeholders['endpoint']} is overloaded or failing ({code or f'status {status}'})"
        return Failure(errno.EAGAIN, reason, is_transient=True)
    if code in _BY_CODE:
        number, sentence = _BY_CODE[code]
        return Failure(number, sentence.format(**placeholders))
    if status in _BY_STATUS:
        number, sentence = _BY_STATUS[status]
        suffix = f" (status {status}, {code})" if code else ""
        return Failure(number, sentence.format(**placeholders) + suffix)
    if status:
        return Failure(errno.EIO, f"{placeholders['endpoint']} refuses the request (status {status})")
    return _without_status(error, text, kind_match[1] if kind_match else "", placeholders)


def object_is_missing(error: BaseException) -> bool:
    """Return True if the object does not exist; False if its bucket or the user does not exist."""
    text = str(error)
    return isinstance(error, FileNotFoundError) and _code(text) in ("", "NoSuchKey", "BlobNotFound")


def _code(text: str) -> str:
    """Return the code in a response's body; empty without one."""
    match = _CODE.search(text)
    return next((group for group in match.groups() if group), "") if match else ""


def _without_status(error: BaseException, text: str, kind: str, placeholders: Placeholders) -> Failure:
    """Return the failure for an exception without an HTTP status. kind: reqwest's kind of the error, if any."""
    if "incorrectly configured region" in text:
        number, sentence = _BY_CODE["PermanentRedirect"]
        return Failure(number, sentence.format(**placeholders))
    if "BadScheme" in text or "URL scheme is not allowed" in text:
        return Failure(errno.EINVAL, "the endpoint is http://, and storage.allow_http=false forbids that")
    if kind:
        number, sentence = _BY_KIND[kind]
        return Failure(number, sentence.format(**placeholders), is_transient=True, was_answered=False)
    name = type(error).__name__
    if isinstance(error, FileNotFoundError):
        return Failure(errno.ENOENT, _NO_OBJECT)
    if name == "PreconditionError":
        return REPLACED
    if name in ("InvalidPathError", "ValueError") and "path" in text.lower():
        return Failure(errno.EINVAL, _INVALID_KEY)
    if isinstance(error, OSError) and error.errno:
        return Failure(error.errno, os.strerror(error.errno))
    return Failure(errno.EIO, f"the request failed in the library ({name})", is_transient=name == "GenericError")
