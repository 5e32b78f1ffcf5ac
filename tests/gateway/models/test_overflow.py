"""Texts of providers, as they are known to be sent."""

from __future__ import annotations

import time

import pytest

from gateway.models.overflow import Overflow, read_overflow

TOO_LONG = [
    # OpenAI, and the many that copy its words
    (
        400,
        "This model's maximum context length is 4097 tokens. However, your messages resulted in 5120 tokens. "
        "Please reduce the length of the messages.",
        5120,
        4097,
    ),
    (
        400,
        "This model's maximum context length is 8192 tokens, however you requested 10245 tokens (6149 in your prompt; "
        "4096 for the completion). Please reduce your prompt; or completion length.",
        6149,
        8192,
    ),
    (
        400,
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 280013 tokens. "
        "Please reduce the length of the messages.",
        280013,
        272000,
    ),
    (
        400,
        '{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try '
        'again.","code":"context_length_exceeded"}}',
        None,
        None,
    ),
    # OpenRouter
    (
        400,
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 140123 tokens (139123 "
        "of text input, 1000 in the output).",
        139123,
        131072,
    ),
    # DeepSeek
    (
        400,
        "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens (66000 in the "
        "messages, 4000 in the completion).",
        66000,
        65536,
    ),
    # Anthropic
    (400, "prompt is too long: 210000 tokens > 200000 maximum", 210000, 200000),
    (
        400,
        "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000, decrease input length or "
        "`max_tokens` and try again",
        199000,
        200000,
    ),
    (
        413,
        '{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}',
        None,
        None,
    ),
    # Gemini
    (
        400,
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        1200000,
        1048576,
    ),
    (400, "The input token count exceeds the maximum number of tokens allowed (1048576).", None, 1048576),
    # vLLM
    (
        400,
        "You passed 5001 input tokens and requested 100 output tokens. However, the model's context length is only "
        "4096 tokens, resulting in a maximum input length of 3996 tokens.",
        5001,
        4096,
    ),
    (
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 500. This model's maximum context length is 4096 tokens "
        "and your request has 3900 input tokens (500 > 4096 - 3900).",
        3900,
        4096,
    ),
    (400, "Input length (5000) exceeds model's maximum context length (4096).", 5000, 4096),
    (
        400,
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that "
        "`max_model_len` is no smaller than the number of text tokens.",
        5000,
        4096,
    ),
    # llama.cpp
    (400, "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it", 5000, 4096),
    (
        400,
        '{"error":{"code":400,"message":"the request exceeds the available context size","type":'
        '"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}',
        5000,
        4096,
    ),
    (500, "the request exceeds the available context size. try increasing the context size", None, None),
    # Ollama
    (400, "input length exceeds maximum context length", None, None),
    (400, "prompt too long; exceeded max context length by 123 tokens", None, None),
    # LiteLLM
    (
        400,
        "litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - This model's maximum context "
        "length is 4097 tokens. However, your messages resulted in 5120 tokens.",
        5120,
        4097,
    ),
    # Mistral, xAI, Bedrock, Cohere, Moonshot, Qwen, Zhipu, MiniMax, Copilot
    (
        400,
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        40000,
        32768,
    ),
    (
        400,
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        537812,
        131072,
    ),
    (400, "Input is too long for requested model.", None, None),
    (
        400,
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter "
        "prompt",
        5000,
        4081,
    ),
    (
        400,
        "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
        140000,
        131072,
    ),
    (400, "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]", None, 30720),
    (400, '{"error":{"code":"1261","message":"Prompt 超长"}}', None, None),
    (400, "invalid params, context window exceeds limit (2013)", None, None),
    (400, "prompt token count of 150000 exceeds the limit of 128000", 150000, 128000),
    # text-generation-inference, LM Studio
    (
        422,
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and "
        "500 `max_new_tokens`",
        4000,
        4096,
    ),
    (
        400,
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens, which is not enough.",
        5000,
        4096,
    ),
    # Other languages, other digits
    (400, "请求长度超出最大上下文长度：5120 tokens > 4096", 5120, 4096),
    (400, "Délka kontextu překročena: 5 120 > 4 096", 5120, 4096),
    (400, "Die maximale Kontextlänge von 4.096 Token wurde überschritten", None, 4096),
    (400, "La demande est trop grande : 5120 > 4096", 5120, 4096),
    (400, "ข้อความยาวเกินไป 5,120 > 4,096", 5120, 4096),
]

SOMETHING_ELSE = [
    (429, "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000."),
    (413, "Request too large for model on tokens per minute (TPM): Limit 6000, Requested 7000, reduce your message"),
    (400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens."),
    (400, "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for this model"),
    (400, "messages.1.content.0.image.source.base64: image exceeds 5 MB maximum: 5316852 bytes > 5242880 bytes"),
    (400, "Invalid value for 'temperature': 3 > 2"),
    (400, "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
    (400, "messages: text content blocks must be non-empty"),
    (
        400,
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
    ),
    (400, "array too long. Expected an array with maximum length 128, but got an array with length 300 instead."),
    (401, "Incorrect API key provided: the prompt is too long"),
    (500, "worker 5120 > 4096 restarted"),
    (503, "Overloaded"),
]


@pytest.mark.parametrize(("status", "text", "tokens", "window"), TOO_LONG)
def test_a_prompt_that_is_too_long_is_recognised_with_its_numbers(
    status: int, text: str, tokens: int | None, window: int | None
) -> None:
    assert read_overflow(status, text) == Overflow(tokens, window)


@pytest.mark.parametrize(("status", "text"), SOMETHING_ELSE)
def test_other_errors_are_not_taken_for_a_long_prompt(status: int, text: str) -> None:
    assert read_overflow(status, text) is None


def test_a_hostile_text_costs_no_time() -> None:
    started = time.process_time()
    for piece in ("1,111 ", "context length ", "> ", "limit 5 "):
        read_overflow(400, "context length " + piece * 100_000)
    assert time.process_time() - started < 2
