from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.jobs.signatures import BadSignature, Scheme, sender_ids, sign_github, sign_standard, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"test": 2432232314}'
AT = 1614265330


def signed(secret: str = SECRET, *, at: int = AT, body: bytes = BODY, message_id: str = "msg_1") -> dict[str, str]:
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": sign_standard(secret, message_id, at, body),
    }


def check(headers: dict[str, str], *, scheme: Scheme = "standard", secret: str = SECRET, now_s: float = AT) -> None:
    verify(scheme, secret, CIMultiDict(headers), BODY, now_s=now_s)


def test_the_published_example_of_standard_webhooks_has_its_published_signature() -> None:
    assert sign_standard(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", AT, BODY) == (
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


def test_a_signed_call_is_taken_with_any_writing_of_its_header_names() -> None:
    check({name.title(): value for name, value in signed().items()})


def test_one_of_several_signatures_is_enough_while_a_secret_is_changed() -> None:
    headers = signed()
    check({**headers, "webhook-signature": f"v1,AAAA {headers['webhook-signature']} v2,x"})


@pytest.mark.parametrize("off_s", [-300, 0, 300])
def test_five_minutes_are_close_enough(off_s: int) -> None:
    check(signed(), now_s=AT + off_s)


REFUSED: dict[str, dict[str, str]] = {
    "nothing": {},
    "no signature": {**signed(), "webhook-signature": ""},
    "another secret": signed("whsec_" + base64.b64encode(b"other").decode()),
    "another body": signed(body=b"{}"),
    "an id that was not signed": {**signed(), "webhook-id": "msg_2"},
    "a time that was not signed": {**signed(), "webhook-timestamp": str(AT + 1)},
    "a time that is no number": {**signed(), "webhook-timestamp": "now"},
    "a negative time": {**signed(), "webhook-timestamp": "-5"},
    "digits of another script": {**signed(), "webhook-timestamp": "١٢"},
    "another version": {**signed(), "webhook-signature": signed()["webhook-signature"].replace("v1", "v2")},
    "bytes that are no text": {**signed(), "webhook-signature": "v1,\udcff"},
}


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED)
def test_a_call_that_is_not_from_whom_it_should_be_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(BadSignature):
        check(headers)


@pytest.mark.parametrize("off_s", [-301, 301, 10**9])
def test_an_old_call_and_one_from_the_future_are_refused(off_s: int) -> None:
    with pytest.raises(BadSignature, match="minutes off"):
        check(signed(), now_s=AT + off_s)


def test_githubs_signature_and_bearer_tokens_are_checked_whole() -> None:
    good = sign_github("hush", BODY)
    check({"X-Hub-Signature-256": good}, scheme="github", secret="hush")
    check({"Authorization": "bearer hush"}, scheme="bearer", secret="hush")
    for headers in ({}, {"X-Hub-Signature-256": good[:-1]}, {"X-Hub-Signature-256": "sha256="}):
        with pytest.raises(BadSignature):
            check(headers, scheme="github", secret="hush")
    for value in ("", "hush", "Bearer", "Bearer hus", "Basic hush", "Bearer hush2"):
        with pytest.raises(BadSignature):
            check({"Authorization": value}, scheme="bearer", secret="hush")


@given(st.dictionaries(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature"]), st.text()))
def test_no_headers_are_taken_by_chance_or_end_in_another_error(headers: dict[str, str]) -> None:
    with pytest.raises(BadSignature):
        check(headers)


def test_a_repeat_is_recognised_by_every_id_a_sender_gives() -> None:
    headers = CIMultiDict({"Idempotency-Key": "a", "Webhook-Id": "b", "x-github-delivery": "c", "other": "d"})
    assert set(sender_ids(headers)) == {("idempotency-key", "a"), ("webhook-id", "b"), ("x-github-delivery", "c")}
