"""What people type about memory: /remember, /forget, /memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.viewers import viewer_of_chat
from memory.errors import MemoryProblem, NotThere
from memory.records import Draft, ListQuery, Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.agents import AgentPolicy
    from gateway.commands import Command
    from gateway.memories import MemoryPart
    from memory.memory import Memories
    from memory.records import Memory, Viewer
    from sessions.keys import SessionKey

SHOWN = 10
CHOICES = 5


async def answer_memory_command(
    command: Command, key: SessionKey, user: str | None, part: MemoryPart, agents: Mapping[str, AgentPolicy]
) -> str:
    """The text the person gets; refusals are words too."""
    viewer = viewer_of_chat(key, user, agents, origin="person")
    if viewer.user is None:
        return "I do not know whose memory this would be. Ask the administrator to list you under sessions.identities."
    try:
        memories = await part.open()
        match command.name:
            case "remember":
                return await _remember(memories, viewer, command.argument)
            case "forget":
                return await _forget(memories, viewer, command.argument)
            case _:
                return await _show(memories, viewer, command.argument)
    except MemoryProblem as error:
        return str(error)


async def _remember(memories: Memories, viewer: Viewer, text: str) -> str:
    if not text:
        return "Say what to remember: /remember <fact>."
    written = await memories.add(viewer, Draft(text=text, source=Source(origin="person")))
    words = {"added": "Remembered", "updated": "Updated", "unchanged": "I know that already"}[written.outcome]
    lines = [f"{words}: {written.memory.text}"]
    if written.redacted:
        lines.append(f"Secrets are not kept: {', '.join(written.redacted)} replaced by a placeholder.")
    if (note := await memories.unsorted_note(written.memory)) is not None:
        lines.append(note)
    if written.similar:
        lines += ["It is much like:", *_lines(written.similar), "Say /forget <id> for what is no longer true."]
    return "\n".join(lines)


async def _forget(memories: Memories, viewer: Viewer, words: str) -> str:
    if not words:
        return "Say what to forget: /forget <words of the memory, or its id>."
    try:
        gone = await memories.delete(viewer, words)
    except NotThere:
        found = await memories.search(viewer, words, mode="keyword", limit=CHOICES)
        hits = list(found.hits)
        if not hits:
            return f"Nothing I remember fits {words!r}."
        if len(hits) > 1:
            return "\n".join(["Which of these? Say /forget <id>:", *_lines([hit.memory for hit in hits])])
        gone = await memories.delete(viewer, hits[0].memory.id)
    return f"Forgotten: {gone.text}\nIt is in the trash; `sessiond memory restore {gone.id}` brings it back."


async def _show(memories: Memories, viewer: Viewer, words: str) -> str:
    if words:
        hits = (await memories.search(viewer, words, limit=SHOWN)).hits
        found, more = [hit.memory for hit in hits], None
    else:
        found, more = await memories.page(viewer, query=ListQuery(limit=SHOWN))
    if not found:
        return "Nothing is remembered yet." if not words else f"Nothing I remember fits {words!r}."
    return "\n".join([*_lines(found), *(["There is more; say /memory <words>."] if more else [])])


def _lines(found: Sequence[Memory]) -> list[str]:
    return [f"- {memory.text} ({memory.id})" for memory in found]
