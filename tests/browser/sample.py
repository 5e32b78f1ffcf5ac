"""A daemon with something on every page, for screenshots and for tests that look at all of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.journeys.daemon import model_settings
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.journeys.daemon import Client

KEY = "agent:main:console:direct:me"
HOOK_SECRET = "whsec_c2FtcGxlLXNhbXBsZS1zYW1wbGUtc2FtcGxlLXNhbXBsZQ=="
TALK = (
    "Where is the best place to buy bread in Brno on a Sunday?",
    "I moved to Brno last week and I am allergic to nuts. Remember that for any recipe you give me.",
    "Write me a list:\n\n- flour\n- water\n- salt\n\nand tell me what is missing for `sourdough`.",
    "The code word for the bakery is halibut seventeen. What else should I know before I go?",
)
REPLIES = {
    TALK[0]: "The market hall has one baker who opens on Sundays, from **7 to 11**. Go early: the rye is gone by nine.",
    TALK[1]: "Noted: no nuts in any recipe. Welcome to Brno!",
    TALK[2]: "Missing for sourdough:\n\n1. a starter, 100 g\n2. a second night of rest\n\nKeep the oven at 230 °C.",
    TALK[3]: "Bring your own bag, and cash. I have written down the code word.",
    "And now, on a Monday? Where does Ana buy rye bread?": "Both bakers are open then. Rye is at the market hall.",
}


def reply_to(body: dict[str, Any]) -> str:
    """What the stand-in says: the reply that belongs to the newest message it knows."""
    said = [message["content"] for message in body["messages"] if message["role"] == "user"]
    texts = [text if isinstance(text, str) else " ".join(part.get("text", "") for part in text) for text in said]
    return next((REPLIES[text] for text in reversed(texts[-2:]) if text in REPLIES), "Of course. " + "It is done. " * 8)


FACTS = (
    ("Ana lives in Brno, in the street behind the market hall.", "profile", 7),
    ("Ana prefers rye bread, and dislikes caraway.", "preferences", 5),
    ("Ana decided to bake at home on Sundays, because the bakery is closed then.", "decisions", 6),
    ("The kiln of the pottery class holds 1,200 degrees.", "reference", 3),
    ("The book about sourdough is due at the library on 3 March.", "reference", 4),
    ("Ana works on a catalogue of Czech mills with two colleagues.", "projects", 8),
    ("Ana wants answers in short sentences, without emoji.", "preferences", 9),
    ("The oven at home is ten degrees too hot.", "reference", 5),
)


def sample_models(base_url: str) -> dict[str, Any]:
    """`models` and `roles`: the stand-in talks; vectors and summaries need no model."""
    models = model_settings(base_url, window=8_000)
    models["roles"] |= {"embedding": "offline", "summary": "offline"}
    return models


def sample_settings() -> dict[str, Any]:
    """Settings a sample needs beside a model."""
    return {
        "hooks": [
            {
                "name": "deploys",
                "secret": HOOK_SECRET,
                "template": "{{ body.service }} was deployed: {{ body.text }}",
                "instruction": "Say in one sentence what changed.",
            }
        ],
        "jobs": {"scheduled": [{"name": "evening-note", "schedule": "0 18 * * *", "message": "How was the day?"}]},
        "deliver": {"give_up_hours": 0.0000001, "allow": ["127.0.0.1:9"]},
    }


async def fill(client: Client) -> None:
    """Chats, memories, topics, jobs and a delivery that died."""
    for text, topic, importance in FACTS:
        status, content = await client.call(
            "POST", "/v1/memories", {"text": text, "topic": topic, "importance": importance, "pool": "user:me"}
        )
        assert status in (200, 201), content
    for text in (*TALK, "call:current_time {}"):
        await client.say(text, key=KEY)
    for number in range(5):
        await client.say(f"Tell me about mill number {number}. " + "It stands by the river. " * 20, key=KEY)
    status, content = await client.call("POST", f"/v1/sessions/{KEY}/compact", {})
    assert status == 200, content
    await client.say("/status", key=KEY)
    await client.say("And now, on a Monday? Where does Ana buy rye bread?", key=KEY)
    for number in range(6):
        text = "Good morning. What is on today? " + "And tomorrow? " * 60 * number
        await client.say(text, key=f"agent:main:web:direct:person-{number}")
    await client.call("POST", "/v1/projects", {"id": "mills", "name": "Catalogue of mills", "members": ["me"]})
    await _jobs(client)


async def _jobs(client: Client) -> None:
    for job in (
        {
            "name": "morning-news",
            "schedule": "30 7 * * 1-5",
            "timezone": "Europe/Prague",
            "message": "Sum up the news.",
        },
        {
            "name": "every-hour",
            "every": "1h",
            "message": "Look at the mail.",
            "deliver": {"url": "http://127.0.0.1:9/in"},
        },
    ):
        status, content = await client.call("POST", "/v1/jobs", job)
        assert status == 201, content
    for name in ("morning-news", "every-hour"):
        await client.call("POST", f"/v1/jobs/{name}/run")
    async with asyncio.timeout(PATIENCE_S):
        while not (await client.get("/v1/deliveries?status=dead"))["deliveries"]:
            await asyncio.sleep(0.05)
