"""Where the daemon may send something: the addresses of the open internet, and what `deliver.allow` names."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from yarl import URL

Address = IPv4Address | IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

NAT64 = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
PORTS = {"http": 80, "https": 443}


class AddressRefused(Exception):
    """Nothing may be sent there; the message says which setting would allow it."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """One entry of `deliver.allow`: a host name or a network, for one port or all."""

    host: str | None
    network: Network | None
    port: int | None

    def names(self, host: str, address: Address, port: int) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.network is not None:
            return any(one in self.network for one in (address, *_inside(address)))
        return self.host == _plain(host)


def parse_allowed(text: str) -> Allowed:
    """`localhost`, `10.0.0.0/8`, `127.0.0.1:9000`, `[::1]:9000`, `hooks.lan:8080`. Raises ValueError."""
    try:
        return Allowed(None, ip_network(text.strip("[]"), strict=False), None)
    except ValueError:
        pass
    parts = urlsplit(f"//{text}")
    if not parts.hostname or " " in text or parts.path or parts.query or parts.username is not None:
        raise ValueError(f"{text!r} is no host, address or network, such as 127.0.0.1:9000, 10.0.0.0/8 or hooks.lan")
    host = _host_of(parts.hostname)
    try:
        return Allowed(None, ip_network(host), parts.port)
    except ValueError:
        return Allowed(_plain(host), None, parts.port)


def check_address(host: str, address: str, port: int, allowed: Sequence[Allowed]) -> None:
    """`address` is what `host` means now. Raises AddressRefused."""
    ip = ip_address(address.partition("%")[0])
    if any(rule.names(host, ip, port) for rule in allowed):
        return
    if not is_public(ip):
        raise AddressRefused(
            f"{host} is {ip}, an address that is not on the open internet. "
            f"Add {host}:{port} to deliver.allow if it should be sent there."
        )


def is_public(ip: Address) -> bool:
    """Whether it, and every address inside it, belongs to the open internet."""
    return all(_is_global(one) for one in (ip, *_inside(ip)))


def _is_global(ip: Address) -> bool:
    closed = ip.is_loopback or ip.is_private or ip.is_link_local or ip.is_multicast or ip.is_unspecified
    site_local = isinstance(ip, IPv6Address) and ip.is_site_local
    return (ip.is_global and not (closed or ip.is_reserved or site_local)) or _leads_elsewhere(ip)


def _leads_elsewhere(ip: Address) -> bool:
    """Addresses that only stand for the IPv4 address inside them."""
    return _is_nat64(ip) or (isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None)


def _is_nat64(ip: Address) -> bool:
    return any(ip in network for network in NAT64)


def _inside(ip: Address) -> Iterator[Address]:
    """IPv4 addresses that an IPv6 address leads to."""
    if not isinstance(ip, IPv6Address):
        return
    if ip.ipv4_mapped is not None:
        yield ip.ipv4_mapped
    if ip.sixtofour is not None:
        yield ip.sixtofour
    if ip.teredo is not None:
        yield from ip.teredo
    if _is_nat64(ip):
        yield IPv4Address(int(ip) & 0xFFFFFFFF)


def _plain(host: str) -> str:
    return host.lower().rstrip(".")


def _host_of(host: str) -> str:
    """A host as it is looked up: in ASCII. Digits and dots of other scripts mean an address, too."""
    from yarl import URL

    return URL.build(scheme="http", host=host).raw_host or host


def read_url(text: str) -> URL:
    """An address to send to, as the client reads it: what is judged and what is connected to are one object. Raises
    ValueError for what is not http(s) or has no host."""
    from yarl import URL

    url = URL(text)
    if url.scheme not in PORTS:
        raise ValueError("must start with http:// or https://")
    if not url.raw_host:
        raise ValueError("names no host")
    if url.raw_user is not None or url.raw_password is not None:
        raise ValueError("holds a user or password; send them as a header")
    return url


def target_of(url: URL) -> tuple[str, int]:
    """(host, port) of what `read_url` gave, the host in ASCII."""
    return url.raw_host or "", url.port or PORTS[url.scheme]


def literal(host: str) -> Address | None:
    """The address a host is written as; None for a name, which has to be looked up."""
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None
