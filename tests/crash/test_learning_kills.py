"""A daemon that is killed while it learns: every fact is there once, and what was learnt before is not learnt again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from gateway.config import dump_yaml
from tests.bench.standin import StandIn
from tests.crash.kills import Victim
from tests.crash.test_jobs import ask
from tests.journeys.daemon import KEY, model_settings
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

THINGS = "tulips violins canoes lanterns marbles kettles".split()
"""As many as may be learnt at once: no kill may leave time for a run."""
DELAYS_S = {1: 0.0, 2: 0.03, 3: 0.1, 5: 0.5}
"""By message, after the helper was asked: from before its answer is written to after it."""


def answers(body: dict[str, Any]) -> str:
    """The helper takes each thing that is collected; the chat says OK."""
    if body["model"] != "helper-model":
        return "OK."
    question = json.loads(body["messages"][1]["content"])
    told = [one for one in question["conversation"] if one["text"].startswith("I collect")]
    changes = [{"op": "add", "text": f"Ana: {one['text']}", "topic": "preferences", "from": [one["n"]]} for one in told]
    return json.dumps({"changes": changes})


async def memories(victim: Victim) -> list[dict[str, Any]]:
    return (await ask(victim, "GET", "/v1/memories?user=ana"))["memories"]


async def test_killed_while_it_learns(tmp_path: Path, unused_tcp_port: int) -> None:
    async with StandIn() as model:
        asked = asyncio.Event()

        def says(body: dict[str, Any]) -> str:
            if body["model"] == "helper-model":
                asked.set()
            return answers(body)

        model.says = says
        settings = model_settings(model.base_url)
        settings["models"]["helper"] = {**settings["models"]["chat"], "model": "helper-model"}
        settings["roles"]["helper"] = "helper"
        settings |= {"sessions": {"identities": {"ana": ["web:ana"]}}}
        settings |= {"memory": {"learn": {"after_reply": True, "max_changes": 6}}}
        config = tmp_path / "sessiond.yaml"
        config.write_text(dump_yaml(settings), "utf-8")
        victim = Victim(tmp_path / "data", config, unused_tcp_port)
        await victim.start()
        for number, thing in enumerate(THINGS):
            asked.clear()
            said = {"text": f"I collect {thing} with pleasure"}
            await ask(victim, "POST", f"/v1/sessions/{KEY}/messages", json=said)
            if number in DELAYS_S:
                async with asyncio.timeout(PATIENCE_S):
                    await asked.wait()
                await asyncio.sleep(DELAYS_S[number])
                await victim.kill()
                await victim.start()
        async with asyncio.timeout(PATIENCE_S):
            while len(await memories(victim)) < len(THINGS):
                await asyncio.sleep(0.1)
        await victim.kill()
        await victim.start()
        await asyncio.sleep(1)
        found = await memories(victim)
        assert sorted(one["text"] for one in found) == sorted(
            f"Ana: I collect {thing} with pleasure" for thing in THINGS
        )
        runs = (await ask(victim, "GET", "/v1/learning-runs?user=ana"))["runs"]
        created = [memory for run in runs for memory in run["created"]]
        assert sorted(created) == sorted(one["id"] for one in found)
        for one in found:
            history = await ask(victim, "GET", f"/v1/memories/{one['id']}/history?user=ana")
            assert [change["action"] for change in history["changes"]] == ["added"]
        await victim.kill()
