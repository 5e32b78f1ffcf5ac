from __future__ import annotations

import pytest

from gateway.models.quirks import Quirks, plain_roles


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        (Quirks(), "Unknown field: stream_options", Quirks(usage=False)),
        (
            Quirks(),
            "Unsupported parameter: 'max_tokens' is not supported here. Use 'max_completion_tokens' instead.",
            Quirks(limit="max_completion_tokens"),
        ),
        (
            Quirks(limit="max_completion_tokens"),
            "Unrecognized request argument supplied: max_completion_tokens",
            Quirks(),
        ),
        (Quirks(), "'response_format.type' must be 'json_object'", Quirks(schema=False)),
        (Quirks(), "tool_choice: only auto is supported", Quirks(tool_choice=False)),
        (Quirks(cache_key=True), "Unknown parameter: 'prompt_cache_key'", Quirks()),
        (Quirks(breakpoints=True), "Unknown parameter: 'prompt_cache_options'", Quirks()),
        (Quirks(), "Conversation roles must alternate user/assistant/user/assistant/...", Quirks(plain_roles=True)),
        (Quirks(), "System role not supported", Quirks(plain_roles=True)),
    ],
)
def test_a_refusal_teaches_how_to_ask(before: Quirks, text: str, after: Quirks) -> None:
    assert before.learn(400, text) == after
    assert after.learn(400, text) is None, "the same refusal again teaches nothing: no loop"


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "'max_tokens' or 'max_completion_tokens' is too large: 4096"),
        (400, "Invalid value"),
        (429, "stream_options"),
        (401, "stream_options"),
    ],
)
def test_other_refusals_teach_nothing(status: int, text: str) -> None:
    assert Quirks().learn(status, text) is None


def test_plain_roles_alternate_and_lose_nothing() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "summary"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hi"},
        call,
        {"role": "tool", "tool_call_id": "1", "content": "12:00"},
        {"role": "user", "content": [{"type": "text", "text": "a picture"}]},
        {"role": "user", "content": "now"},
    ]
    assert plain_roles(messages) == [
        {"role": "user", "content": "Be kind.\n\nsummary\n\nhello"},
        {"role": "assistant", "content": "hi"},
        call,
        *messages[5:],
    ]
