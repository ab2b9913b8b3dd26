"""Hosts that requests may name."""

import pytest

from workbench.serve.hosts import Hosts, canonical_host, is_loopback
from workbench.serve.refusals import Refusal


def verdict(hosts: Hosts, *given: bytes, here: str = "") -> str:
    try:
        hosts.check([(b"accept", b"x"), *((b"host", value) for value in given)], here)
    except Refusal as refusal:
        return refusal.kind
    return "allowed"


@pytest.mark.parametrize("host", [b"localhost", b"LocalHost:80", b"127.0.0.1:8000", b"[::1]", b"localhost.:1"])
def test_loopback_names_are_allowed_with_any_port(host: bytes) -> None:
    assert verdict(Hosts(), host) == "allowed"


@pytest.mark.parametrize(
    "host",
    [
        *(b"evil", b"localhost.evil", b"127.0.0.1.evil:80", b"127.1", b"10.0.0.1", b"[::2]", b"xlocalhost"),
        b"0x7f000001",
    ],
)
def test_other_names_are_not(host: bytes) -> None:
    assert verdict(Hosts(), host) == "host"


@pytest.mark.parametrize(
    "given",
    [
        *((), (b"localhost", b"localhost"), (b"",), (b" ",), (b"a b",), (b"localhost:",), (b"localhost:x",)),
        *((b"a@localhost",), (b"localhost/x",), (b"localhost,evil",), (b"[::1",), (b"\xff",), (b"localhost:123456",)),
    ],
)
def test_what_names_no_host_or_two_is_a_bad_request(given: tuple[bytes, ...]) -> None:
    assert verdict(Hosts(), *given) == "bad_request"
    assert verdict(Hosts(["*"]), *given) == "bad_request"


def test_the_list_takes_names_addresses_and_everything_below_a_name() -> None:
    hosts = Hosts(filter(None, map(canonical_host, ("Model.Example.", "*.inner", "10.1.2.3", "fd00::1"))))

    for host in (b"model.example:443", b"a.inner", b"a.b.inner", b"10.1.2.3", b"[fd00::1]:8000"):
        assert verdict(hosts, host) == "allowed"
    for host in (b"x.model.example", b"inner", b"xinner", b"10.1.2.4"):
        assert verdict(hosts, host) == "host"


def test_the_address_at_which_a_request_arrived_may_be_named() -> None:
    assert verdict(Hosts(), b"10.0.0.7:8000", here="10.0.0.7") == "allowed"
    assert verdict(Hosts(), b"[fd00::1]", here="fd00::1") == "allowed"
    assert verdict(Hosts(), b"10.0.0.8", here="10.0.0.7") == "host"
    assert verdict(Hosts(addresses=True), b"10.0.0.8:8001") == "allowed"
    assert verdict(Hosts(addresses=True), b"evil") == "host"


@pytest.mark.parametrize("name", ["", "a b", "http://a", "a:80", "*", "a/b", "*.", "*.*.a", "a\nb"])
def test_only_hosts_can_be_allowed(name: str) -> None:
    assert canonical_host(name) == ("*" if name == "*" else None)


def test_loopback_is_what_only_this_machine_reaches() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example", "localhost.evil")))
