"""Who has sent a request: Standard Webhooks, GitHub's signature, bearer tokens; and signing what we send ourselves."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Scheme = Literal["standard", "github", "bearer"]

PREFIX = "whsec_"
TOLERANCE_S = 300


class BadSignature(Exception):
    """The request is not from whom it should be, or is too old; the message says what to look at."""


def signing_key(secret: str) -> bytes:
    """The key of a `whsec_<base64>` secret. Raises ValueError."""
    try:
        key = base64.b64decode(_padded(secret.removeprefix(PREFIX)), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("a secret of the Standard Webhooks scheme is whsec_ and base64") from error
    if not key:
        raise ValueError("the secret is empty")
    return key


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)


def sign_standard(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature` (https://www.standardwebhooks.com, "Signature scheme")."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(signing_key(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def sign_github(secret: str, body: bytes) -> str:
    """The value of `X-Hub-Signature-256`."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def verify(scheme: Scheme, secret: str, headers: Mapping[str, str], body: bytes, *, now_s: float) -> None:
    """Compares in constant time. `headers` finds names in any case. Raises BadSignature."""
    match scheme:
        case "standard":
            _verify_standard(secret, headers, body, now_s)
        case "github":
            given = headers.get("X-Hub-Signature-256", "")
            if not _same(given, sign_github(secret, body)):
                raise BadSignature("X-Hub-Signature-256 is missing, or does not fit body and secret.")
        case "bearer":
            kind, _, given = headers.get("Authorization", "").partition(" ")
            if kind.lower() != "bearer" or not _same(given.strip(), secret):
                raise BadSignature("Send the secret of this webhook: Authorization: Bearer <secret>.")


def _verify_standard(secret: str, headers: Mapping[str, str], body: bytes, now_s: float) -> None:
    message_id, raw_time = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    given = headers.get("webhook-signature", "")
    if not message_id or not raw_time or not given:
        raise BadSignature("Send the headers webhook-id, webhook-timestamp and webhook-signature.")
    if not (raw_time.isascii() and raw_time.isdigit() and len(raw_time) < 16):
        raise BadSignature("webhook-timestamp must be whole seconds since 1970.")
    expected = sign_standard(secret, message_id, int(raw_time), body)
    # all are compared: a secret that is being changed signs twice
    if not sum(_same(one, expected) for one in given.split()):
        raise BadSignature("webhook-signature does not fit webhook-id, webhook-timestamp, body and secret.")
    if abs(now_s - int(raw_time)) > TOLERANCE_S:
        raise BadSignature(f"webhook-timestamp is more than {TOLERANCE_S // 60} minutes off. Check the clocks.")


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())


def sender_ids(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """(kind, id) of everything in a request by which a repeat is recognised."""
    kinds = ("webhook-id", "X-GitHub-Delivery", "Idempotency-Key")
    return tuple((kind.lower(), headers[kind]) for kind in kinds if headers.get(kind))
