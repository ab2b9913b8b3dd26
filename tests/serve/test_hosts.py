"""Hosts that requests may name."""

from workbench.serve.access import Hosts, canonical_host
from workbench.serve.refusals import Refusal


def verdict(hosts: Hosts, *given: bytes, here: str = "") -> str:
    try:
        hosts.check([(b"accept", b"x"), *((b"host", value) for value in given)], here)
    except Refusal as refusal:
        return refusal.kind
    return "allowed"


def test_one_host_is_named_and_only_an_expected_one_is_answered() -> None:
    listed = Hosts(filter(None, map(canonical_host, ("Model.Example.", "*.inner", "10.1.2.3", "fd00::1"))))
    for hosts, expected, names in (
        (Hosts(), "allowed", b"localhost LocalHost:80 127.0.0.1:8000 [::1] localhost.:1"),
        (Hosts(), "host", b"evil localhost.evil 127.0.0.1.evil:80 127.1 10.0.0.1 [::2] xlocalhost 0x7f000001"),
        (
            Hosts(),
            "bad_request",
            b"localhost: localhost:x a@localhost localhost/x localhost,evil [::1 a:123456",
        ),
        (listed, "allowed", b"model.example:443 a.inner a.b.inner 10.1.2.3 [fd00::1]:8000"),
        (listed, "host", b"x.model.example inner xinner 10.1.2.4"),
    ):
        for name in names.split():
            assert verdict(hosts, name) == expected, name
    for given in ((), (b"localhost", b"localhost"), (b"",), (b" ",), (b"a b",), (b"\xff",)):
        assert verdict(Hosts(), *given) == verdict(Hosts(["*"]), *given) == "bad_request"


def test_the_address_at_which_a_request_arrived_may_be_named() -> None:
    assert verdict(Hosts(), b"10.0.0.7:8000", here="10.0.0.7") == "allowed"
    assert verdict(Hosts(), b"[fd00::1]", here="fd00::1") == "allowed"
    assert verdict(Hosts(), b"10.0.0.8", here="10.0.0.7") == "host"


def test_only_hosts_can_be_allowed() -> None:
    for name in ("", "a b", "http://a", "a:80", "a/b", "*.", "*.*.a", "a\nb"):
        assert canonical_host(name) is None
    assert canonical_host("*") == "*"
