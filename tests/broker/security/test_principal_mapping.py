"""Distinguished names as Java writes them, and the rules of KIP-371. Expected values: X500Principal.getName of Java 17
and SslPrincipalMapper of Kafka 4.3.0, asked once."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.security.authentication_failed import AuthenticationFailed
from kafkalog_broker.security.principal_mapping import (
    MAX_NAME_CHARACTERS,
    distinguished_name,
    parse_rules,
    principal_name,
)
from tests.broker.security.stores import authority

NAME = "CN=kafka1.example.org,OU=Adm,O=Example,L=Utrecht,ST=UT,C=NL"


def name_of(*attributes: tuple[x509.ObjectIdentifier, str]) -> str:
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    chain = authority().issue(name).chain
    return distinguished_name(x509.load_pem_x509_certificates(chain.encode())[0])


def test_distinguished_name_starts_with_the_most_specific_attribute():
    found = name_of(
        (NameOID.COUNTRY_NAME, "NL"), (NameOID.ORGANIZATION_NAME, "Example"), (NameOID.COMMON_NAME, "kafka1"),
    )  # fmt: skip
    assert found == "CN=kafka1,O=Example,C=NL"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ('a,b+c"d\\e<f>g;h', 'a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h'),
        (" edge ", "\\ edge\\ "),
        ("#hash", "\\#hash"),
        ("a=b", "a\\=b"),
        ("a#b", "a\\#b"),
        ("  ", "\\ \\ "),
        ("Zoë", "Zoë"),
    ],
)
def test_special_characters_are_escaped(value: str, written: str):
    assert name_of((NameOID.COMMON_NAME, value)) == f"CN={written}"


def test_attributes_without_a_keyword_are_formatted_as_oid_and_hex():
    found = name_of((NameOID.EMAIL_ADDRESS, "a@b.c"), (NameOID.COMMON_NAME, "x"))
    assert found == "CN=x,1.2.840.113549.1.9.1=#1605614062" + "2e63"


@pytest.mark.parametrize(
    ("rules", "name", "wanted"),
    [
        ("DEFAULT", NAME, NAME),
        ("RULE:^CN=(.*?),OU=Adm.*$/$1/", NAME, "kafka1.example.org"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U,DEFAULT", NAME, "KAFKA1.EXAMPLE.ORG@ADM"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", "CN=ALICE", "alice"),
        ("RULE:^CN=nobody$/x/, RULE:^CN=([^,]*).*$/$1@$4/ , DEFAULT", NAME, "kafka1.example.org@$4"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$12/", NAME, "kafka1.example.org2"),
        ("RULE:^CN=(.*?)\\/x$/$1/,DEFAULT", "CN=a/x", "a"),
        ("RULE:(.*)/x$1/", "abc", "xabcx"),
        ("RULE:^CN=(?<name>.*)$/$1/", "CN=a", "a"),
    ],
)
def test_rules_map_distinguished_names(rules: str, name: str, wanted: str):
    assert principal_name(parse_rules(rules), name) == wanted


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2", "CN=x" + ",OU=a,O=b,L=c,ST=d" * 100),
        ("^CN=((a+)+)+$/$1", f"CN={'a' * 2_000}b"),
    ],
)
def test_rule_matching_does_not_backtrack(rule: str, name: str):
    """With backtracking these names would take minutes to years."""
    with pytest.raises(AuthenticationFailed, match="no rule"):
        principal_name(parse_rules(f"RULE:{rule}/"), name)


def test_name_too_long_for_rules_fails_authentication():
    name = "CN=" + "a" * MAX_NAME_CHARACTERS
    with pytest.raises(AuthenticationFailed, match="the distinguished name has 2051 characters"):
        principal_name(parse_rules("RULE:(.*)/$1/"), name)
    assert principal_name(parse_rules("DEFAULT"), name) == name


@pytest.mark.parametrize("pattern", [r"CN=\d+", r"CN=\w+"])
def test_character_classes_match_ascii_only(pattern: str):
    assert principal_name(parse_rules(f"RULE:{pattern}/x/"), "CN=12") == "x"
    with pytest.raises(AuthenticationFailed):
        principal_name(parse_rules(f"RULE:{pattern}/x/"), "CN=١٢")


@pytest.mark.parametrize(
    "pattern",
    [
        r"(.)\1", "(?=CN).*", "(?<!x).*", "(?>a)", "a++", r"\u0041", r"\0101", r"\C", "(?P<n>a)", "(?U)a", "(?iU:a)",
        "[a-z&&[^b]]", "[[a]b]", "[^x[:alpha:]]", "a{1,2000}",
    ],
)  # fmt: skip
def test_pattern_that_differs_from_java_is_refused(pattern: str):
    with pytest.raises(ConfigError, match="not a supported regular expression"):
        parse_rules(f"RULE:{pattern}/x/")


@pytest.mark.parametrize("pattern", [r"[a&]&&b", r"\[[a]", r"\Q[[&&\E", r"[\[a]", "(?i)A"])
def test_pattern_that_resembles_an_unsupported_one_is_accepted(pattern: str):
    parse_rules(f"RULE:{pattern}/x/")


def test_name_without_a_matching_rule_fails_authentication():
    with pytest.raises(AuthenticationFailed, match=r"no rule of ssl\.principal\.mapping\.rules applies to CN=bob"):
        principal_name(parse_rules("RULE:^CN=alice$/alice/"), "CN=bob")


@pytest.mark.parametrize("rules", ["RULE:a/b", "RULE:(/x/", "DEFALT", "RULE:^CN=(.*)$/$1/X", "DEFAULT DEFAULT"])
def test_invalid_rule_is_refused(rules: str):
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(rules)
