from __future__ import annotations

import pytest

from gateway.models.base import ContextOverflow, ModelError, ModelRejected, ModelUnavailable
from gateway.models.failures import error_of_object, error_of_status, message_in, retry_after


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, ModelRejected) for status in (400, 401, 403, 404, 405, 422)),
        *((status, ModelUnavailable) for status in (402, 408, 409, 425, 429, 500, 502, 503, 504, 520, 524, 529)),
    ],
)
def test_an_outage_is_told_from_a_bad_request(status: int, kind: type[ModelError]) -> None:
    assert type(error_of_status("chat", status, "no", {})) is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "boom", "code": 500}, ModelUnavailable),
        ({"message": "slow down", "code": "429"}, ModelUnavailable),
        ({"message": "bad field", "type": "invalid_request_error", "code": None}, ModelRejected),
        ({"message": "Overloaded", "type": "overloaded_error"}, ModelUnavailable),
        ({"message": "x", "code": "context_length_exceeded", "type": "invalid_request_error"}, ContextOverflow),
        ({"message": "something"}, ModelUnavailable),
        ("a plain text", ModelUnavailable),
        (["odd"], ModelUnavailable),
    ],
)
def test_an_error_object_in_a_stream_means_what_its_status_would(error: object, kind: type[ModelError]) -> None:
    assert type(error_of_object("chat", error)) is kind


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"error": {"message": "No such\\nmodel."}}', "No such model."),
        ('{"error": "model not found"}', "model not found"),
        ('{"detail": [{"msg": "field required"}]}', "field required"),
        ('[{"error": {"message": "API key not valid."}}]', "API key not valid."),
        ("<html><head><title>502 Bad Gateway</title></head></html>", "an HTML page, '502 Bad Gateway'"),
        ("upstream connect error", "upstream connect error"),
        ('{"strange": 1}', '{"strange": 1}'),
        ("", "no reason given."),
    ],
)
def test_the_sentence_for_people_is_found_in_any_form(text: str, shown: str) -> None:
    assert message_in(text) == shown


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "Tue, 01 Dec 2026 10:00:30 GMT", "date": "Tue, 01 Dec 2026 10:00:00 GMT"}, 30),
        ({"retry-after": "Tue, 01 Dec 2026 10:00:00 GMT", "date": "Tue, 01 Dec 2026 10:00:09 GMT"}, 0),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after(headers) == wait_s
