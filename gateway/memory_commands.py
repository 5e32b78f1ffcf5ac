"""What people type about memory: /remember, /forget, /memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gateway import shared_chats
from gateway.commands import Command
from gateway.viewers import viewer_of_chat
from memory.errors import MemoryProblem, NotThere
from memory.records import Draft, ListQuery, Source
from memory.redact import redact
from memory.search import holds_all
from memory.text import STOP_WORDS, cut_query, fold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.agents import AgentPolicy
    from gateway.memories import MemoryPart
    from memory.memory import Memories
    from memory.records import Memory, Viewer
    from sessions.keys import SessionKey

NAMES = frozenset({"remember", "forget", "memory"})
SHOWN = 10
CHOICES = 5
LOOKED_AT = 50
"""So many hits are looked at for those that hold every word: a second one may be far behind the first."""
WHERE = "Others read here, so I do not say what they are: ask in a private chat, or look in the console."


def without_secrets(command: Command) -> Command:
    """A command about memory as it may be written down: what the secret filter takes out of memories is not in it."""
    return Command(command.name, redact(command.argument).text) if command.name in NAMES else command


async def answer_memory_command(
    command: Command, key: SessionKey, user: str | None, part: MemoryPart, agents: Mapping[str, AgentPolicy]
) -> str:
    """The text the person gets; refusals are words too. Where others read it names memories by their ids."""
    viewer = viewer_of_chat(key, user, agents, origin="person")
    if viewer.user is None:
        return "I do not know whose memory this would be. Ask the administrator to list you under sessions.identities."
    shared = key.type in shared_chats.TYPES
    try:
        memories = await part.open()
        match command.name:
            case "remember":
                return await _remember(memories, viewer, command.argument, shared)
            case "forget":
                return await _forget(memories, viewer, command.argument, shared)
            case _:
                return await _show(memories, viewer, command.argument, shared)
    except MemoryProblem as error:
        return str(error)


async def _remember(memories: Memories, viewer: Viewer, text: str, shared: bool) -> str:
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
        lines += ["It is much like:", *_lines(written.similar, shared), "Say /forget <id> for what is no longer true."]
    return "\n".join(lines)


async def _forget(memories: Memories, viewer: Viewer, words: str, shared: bool) -> str:
    if not words:
        return "Say what to forget: /forget <words of the memory, or its id>."
    try:
        gone = await memories.delete(viewer, words)
    except NotThere:
        result = await memories.search(viewer, words, mode="keyword", limit=LOOKED_AT)
        found = [hit.memory for hit in result.hits]
        if not found:
            return f"Nothing I remember fits {words!r}."
        meant = _meant(words, found)
        if len(meant) != 1:
            question = "Which of these? Say /forget <id>:" if len(found) > 1 else "Is it this? Say /forget <id>:"
            return "\n".join([question, *_lines((meant or found)[:CHOICES], shared)])
        gone = await memories.delete(viewer, meant[0].id)
    name = gone.id if shared else gone.text
    return f"Forgotten: {name}\nIt is in the trash; `sessiond memory restore {gone.id}` brings it back."


def _meant(words: str, found: Sequence[Memory]) -> list[Memory]:
    """Those that hold every telling word; none where no word tells anything, as a letter alone."""
    if not any(len(word) > 1 and word not in STOP_WORDS for word in re.findall(r"[^\W_]+", fold(words))):
        return []
    terms = frozenset(cut_query(words))
    return [memory for memory in found if holds_all(terms, memory.text)]


async def _show(memories: Memories, viewer: Viewer, words: str, shared: bool) -> str:
    if words:
        hits = (await memories.search(viewer, words, limit=SHOWN)).hits
        found, more = [hit.memory for hit in hits], None
    else:
        found, more = await memories.page(viewer, query=ListQuery(limit=SHOWN))
    if not found:
        return "Nothing is remembered yet." if not words else f"Nothing I remember fits {words!r}."
    if shared:
        count = len(found) if words else await memories.store.count(viewer)
        return "\n".join([f"Memories: {count}{', the newest' if more else ''}", *_lines(found, shared)])
    return "\n".join([*_lines(found, shared), *(["There is more; say /memory <words>."] if more else [])])


def _lines(found: Sequence[Memory], shared: bool) -> list[str]:
    """In a chat of many without words: they would stay in everybody's transcript."""
    if shared:
        return [*(f"- {memory.id}" for memory in found), WHERE]
    return [f"- {memory.text} ({memory.id})" for memory in found]
