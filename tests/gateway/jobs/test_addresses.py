from __future__ import annotations

from ipaddress import ip_address

import pytest

from gateway.jobs.addresses import (
    AddressRefused,
    check_address,
    is_public,
    literal,
    parse_allowed,
    read_url,
    target_of,
)

CLOSED = """
127.0.0.1 127.8.9.10 10.1.1.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 255.255.255.255 224.0.0.1
192.0.2.1 198.18.0.1 240.0.0.1 ::1 :: ::ffff:127.0.0.1 ::ffff:10.0.0.1 fe80::1 fd00:ec2::254 fc00::1 fec0::1 ff02::1
64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 2002:7f00:1:: 2001:db8::1
""".split()
OPEN = ["8.8.8.8", "1.1.1.1", "2001:4860:4860::8888", "64:ff9b::808:808", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", CLOSED)
def test_what_is_not_on_the_open_internet_is_refused(address: str) -> None:
    assert not is_public(ip_address(address))
    with pytest.raises(AddressRefused, match=r"deliver\.allow"):
        check_address("hooks.example", address, 443, ())


@pytest.mark.parametrize("address", OPEN)
def test_the_open_internet_is_allowed(address: str) -> None:
    check_address("hooks.example", address, 443, ())


@pytest.mark.parametrize(
    ("entry", "host", "address", "port", "allowed"),
    [
        ("127.0.0.1", "localhost", "127.0.0.1", 9000, True),
        ("127.0.0.1:9000", "localhost", "127.0.0.1", 9000, True),
        ("127.0.0.1:9000", "localhost", "127.0.0.1", 8420, False),
        ("10.0.0.0/8", "a.lan", "10.2.3.4", 80, True),
        ("10.0.0.0/8", "a.lan", "192.168.0.1", 80, False),
        ("hooks.lan", "Hooks.lan.", "192.168.0.1", 80, True),
        ("hooks.lan", "other.lan", "192.168.0.1", 80, False),
        ("hooks.lan:8080", "hooks.lan", "192.168.0.1", 80, False),
        ("[::1]:9000", "localhost", "::1", 9000, True),
        ("::1", "localhost", "::1", 9000, True),
        ("127.0.0.0/8", "x", "::ffff:127.0.0.1", 80, True),
    ],
)
def test_allow_names_hosts_networks_and_ports(entry: str, host: str, address: str, port: int, allowed: bool) -> None:
    rules = (parse_allowed(entry),)
    if allowed:
        check_address(host, address, port, rules)
    else:
        with pytest.raises(AddressRefused):
            check_address(host, address, port, rules)


@pytest.mark.parametrize("entry", ["", "a/b", "http://x", "user@host", "host:port", "10.0.0.0/99", "a b"])
def test_what_is_no_host_is_refused_in_the_configuration(entry: str) -> None:
    with pytest.raises(ValueError):
        parse_allowed(entry)


@pytest.mark.parametrize(
    "url", ["ftp://a", "file:///etc/passwd", "http://", "//a", "http://u:p@a", "gopher://a", "http://a:99999"]
)
def test_only_http_addresses_without_credentials_are_sent_to(url: str) -> None:
    with pytest.raises(ValueError):
        read_url(url)


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("１２７.0.0.1", "127.0.0.1"),
        ("127。0。0。1", "127.0.0.1"),
        ("①27.0.0.1", "127.0.0.1"),
        ("ⓛocalhost", "localhost"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("[::FFFF:127.0.0.1]", "::ffff:7f00:1"),
        ("Hooks.Example", "hooks.example"),
    ],
)
def test_a_host_is_judged_as_it_is_connected_to(written: str, host: str) -> None:
    assert target_of(read_url(f"http://{written}/x")) == (host, 80)
    assert target_of(read_url(f"https://{written}:444/x")) == (host, 444)


def test_a_host_in_another_script_can_be_allowed() -> None:
    check_address("xn--bcher-kva.example", "10.0.0.1", 80, (parse_allowed("bücher.example"),))
    check_address("127.0.0.1", "127.0.0.1", 80, (parse_allowed("１２７.0.0.1:80"),))


def test_an_address_in_brackets_is_one_and_a_name_is_none() -> None:
    assert str(literal("[::1]")) == "::1"
    assert literal("localhost") is None
