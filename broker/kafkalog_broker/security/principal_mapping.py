"""Principals from certificates: a distinguished name as Java writes it, and ssl.principal.mapping.rules (KIP-371).

A peer chooses the name, so patterns are matched by RE2, in time that is linear in the name. They have the same meaning
as in Java; syntax that RE2 does not have or treats differently is refused at the start.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from kafkalog_broker.config.definition import invalid_value
from kafkalog_broker.security.authentication_failed import AuthenticationFailed

RULES = "ssl.principal.mapping.rules"

_KEYWORDS = {
    NameOID.COMMON_NAME: "CN",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.COUNTRY_NAME: "C",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
"""Attributes that have keywords in RFC 2253. Others appear as their OID and the hexadecimal bytes of their value."""

_RULE = re.compile(
    r"(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)"
)
_REFERENCE = re.compile(r"\\(?P<escaped>.)|\$(?P<number>[0-9]+)", re.DOTALL)
_TOKEN = re.compile(r"\\Q.*?(?:\\E|$)|\\.|\(\?(?:P|[a-zA-Z-]*U)|&&|.", re.DOTALL)
_REFUSED_TOKENS = ("\\0", "\\C", "(?")
"""Prefixes of octal numbers, of \\C (any byte), of the flag U and of named groups in Python's syntax. RE2 accepts them;
Java refuses them or gives them another meaning."""

MAX_NAME_CHARACTERS = 2_048
"""Longest name, in characters, to which rules are applied, because replacing all matches of the worst pattern takes
quadratic time. (X.520 allows 64 characters in most attributes.)"""


@dataclass(frozen=True, slots=True)
class Rule:
    """One mapping rule.

    Attributes:
        pattern: Regular expression of RE2; None for DEFAULT, which keeps the name.
        replacement: Replacement of each match; `$1` refers to the first group.
        case: L, U or "" for the case of the result.
    """

    pattern: Any
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the mapped name, or None if the rule does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        # Java's replaceAll replaces every match in the name, including an empty one at its end.
        result = self.pattern.sub(lambda match: _expand(self.replacement, match), name)
        return str({"L": result.lower, "U": result.upper}.get(self.case, lambda: result)())


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Parse `RULE:pattern/replacement/[LU]` and DEFAULT, separated by commas. Raises ConfigError."""
    rules: list[Rule] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _RULE.match(text, position)
        rest = text[match.end() if match else position :].lstrip()
        if match is None or (rest and not rest.startswith(",")):
            reason = f"expected DEFAULT or RULE:pattern/replacement/ with L or U after it, at character {position + 1}"
            raise invalid_value(RULES, text, reason)
        rules.append(_parse_rule(match, text))
        position = len(text) - len(rest.removeprefix(",").lstrip())
    return tuple(rules)


def principal_name(rules: Sequence[Rule], name: str) -> str:
    """Return the principal of a distinguished name by the first matching rule. Raises AuthenticationFailed."""
    if len(name) > MAX_NAME_CHARACTERS and any(rule.pattern is not None for rule in rules):
        raise AuthenticationFailed(
            f"the distinguished name has {len(name)} characters, {RULES} allows at most {MAX_NAME_CHARACTERS}: "
            f"{name[:100]}..."
        )
    for rule in rules:
        result = rule.apply(name)
        if result is not None:
            return result
    raise AuthenticationFailed(f"no rule of {RULES} applies to {name}")


def distinguished_name(certificate: x509.Certificate) -> str:
    """Return the subject in the form of X500Principal.getName (RFC 2253): `CN=alice,OU=Sales,C=NL`."""
    return ",".join("+".join(map(_attribute, rdn)) for rdn in reversed(list(certificate.subject.rdns)))


def _parse_rule(match: re.Match[str], text: str) -> Rule:
    if match["default"]:
        return Rule(None)
    try:
        pattern = _compile(match["pattern"])
    except ValueError as error:
        reason = f"{match['pattern'][:200]} is not a supported regular expression (RE2): {error}"
        raise invalid_value(RULES, text, reason) from None
    return Rule(pattern, match["replacement"], match["case"])


def _compile(pattern: str) -> Any:
    import re2  # loaded only if there are rules

    in_class = False
    for token in _TOKEN.findall(pattern):
        if token.startswith(_REFUSED_TOKENS) or (in_class and token in ("[", "&&")):
            raise ValueError(f"{token} has another meaning in Java")
        in_class = token == "[" or (in_class and token != "]")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        message = error.args[0]
        raise ValueError(message.decode(errors="replace") if isinstance(message, bytes) else str(message)) from None


def _expand(replacement: str, match: Any) -> str:
    """Replace references such as `$1` by the groups of a match, as SslPrincipalMapper does.

    Of several digits, the longest prefix that is the number of a group counts; a reference without a group is text.
    """

    def group(reference: re.Match[str]) -> str:
        if reference["escaped"] is not None:
            return str(reference["escaped"])
        digits = reference["number"]
        groups = match.re.groups
        used = len(digits)
        while used > 1 and int(digits[:used]) > groups:
            used -= 1
        if int(digits[:used]) > groups:
            return str(reference[0])
        return (match[int(digits[:used])] or "") + digits[used:]

    return _REFERENCE.sub(group, replacement)


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    keyword = _KEYWORDS.get(attribute.oid)
    if keyword is None or not isinstance(attribute.value, str):
        return f"{attribute.oid.dotted_string if keyword is None else keyword}=#{_value_der(attribute).hex()}"
    return f"{keyword}={_escaped(attribute.value)}"


def _escaped(value: str) -> str:
    text = re.sub(r'([,=+<>#;"\\])', r"\\\1", value)
    leading = len(text) - len(text.lstrip(" "))
    trailing = len(text) - len(text.rstrip(" ")) if leading < len(text) else 0
    return "\\ " * leading + text[leading : len(text) - trailing] + "\\ " * trailing


def _value_der(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """Return the DER encoding of an attribute's value, including its tag and length.

    cryptography encodes whole names only, so this encodes a name with one attribute and removes what precedes the
    value.
    """
    data = x509.Name([attribute]).public_bytes()
    for _ in range(3):  # headers of the Name, of its RDN set, and of the attribute, a sequence of OID and value
        data = data[_header_size(data) :]
    return data[_header_size(data) + data[1] :]  # without the OID, which is shorter than 128 bytes


def _header_size(data: bytes) -> int:
    return 2 if data[1] < 0x80 else 2 + (data[1] & 0x7F)
