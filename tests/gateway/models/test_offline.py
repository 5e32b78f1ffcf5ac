from __future__ import annotations

import pytest

from compaction.layout import ToolSpec, build_prompt
from gateway.models.base import ModelRequest, complete
from gateway.models.offline import OfflineModel
from sessions.context import AssistantMessage, UserMessage

TIME = ToolSpec(name="current_time", description="")


async def answer(*texts: str, tools: tuple[ToolSpec, ...] = (), **parts: str) -> str:
    messages = [UserMessage(text=text) for text in texts]
    prompt = build_prompt(system="", messages=messages, tools=tools, **parts)  # type: ignore[arg-type]
    finished = await complete(OfflineModel(), ModelRequest(prompt=prompt))
    return finished.text or f"calls {finished.calls[0].name}"


async def test_hello_gets_an_answer_that_says_who_answers_and_what_to_do() -> None:
    text = await answer("hello")
    assert "hello" in text
    assert "offline model" in text
    assert "sessiond setup" in text


@pytest.mark.parametrize(
    ("said", "asked", "found"),
    [
        ("My cat is called Amálka. I like tea.", "What is my cat called?", "My cat is called Amálka."),
        ("Schůzka je ve čtvrtek. Koupit mléko.", "kdy je SCHUZKA?", "Schůzka je ve čtvrtek."),
        ("我的猫叫小白。今天下雨。", "我的猫叫什么？", "我的猫叫小白。"),
        ("แมวของฉันชื่อมะลิ", "แมวชื่ออะไร", "แมวของฉันชื่อมะลิ"),
        ("The order number is 48213. The weather was fine.", "which order number?", "The order number is 48213."),
    ],
)
async def test_it_quotes_what_was_said(said: str, asked: str, found: str) -> None:
    assert f"“{found}”" in await answer(said, "Thanks.", asked)


async def test_memories_and_summary_are_searched_too() -> None:
    assert "“Her birthday is in May.”" in await answer("when is her birthday?", trailing="Her birthday is in May.")
    assert "“Her birthday is in May.”" in await answer("when is her birthday?", summary="Her birthday is in May.")


async def test_rare_words_decide_and_the_question_itself_is_no_answer() -> None:
    text = await answer(
        "The dog is old. The cat is young. The bird is young.", "Is the dog old?", "How old is the dog?"
    )
    assert "The dog is old." in text
    assert "cat" not in text
    assert "Is the dog old" not in text


@pytest.mark.parametrize(
    "asked", ["What time is it?", "what's today's date", "Kolik je hodin?", "ตอนนี้กี่โมง", "现在几点"]
)
async def test_the_time_is_looked_up(asked: str) -> None:
    assert await answer(asked, tools=(TIME,)) == "calls current_time"


@pytest.mark.parametrize("asked", ["hello", "I had a great time today", "that was a long day", "call:current_time {}"])
async def test_nothing_else_calls_a_tool(asked: str) -> None:
    assert "offline model" in await answer(asked, tools=(TIME,))


async def test_an_empty_conversation_is_no_crash() -> None:
    assert await answer()
    prompt = build_prompt(system="", messages=[AssistantMessage(text="hi")])
    assert (await complete(OfflineModel(), ModelRequest(prompt=prompt))).text
