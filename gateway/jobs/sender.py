"""Sends one delivery over HTTP, to addresses that are allowed and to no others."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.jobs.addresses import AddressRefused, check_address, literal, parse_allowed, read_url, target_of
from gateway.jobs.signatures import sign_standard
from gateway.masking import masked_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yarl import URL

    from gateway.jobs.addresses import Allowed
    from gateway.jobs.policy import DeliverPolicy, DeliverTo

MAX_REDIRECTS = 3
SAME_REQUEST = (307, 308)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended. `refused`: it was not sent, and will not be by trying again."""

    error: str | None = None
    refused: bool = False
    retry_after_s: float | None = None

    @property
    def sent(self) -> bool:
        return self.error is None


class CheckedResolver(AbstractResolver):
    """Looks a name up and leaves out every address that is not allowed; the connection goes to what is left, so a
    name that means something else a moment later changes nothing."""

    def __init__(self, allowed: Sequence[Allowed], inner: AbstractResolver) -> None:
        self._allowed = allowed
        self._inner = inner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises AddressRefused when no address is left, OSError when there is none."""
        found = await self._inner.resolve(host, port, family)
        kept: list[ResolveResult] = []
        refusal: AddressRefused | None = None
        for one in found:
            try:
                check_address(host, one["host"], port, self._allowed)
            except AddressRefused as error:
                refusal = error
            else:
                kept.append(one)
        if not kept and refusal is not None:
            raise refusal
        return kept

    async def close(self) -> None:
        await self._inner.close()


class Sender:
    """Posts what is given. No proxy of the environment, no cookies, no cache of names."""

    def __init__(self, policy: DeliverPolicy, *, resolver: AbstractResolver | None = None) -> None:
        self._allowed = tuple(parse_allowed(entry) for entry in policy.allow)
        self._timeout = aiohttp.ClientTimeout(total=policy.timeout_s)
        self._inner = resolver
        self._client: aiohttp.ClientSession | None = None

    def _session(self) -> aiohttp.ClientSession:
        if self._client is None:
            inner = self._inner or aiohttp.ThreadedResolver()
            # a connection that is kept open is one to an address that was checked
            connector = aiohttp.TCPConnector(
                resolver=CheckedResolver(self._allowed, inner), use_dns_cache=False, limit=20
            )
            self._client = aiohttp.ClientSession(
                connector=connector, timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            )
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def send(self, target: DeliverTo, message_id: str, timestamp: int, body: bytes) -> Outcome:
        """One attempt."""
        assert target.url is not None  # noqa: S101
        headers = {"Content-Type": "application/json", "User-Agent": "sessiond", "webhook-id": message_id}
        headers["webhook-timestamp"] = str(timestamp)
        if target.secret is not None:
            secret = target.secret.get_secret_value()
            headers["webhook-signature"] = sign_standard(secret, message_id, timestamp, body)
        own = {name: secret.get_secret_value() for name, secret in target.headers.items()}
        try:
            return await self._post(read_url(target.url), headers, own, body)
        except AddressRefused as error:
            return Outcome(str(error), refused=True)
        except TimeoutError:
            return Outcome(f"no answer within {self._timeout.total:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Outcome(masked_target(f"{type(error).__name__}: {error}")[:500])

    async def _post(self, url: URL, headers: dict[str, str], own: dict[str, str], body: bytes) -> Outcome:
        """The headers a person has configured may be secrets: they go to the configured place only."""
        first = target_of(url)
        async with asyncio.timeout(self._timeout.total):
            for _ in range(MAX_REDIRECTS + 1):
                self._check_literal(url)
                sent = headers | (own if target_of(url) == first else {})
                async with self._session().post(url, data=body, headers=sent, allow_redirects=False) as response:
                    location = response.headers.get("Location")
                    if not (300 <= response.status < 400 and location):
                        return _outcome(response)
                    url = await self._redirected(url, location)
                    if response.status not in SAME_REQUEST:
                        return Outcome(f"the receiver answered {response.status}; only 307 and 308 are followed")
        return Outcome(f"the receiver redirects more than {MAX_REDIRECTS} times")

    def _check_literal(self, url: URL) -> None:
        """An address instead of a name is never looked up."""
        host, port = target_of(url)
        address = literal(host)
        if address is not None:
            check_address(host, str(address), port, self._allowed)

    async def _redirected(self, url: URL, location: str) -> URL:
        """Where a redirect leads, checked like the address itself. Raises AddressRefused and ValueError."""
        following = read_url(urljoin(str(url), location))
        host, port = target_of(following)
        self._check_literal(following)
        if literal(host) is None:
            resolver = CheckedResolver(self._allowed, self._inner or aiohttp.ThreadedResolver())
            await resolver.resolve(host, port)
        if url.scheme == "https" and following.scheme != "https":
            raise ValueError("the receiver redirects from https to http")
        return following


def _outcome(response: aiohttp.ClientResponse) -> Outcome:
    if 200 <= response.status < 300:
        return Outcome()
    wait = response.headers.get("Retry-After", "")
    return Outcome(
        f"the receiver answered {response.status}",
        retry_after_s=float(wait) if wait.isascii() and wait.isdigit() and len(wait) < 6 else None,
    )
