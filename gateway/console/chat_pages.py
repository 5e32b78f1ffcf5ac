"""The page of one chat, and the parts of it that are read anew while it is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from gateway.commands import COMMANDS
from gateway.console.charts import stacked_bar
from gateway.console.conversation import chat_items, is_compacting, since
from gateway.console.recalls import recalled_texts
from gateway.http.auth import may_post
from gateway.http.problems import not_found
from gateway.http.routes import Body, Call, Route
from gateway.search import NothingToSearch, excerpt
from memory.text import cut_query
from sessions.entries import SummaryEntry
from sessions.found import Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from gateway.console.conversation import Item
    from gateway.console.desk import Desk
    from sessions.entries import Entry
    from sessions.record import SessionRecord
    from sessions.session import Session

SHOWN = 40
HITS = 20
HIT_CHARACTERS = 300
Seq = Annotated[int, Field(ge=1, le=2**53)]


class ChatQuery(Body):
    """`session`: a former one, or one named in full; `before` and `at`: a part of it; `q`: words to find."""

    session: Annotated[str, Field(max_length=64)] = ""
    before: Seq | None = None
    at: Seq | None = None
    q: Annotated[str, Field(max_length=200)] = ""


class PartQuery(Body):
    before: Seq | None = None
    after: Annotated[int, Field(ge=0, le=2**53)] | None = None


class ChatPages:
    """The endpoints of a chat."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._parts = desk.parts

    def routes(self) -> list[Route]:
        page = self._desk.page
        return [
            page("GET", "/sessions/{key}", self.show, "One chat", query=ChatQuery),
            page("GET", "/sessions/{key}/entries", self.entries, "A part of a chat", query=PartQuery),
            page("GET", "/sessions/{key}/panel", self.panel, "What a chat stands at: queue, context, settings"),
        ]

    async def show(self, call: Call) -> web.StreamResponse:
        """The chat of a key, also of one in which nothing has been said yet."""
        query: ChatQuery = call.query
        former = self._visible(call)
        record = _chosen(former, query.session)
        if record is None:
            return self._desk.show("session.html", call, key=str(call.key), record=None, live=True, **_nothing())
        session = await self._parts.store.open(record.session)
        live = record is former[0] and query.before is None and query.at is None
        items, before = await self._items(call, session, query.before, query.at)
        return self._desk.show(
            "session.html",
            call,
            key=str(call.key),
            live=live,
            items=items,
            before=before,
            damaged=bool(session.problems),
            hits=await self._hits(call, query.q) if query.q.strip() else None,
            **self._standing(session, former, query),
        )

    def _standing(self, session: Session, former: Sequence[SessionRecord], query: ChatQuery | None) -> dict[str, Any]:
        """What is shown beside the conversation."""
        running, waiting = self._parts.turns.lane_state(session.id)
        record = session.record
        counted = self._parts.prompts.parts(session)
        texts = self._desk.pages.texts["session"]
        window = record.window
        return {
            "record": record,
            "q": "" if query is None else query.q,
            "former": [one for one in former if one.session != session.id],
            "current": former[0],
            "counted": counted,
            "bar": stacked_bar([(texts[f"part_{name}"], tokens) for name, tokens in counted], window, texts["context"]),
            "model": self._parts.models.choose(record.agent, record.settings.model),
            "models": self._parts.models.names(),
            "calls": list(reversed(self._parts.calls.recent(session))),
            "waiting": [turn for turn in waiting if turn not in running],
            "commands": COMMANDS,
        }

    def _visible(self, call: Call) -> list[SessionRecord]:
        """The sessions of the path's key in which something was said. Raises Problem for a chat of others."""
        key, found = call.key, self._parts.store.find(call.key)
        identities = self._parts.config.sessions.identities
        if not may_post(call.caller, key, found and found.owner, identities, exists=found is not None):
            raise not_found("session")
        return self._parts.store.sessions_of(key)

    async def entries(self, call: Call) -> web.StreamResponse:
        """The part of a chat before a message, or after one: what a page puts in while it is open.

        `X-Running` names the turns that have no reply yet, `X-Session` whose entries these are,
        `X-Compacting` is not empty while a summary is being written.
        """
        query: PartQuery = call.query
        record = next(iter(self._visible(call)), None)
        if record is None:
            return self._desk.show("items.html", call, key=str(call.key), record=None, items=[], before=None)
        session = await self._parts.store.open(record.session)
        if query.after is not None:
            new = since(session.entries, query.after)
            summarised = any(isinstance(e, SummaryEntry) for e in new)
            known = await self._everything(session) if summarised else session.entries
            items, before = await self._shown(call, new, session, known), None
        else:
            items, before = await self._items(call, session, query.before, None)
        answer = self._desk.show("items.html", call, key=str(call.key), record=record, items=items, before=before)
        running, waiting = self._parts.turns.lane_state(session.id)
        answer.headers["X-Running"] = " ".join(turn.id for turn in (*running, *waiting))
        answer.headers["X-Session"] = session.id
        answer.headers["X-Compacting"] = "1" if is_compacting(session.entries, self._parts.clock.now()) else ""
        return answer

    async def panel(self, call: Call) -> web.StreamResponse:
        former = self._visible(call)
        if not former:
            raise not_found("session")
        session = await self._parts.store.open(former[0].session)
        return self._desk.show(
            "pieces.html", call, key=str(call.key), live=True, **self._standing(session, former, None)
        )

    async def _items(
        self, call: Call, session: Session, before: int | None, at: int | None
    ) -> tuple[list[Item], int | None]:
        """(the last messages before a seq, or those around one; where older ones go on)."""
        entries = await self._everything(session)
        upto = entries if at is None else [e for e in entries if e.seq <= at + SHOWN // 2]
        older = [e for e in upto if before is None or e.seq < before]
        shown = older[-SHOWN:]
        items = await self._shown(call, shown, session, entries)
        return items, shown[0].seq if len(older) > len(shown) else None

    async def _everything(self, session: Session) -> Sequence[Entry]:
        """Also what former generations hold."""
        return await self._parts.store.everything(session) if session.record.generation > 1 else session.entries

    async def _shown(
        self, call: Call, entries: Sequence[Entry], session: Session, known: Sequence[Entry]
    ) -> list[Item]:
        recalled = await recalled_texts(self._parts, call.caller, session, entries)
        current = [e.seq for e in session.entries] if session.record.state == "active" else ()
        return chat_items(entries, session.open, known=known, current=current, recalled=recalled)

    async def _hits(self, call: Call, words: str) -> dict[str, Any]:
        """What is found in this chat, its former sessions and what was summarised away."""
        key = str(call.key)
        try:
            found = await self._parts.search.search(
                words, Scope(keys=(key,)), allowed=lambda record, _: record.key == key, limit=HITS + 1, around=0
            )
        except NothingToSearch as error:
            return {"rows": [], "problem": str(error), "complete": True, "most": None}
        terms = cut_query(words)
        rows = [
            {"said": hit.said, "text": excerpt(hit.said.text, terms, HIT_CHARACTERS), "record": hit.record}
            for hit in found.hits[:HITS]
        ]
        most = HITS if len(found.hits) > HITS else None
        return {"rows": rows, "problem": None, "complete": found.complete, "most": most}


def _chosen(former: Sequence[SessionRecord], wanted: str) -> SessionRecord | None:
    """The newest session, or the one that is asked for. Raises Problem when the key has none like that."""
    if not wanted:
        return next(iter(former), None)
    found = next((record for record in former if record.session == wanted), None)
    if found is None:
        raise not_found("session")
    return found


def _nothing() -> dict[str, Any]:
    return {"items": [], "before": None, "hits": None, "q": "", "waiting": [], "commands": COMMANDS, "former": []}
