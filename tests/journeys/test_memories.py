"""Memories over HTTP: a person's day with them, and who may see whose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.journeys.daemon import Client, config, running
from tests.memory.leftovers import files_with_text
from tests.memory.opened import person
from tests.patience import until_equal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOKENS: list[dict[str, Any]] = [
    {"name": "root", "token": "root", "role": "admin"},
    {"name": "ana", "token": "ana", "role": "user", "user": "ana"},
    {"name": "bob", "token": "bob", "role": "user", "user": "bob"},
    {"name": "bridge", "token": "bridge", "role": "frontend", "key_prefixes": ["agent:main:telegram"]},
]
SECRET = "zanzibar"

# the body of each route that names a memory, a topic or a project; None: it takes none
MEMORY_ROUTES: dict[tuple[str, str], dict[str, Any] | None] = {
    ("GET", "/v1/memories/{memory}"): None,
    ("PATCH", "/v1/memories/{memory}"): {"importance": 9},
    ("POST", "/v1/memories/{memory}/restore"): None,
    ("GET", "/v1/memories/{memory}/history"): None,
    ("POST", "/v1/memories/{memory}/undo"): {},
    ("DELETE", "/v1/memories/{memory}"): None,
    ("POST", "/v1/memories/{memory}/purge"): None,
    ("GET", "/v1/topics/{topic}"): None,
    ("PATCH", "/v1/topics/{topic}"): {"always_on": False},
    ("DELETE", "/v1/topics/{topic}"): None,
    ("GET", "/v1/projects/{project}"): None,
    ("GET", "/v1/memory-runs/{run}"): None,
    ("POST", "/v1/memory-runs/{run}/stop"): None,
    ("POST", "/v1/memory-runs/{run}/undo"): None,
}
MEMORY_LISTS: dict[tuple[str, str], dict[str, Any] | None] = {
    ("GET", "/v1/memories"): None,
    ("POST", "/v1/memories/search"): {"query": SECRET},
    ("GET", "/v1/memories/export"): None,
    ("GET", "/v1/topics"): None,
    ("GET", "/v1/projects"): None,
    ("GET", "/v1/memory-runs"): None,
    ("GET", "/v1/learning-runs"): None,
}
MEMORY_WRITERS: dict[tuple[str, str], dict[str, Any] | None] = {
    ("POST", "/v1/memories"): {"text": "mine"},
    ("POST", "/v1/memories/merge"): {"ids": ["a", "b"], "text": "c"},
    ("POST", "/v1/memories/import"): {"content": '{"type":"memory","text":"mine"}'},
    ("POST", "/v1/memories/import-file"): None,
    ("POST", "/v1/memories/empty-trash"): None,
    ("POST", "/v1/topics"): {"name": "mine", "description": "what is mine"},
    ("POST", "/v1/memory-runs"): {"kind": "recategorize"},
    ("POST", "/v1/topics/try"): {"description": "what is mine", "sentences": ["this is mine"]},
}
MEMORY_ADMIN = {
    ("POST", "/v1/projects"): {"id": "another"},
    ("PATCH", "/v1/projects/{project}"): {"name": "renamed"},
    ("DELETE", "/v1/projects/{project}"): None,
}
MEMORY_OWN = {(method, "/v1/memory-settings") for method in ("GET", "PUT", "PATCH")}  # see test_memory_settings
AGENT_FILES = {("GET", f"/v1/agents/{{agent}}/{path}") for path in ("files", "file")}  # see test_workspace_files
PROJECT_FILES = {("GET", f"/v1/projects/{{id}}/{path}") for path in ("files", "file")}  # see test_files_found
# of an agent: an administrator's; of a project: its members', as told apart below
DOCUMENTS: dict[tuple[str, str], dict[str, Any] | None] = {
    ("GET", "/v1/documents"): None,
    ("POST", "/v1/documents"): {"name": "bees.txt", "text": f"{SECRET} bees"},
    ("DELETE", "/v1/documents/{name}"): None,
}
ALL_MEMORY_ROUTES = {
    *AGENT_FILES,
    *PROJECT_FILES,
    *DOCUMENTS,
    *MEMORY_ROUTES,
    *MEMORY_LISTS,
    *MEMORY_WRITERS,
    *MEMORY_ADMIN,
    *MEMORY_OWN,
}


def addressed(path: str) -> str:
    """A row of the table as the route writes it."""
    for name in ("memory", "topic", "project", "run"):
        path = path.replace(f"{{{name}}}", "{id}")
    return path


@pytest.fixture
async def people(tmp_path: Path) -> AsyncIterator[Client]:
    async with running(tmp_path / "data", config(auth={"tokens": TOKENS})) as client:
        yield client


async def call(client: Client, who: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    client.token = who
    return await client.call(method, path, body)


async def add(client: Client, who: str, text: str, **more: Any) -> dict[str, Any]:
    status, content = await call(client, who, "POST", "/v1/memories", {"text": text, **more})
    assert status in (200, 201), content
    return content


async def found(client: Client, who: str, query: str, **more: Any) -> list[str]:
    status, content = await call(client, who, "POST", "/v1/memories/search", {"query": query, **more})
    assert status == 200, content
    return [memory["text"] for memory in content["memories"]]


async def test_a_fact_is_remembered_corrected_forgotten_and_brought_back(people: Client) -> None:
    first = await add(people, "ana", "Ana lives in Prague", topic="preferences", importance=7)
    assert (first["outcome"], first["topic"], first["pool"]) == ("added", "preferences", "user:ana")
    again = await add(people, "ana", "ana lives in  PRAGUE.")
    assert (again["outcome"], again["id"]) == ("unchanged", first["id"])
    near = await add(people, "ana", "Ana lives in Prague now", topic="preferences")
    assert [one["id"] for one in near["similar"]] == [first["id"]]
    await call(people, "ana", "DELETE", f"/v1/memories/{near['id']}")
    path = f"/v1/memories/{first['id']}"
    status, changed = await call(people, "ana", "PATCH", path, {"text": "Ana lives in Brno", "revision": 1})
    assert (status, changed["id"], changed["revision"]) == (200, first["id"], 2)
    assert await found(people, "ana", "lives Prague Brno") == ["Ana lives in Brno"]
    before = first["created_at"]
    assert await found(people, "ana", "lives Prague Brno", as_of=before) == ["Ana lives in Prague"]
    status, former = await call(people, "ana", "GET", f"/v1/memories/{changed['supersedes']}")
    assert (former["state"], former["text"], former["valid_to"]) == (
        "superseded",
        "Ana lives in Prague",
        changed["valid_from"],
    )
    assert (await call(people, "ana", "PATCH", path, {"importance": 2, "revision": 1}))[0] == 409
    status, undone = await call(people, "ana", "POST", f"{path}/undo")
    assert undone["memories"][0]["text"] == "Ana lives in Prague"
    assert (await call(people, "ana", "DELETE", path))[1]["state"] == "trashed"
    assert await found(people, "ana", "Prague") == []
    assert await found(people, "ana", "Prague", as_of=before) == []
    assert (await call(people, "ana", "POST", f"{path}/restore"))[1]["state"] == "active"
    assert await found(people, "ana", "Prague") == ["Ana lives in Prague"]
    _, history = await call(people, "ana", "GET", f"{path}/history")
    assert history["changes"][0]["action"] == "restored"
    assert {change["author"] for change in history["changes"]} == {"ana"}


async def test_what_is_deleted_for_good_is_in_no_file_and_no_import_brings_it_back(
    people: Client, tmp_path: Path
) -> None:
    fact = await add(people, "ana", f"the safe is in {SECRET}", topic="reference")
    path = f"/v1/memories/{fact['id']}"
    await call(people, "ana", "PATCH", path, {"text": f"the second safe is in {SECRET} too"})
    _, exported = await call(people, "ana", "GET", "/v1/memories/export")
    assert SECRET.encode() in exported
    assert (await call(people, "ana", "POST", f"{path}/purge"))[1] == {"purged": 1, "cleared": True}
    assert files_with_text(tmp_path / "data", SECRET) == []
    assert (await call(people, "ana", "GET", path))[0] == 404
    assert SECRET not in str(await call(people, "ana", "GET", f"{path}/history"))
    status, taken = await call(people, "ana", "POST", "/v1/memories/import", {"content": exported.decode()})
    assert (status, taken["forgotten"], taken["added"]) == (200, 1, 0)
    assert await found(people, "ana", SECRET) == []
    assert (await add(people, "ana", f"the second safe is in {SECRET} too"))["outcome"] == "added"


async def test_a_bounded_topic_holds_one_memory_after_five_corrections(people: Client) -> None:
    ids = {(await add(people, "ana", f"Ana is {age} years old", topic="profile"))["id"] for age in range(30, 36)}
    assert len(ids) == 1
    _, page = await call(people, "ana", "GET", "/v1/memories?topic=profile")
    assert [memory["text"] for memory in page["memories"]] == ["Ana is 35 years old"]
    _, former = await call(people, "ana", "GET", "/v1/memories?state=superseded&sort=created")
    assert len(former["memories"]) == 5


async def test_secrets_become_placeholders_and_the_caller_is_told(people: Client, tmp_path: Path) -> None:
    kept = await add(people, "ana", "The wifi password is Kn0edel-42, card 4111 1111 1111 1111")
    assert "Kn0edel" not in kept["text"]
    assert "4111" not in kept["text"]
    assert kept["redacted"] == ["password", "card number"]
    _, edited = await call(
        people, "ana", "PATCH", f"/v1/memories/{kept['id']}", {"text": "token: ghp_abcdefghijklmnopqrstuvwxyz0123"}
    )
    assert edited["redacted"] == ["token"]
    assert files_with_text(tmp_path / "data", "Kn0edel") == []


async def test_what_is_nothing_but_a_secret_is_refused_and_it_says_what_to_do(people: Client) -> None:
    for secret in ("ghp_abcdefghijklmnopqrstuvwxyz0123", "ghp_zyxwvutsrqponmlkjihgfedcba9876"):
        status, problem = await call(people, "ana", "POST", "/v1/memories", {"text": secret})
        assert status == 422
        assert "write what it is for, without it" in problem["detail"]
        assert secret not in str(problem)
    _, page = await call(people, "ana", "GET", "/v1/memories")
    assert page["memories"] == []


async def test_a_project_is_shared_by_its_members_and_its_topics_are_the_administrators(people: Client) -> None:
    await call(people, "root", "POST", "/v1/projects", {"id": "shop", "members": ["ana"]})
    fact = await add(people, "ana", "The shop opens in May", pool="project:shop", topic="decisions")
    assert await found(people, "ana", "shop opens") == ["The shop opens in May"]
    assert await found(people, "bob", "shop opens") == []
    assert (await call(people, "bob", "GET", f"/v1/memories/{fact['id']}"))[0] == 404
    await call(people, "root", "PATCH", "/v1/projects/shop", {"members": ["ana", "bob"]})
    assert await found(people, "bob", "shop opens") == ["The shop opens in May"]
    assert (await call(people, "bob", "PATCH", f"/v1/memories/{fact['id']}", {"text": "It opens in June"}))[0] == 200
    assert (await call(people, "bob", "PATCH", f"/v1/topics/{fact['topic_id']}", {"name": "mine"}))[0] == 404
    assert (await call(people, "root", "PATCH", f"/v1/topics/{fact['topic_id']}", {"name": "choices"}))[0] == 200
    await call(people, "root", "PATCH", "/v1/projects/shop", {"members": ["bob"]})
    assert (await call(people, "ana", "GET", f"/v1/memories/{fact['id']}"))[0] == 404
    assert await found(people, "ana", "opens") == []
    assert (await call(people, "root", "DELETE", "/v1/projects/shop"))[0] == 409


async def test_a_project_that_is_there_is_not_made_again_and_keeps_its_members(people: Client) -> None:
    await call(people, "root", "POST", "/v1/projects", {"id": "shop", "name": "Shop", "members": ["ana"]})
    for body in ({"id": "shop"}, {"id": "shop", "name": "Other", "members": ["bob"]}):
        status, told = await call(people, "root", "POST", "/v1/projects", body)
        assert (status, "sessiond projects members" in told["detail"]) == (409, True), told
    _, kept = await call(people, "root", "GET", "/v1/projects/shop")
    assert (kept["name"], kept["members"]) == ("Shop", ["ana"])


async def test_a_project_with_documents_is_not_deleted_and_topics_bound_to_a_deleted_one_are_recalled_nowhere(
    people: Client,
) -> None:
    await call(people, "root", "POST", "/v1/projects", {"id": "shop", "members": ["ana"]})
    document = {"name": "plan.txt", "text": "The confidential ocelot plan", "project": "shop"}
    status, kept = await call(people, "ana", "POST", "/v1/documents", document)
    assert status == 201, kept
    assert (await call(people, "root", "DELETE", "/v1/projects/shop"))[0] == 409
    assert (await call(people, "ana", "DELETE", f"/v1/documents/{kept['name']}?project=shop"))[0] == 200
    topic = {"name": "stock", "description": "What is in stock", "project": "shop"}
    status, made = await call(people, "ana", "POST", "/v1/topics", topic)
    assert status == 201, made
    assert (await call(people, "root", "DELETE", "/v1/projects/shop"))[0] == 200
    (left,) = [one for one in (await call(people, "ana", "GET", "/v1/topics"))[1]["topics"] if one["name"] == "stock"]
    assert left["project"] == "shop"


async def test_a_date_is_the_beginning_of_that_day_where_the_daemon_lives(tmp_path: Path) -> None:
    settings = config(auth={"tokens": TOKENS}, sessions={"reset": {"timezone": "Europe/Prague"}})
    async with running(tmp_path / "data", settings) as client:
        await add(client, "ana", "Ana lives in Brno", topic="profile", valid_from="2020-01-01")
        made = await add(client, "ana", "Ana lives in Prague", topic="profile", valid_from="2026-05-02")
        assert made["valid_from"].startswith("2026-05-01T22:00")
        for at, place in (("2026-05-01", "Brno"), ("2026-05-02", "Prague"), ("2026-05-01T21:59Z", "Brno")):
            assert await found(client, "ana", "lives", as_of=at) == [f"Ana lives in {place}"]
            status, page = await call(client, "ana", "GET", f"/v1/memories?as_of={at}")
            assert status == 200, page
            assert [one["text"] for one in page["memories"]] == [f"Ana lives in {place}"]
        digits = ("2027", "20270501", "1764684000", "-1", "1764684000.5")
        for wrong in ("2026-02-30", "tomorrow", "2026-05-01T12:00", 5, *digits):
            for path, body in (
                ("/v1/memories/search", {"query": "x", "as_of": wrong}),
                ("/v1/memories", {"text": "Ana lives in Rome", "topic": "profile", "valid_from": wrong}),
            ):
                status, told = await call(client, "ana", "POST", path, body)
                assert status == 422, (body, told)
                assert "nor a date" in str(told)
            assert (await call(client, "ana", "GET", f"/v1/memories?as_of={wrong}"))[0] == 422
        shown = await call(client, "ana", "GET", "/console/memory?as_of=2026-05-01&q=lives")
        assert b"Ana lives in Brno" in shown[1]
        assert b"Ana lives in Prague" not in shown[1]


async def test_what_will_only_be_true_is_recalled_when_it_is(tmp_path: Path) -> None:
    async with running(tmp_path / "data", config(auth={"tokens": TOKENS})) as client:
        await add(client, "ana", "The office is in Brno", topic="reference", valid_from="2999-01-01")
        assert await found(client, "ana", "office") == []
        await said(client, "ana", "Where is our office?")
        assert "recall" not in [entry["type"] for entry in await client.transcript(CHAT)]
        assert await found(client, "ana", "office", as_of="2999-01-01") == ["The office is in Brno"]


async def test_emptying_the_trash_means_the_own_where_no_pool_is_named(people: Client) -> None:
    await call(people, "root", "POST", "/v1/projects", {"id": "shop", "members": ["ana", "bob"]})
    own = await add(people, "ana", "Ana drinks tea")
    shared = await add(people, "bob", "The shop opens in May", pool="project:shop")
    for who, one in (("ana", own), ("bob", shared)):
        assert (await call(people, who, "DELETE", f"/v1/memories/{one['id']}"))[0] == 200
    assert (await call(people, "ana", "POST", "/v1/memories/empty-trash"))[1]["purged"] == 1
    assert (await call(people, "bob", "POST", f"/v1/memories/{shared['id']}/restore"))[0] == 200


async def _seeded(client: Client) -> dict[str, dict[str, str]]:
    """A memory, a topic, a project and a run of each owner."""
    ids: dict[str, dict[str, str]] = {}
    for who in ("ana", "bob"):
        fact = await add(client, who, f"{SECRET} of {who}", topic="preferences")
        project = f"{SECRET}-{who}"
        await call(client, "root", "POST", "/v1/projects", {"id": project, "members": [who]})
        await add(client, who, f"{SECRET} of the project of {who}", pool=f"project:{project}")
        run, _ = await client.daemon.parts.memory_jobs.start(person(who), "recategorize", automatic=True)
        ids[who] = {"memory": fact["id"], "topic": fact["topic_id"], "project": project, "run": run.id}
    return ids


def _filled(path: str, ids: dict[str, str]) -> str:
    for name, value in ids.items():
        path = path.replace(f"{{{name}}}", value)
    return path


@pytest.mark.parametrize("who", ["ana", "bob", "bridge"])
async def test_nobody_sees_or_changes_what_belongs_to_another(people: Client, who: str) -> None:
    ids = await _seeded(people)
    others = {"ana", "bob"} - {who}
    for (method, path), body in MEMORY_ROUTES.items():
        for other in others:
            status, content = await call(people, who, method, _filled(path, ids[other]), body)
            assert status in (404, 422), (method, path, content)
            assert f"{SECRET} of" not in str(content)
    for (method, path), body in {**MEMORY_LISTS, **MEMORY_WRITERS}.items():
        for other in others:
            for pool in (f"user:{other}", f"project:{ids[other]['project']}"):
                given = {**body, "pool": pool} if body is not None else None
                query = "" if method == "POST" and body is not None else f"?pool={pool}"
                status, content = await call(people, who, method, f"{path}{query}", given)
                shown = content.decode() if isinstance(content, bytes) else str(content)
                if who != "bridge" or pool.startswith("project:"):
                    assert f"{SECRET} of {other}" not in shown, (method, path, pool)
                    assert f"of the project of {other}" not in shown, (method, path, pool)
    for (method, path), body in MEMORY_ADMIN.items():
        assert (await call(people, who, method, _filled(path, ids["bob"]), body))[0] == 404
    for owner in ("ana", "bob"):
        assert sorted(await found(people, owner, SECRET)) == [
            f"{SECRET} of {owner}",
            f"{SECRET} of the project of {owner}",
        ]


async def test_a_pool_of_others_is_answered_as_one_that_is_not_there(people: Client) -> None:
    await call(people, "root", "POST", "/v1/projects", {"id": "shop", "members": ["bob"]})
    for (method, path), body in {**MEMORY_LISTS, **MEMORY_WRITERS}.items():
        if path in ("/v1/projects", "/v1/learning-runs", "/v1/memories/merge", "/v1/topics/try"):
            continue  # they take no pool
        told = set[str]()
        for pool in ("project:shop", "project:nobodys", "user:bob"):
            given = None if body is None else {**body, "pool": pool}
            query = "" if body is not None else f"?pool={pool}"
            status, content = await call(people, "ana", method, f"{path}{query}", given)
            assert status == 404, (method, path, pool, content)
            told.add(content["detail"].replace(pool, "POOL"))
        assert told == {"There is no pool POOL here, or you may not see it."}, (method, path)


async def test_a_person_reads_everything_of_their_own(people: Client) -> None:
    ids = await _seeded(people)
    for (method, path), body in {**MEMORY_ROUTES, **MEMORY_LISTS}.items():
        if method == "GET":
            assert (await call(people, "ana", method, _filled(path, ids["ana"]), body))[0] == 200, path
    assert (await call(people, "ana", "GET", "/v1/memories?user=bob"))[0] == 404
    status, _ = await call(people, "bridge", "GET", "/v1/memories?user=bob")
    assert status == 200


async def test_without_the_records_replies_go_on_and_it_is_shown(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "state.db").mkdir()
    async with running(tmp_path / "data", config()) as client:
        await client.say("hello")

        async def state() -> str:
            return (await client.get("/readyz"))["parts"]["memory"]["state"]

        await until_equal(state, "degraded")
        status, content = await client.call("GET", "/v1/memories")
        assert (status, content["title"]) == (503, "Not available")


CHAT = "agent:main:web:direct:ana"


async def said(client: Client, who: str, text: str, key: str = CHAT, **more: Any) -> str:
    client.token = who
    return (await client.say(text, key, **more))["text"]


async def test_what_is_typed_about_memory_is_done_for_the_person_who_types_it(people: Client) -> None:
    told = (await said(people, "ana", "/remember I drink tea")).splitlines()
    assert told[0] == "Remembered: I drink tea"
    assert "no topic" in told[1]
    assert await said(people, "ana", "/remember I have a dog") == "Remembered: I have a dog"
    assert await said(people, "ana", "/remember i drink TEA.") == "I know that already: I drink tea"
    assert "I drink tea" in await said(people, "ana", "/memory")
    assert await said(people, "bob", "/memory", "agent:main:web:direct:bob") == "Nothing is remembered yet."
    assert "placeholder" in await said(people, "ana", "/remember my password is Kn0edel-42")
    assert await said(people, "ana", "/forget coffee") == "Nothing I remember fits 'coffee'."
    assert (await said(people, "ana", "/forget tea")).startswith("Forgotten: I drink tea")
    assert await found(people, "ana", "tea") == []


async def test_only_what_holds_every_telling_word_is_forgotten_without_being_asked(people: Client) -> None:
    fact = await add(people, "ana", "Grandma is allergic to penicillin")
    await add(people, "ana", "Jana má alergii a astma")
    for words in ("the appointment with grandma on Friday", "a", "is the", "A."):
        told = await said(people, "ana", f"/forget {words}")
        assert "Forgotten" not in told, (words, told)
    told = await said(people, "ana", "/forget the appointment with grandma on Friday")
    assert "/forget <id>" in told
    assert fact["id"] in told
    assert len(await found(people, "ana", "grandma penicillin")) == 1
    await add(people, "ana", "Grandma takes penicillin instead of aspirin")
    assert "Which of these" in await said(people, "ana", "/forget grandma's penicillin")
    assert (await said(people, "ana", "/forget the allergic grandma")).startswith("Forgotten: Grandma is allergic")


GROUP = "agent:main:telegram:group:g"
LINKED = {"identities": {"ana": ["telegram:1"]}}


async def test_in_a_group_only_a_linked_sender_has_a_memory(tmp_path: Path) -> None:
    settings = config(auth={"tokens": TOKENS}, sessions=LINKED)
    async with running(tmp_path / "data", settings) as client:
        plums = await add(client, "ana", "Ana likes plums")
        assert plums["id"] in await said(client, "bridge", "/memory", GROUP, sender="1")
        for sender in ("2", "ana", None):
            assert "do not know whose" in await said(client, "bridge", "/memory", GROUP, sender=sender)
        direct = "agent:main:telegram:direct:"
        assert "plums" in await said(client, "bridge", "/memory plums", f"{direct}ana", sender="1")
        assert "Nothing" in await said(client, "bridge", "/memory plums", f"{direct}2", sender="2")
        assert "do not know whose" in await said(client, "bridge", "/memory", f"{direct}ana", sender="2")
        await said(client, "bridge", "/remember I am two", f"{direct}2", sender="2")
        assert "I am two" in await said(client, "bridge", "/memory", f"{direct}2", sender="2")
        assert "Nothing" in await said(client, "root", "/memory", "agent:main:slack:direct:2")


@pytest.mark.parametrize("key", [GROUP, "agent:main:telegram:channel:g"])
async def test_what_is_typed_about_memory_in_a_group_is_answered_without_the_words_others_would_read(
    tmp_path: Path, key: str
) -> None:
    async with running(tmp_path / "data", config(auth={"tokens": TOKENS}, sessions=LINKED)) as client:
        facts = [await add(client, "ana", f"Ana secretly likes {fruit} best") for fruit in ("plums", "pears")]

        async def typed(text: str) -> str:
            return await said(client, "bridge", text, key, sender="1")

        for told in (await typed("/memory"), await typed("/memory likes best"), await typed("/forget likes")):
            assert all(fact["id"] in told for fact in facts)
            assert "private chat" in told
        assert (await typed("/memory")).startswith("Memories: 2")
        assert (await typed("/forget plums")).startswith(f"Forgotten: {facts[0]['id']}")
        assert (await typed(f"/forget {facts[1]['id']}")).startswith(f"Forgotten: {facts[1]['id']}")
        for fact in facts:
            await call(client, "ana", "POST", f"/v1/memories/{fact['id']}/restore")
        assert (await typed("/remember Ana likes plums best")).startswith("Remembered: Ana likes plums best")
        client.token = "bridge"
        assert "secretly" not in str(await client.transcript(key))


async def test_a_secret_in_a_command_about_memory_is_in_no_transcript_event_log_or_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path / "data", config(auth={"tokens": TOKENS})) as client:
        for name in ("remember", "forget", "memory"):
            told = await said(client, "ana", f"/{name} my password is Kn0edel-42")
            assert "Kn0edel" not in told
        entries = await client.transcript(CHAT)
        assert [one["argument"] for one in entries] == ["my password is [password removed]"] * 3
        assert "Kn0edel" not in str(await client.events("GET", f"/v1/turns/{entries[0]['turn']}/events"))
    assert files_with_text(tmp_path, "Kn0edel") == []
    assert "Kn0edel" not in "".join(capfd.readouterr())


async def test_where_secrets_are_allowed_they_are_found_and_forgotten_by_their_words(tmp_path: Path) -> None:
    async with running(tmp_path / "data", config(auth={"tokens": TOKENS}, memory={"allow_secrets": True})) as client:
        assert "Kn0edel-42" in await said(client, "ana", "/remember my password is Kn0edel-42")
        assert (await said(client, "ana", "/forget Kn0edel-42")).startswith("Forgotten: my password is Kn0edel-42")


@pytest.mark.parametrize(("who", "project", "agent"), [("root", 1, 1), ("ana", 1, 0), ("bob", 0, 0), ("bridge", 0, 0)])
async def test_documents_are_kept_by_members_of_a_project_and_by_administrators(
    people: Client, who: str, project: bool, agent: bool
) -> None:
    await call(people, "root", "POST", "/v1/projects", {"id": "shop", "members": ["ana"]})
    user = "?user=bob" if who == "bridge" else ""
    for owner, may in (({"project": "shop"}, project), ({"agent": "main"}, agent)):
        (word, name), *_ = owner.items()
        whose = f"{user}{'&' if user else '?'}{word}={name}"
        body = {**(DOCUMENTS["POST", "/v1/documents"] or {}), **owner}
        status, kept = await call(people, who, "POST", f"/v1/documents{user}", body)
        assert status == (201 if may else 404)
        status, listed = await call(people, who, "GET", f"/v1/documents{whose}")
        assert status == (200 if may else 404)
        if may:
            assert [one["name"] for one in listed["documents"]] == [kept["name"]] == ["bees.txt.md"]
        status, left = await call(people, who, "DELETE", f"/v1/documents/bees.txt.md{whose}")
        assert status == (200 if may else 404)
        assert not may or left == {"documents": []}


async def test_a_document_that_is_none_is_refused_with_the_reason(people: Client) -> None:
    for body, status in (
        ({"name": "a.txt", "text": "x"}, 422),
        ({"name": "a.txt", "text": "", "agent": "main"}, 422),
        ({"name": "a.md", "text": " \n\t\u00a0", "agent": "main"}, 422),
        ({"name": "a.html", "text": "<p> </p><script>x</script>", "agent": "main"}, 422),
        ({"name": "a.txt", "text": "x", "agent": "main", "project": "shop"}, 422),
        ({"name": "a.txt", "agent": "main"}, 422),
        ({"name": "a.txt", "base64": "?", "agent": "main"}, 422),
        ({"name": "a.exe", "text": "x", "agent": "main"}, 422),
        ({"name": "a.pdf", "text": "x", "agent": "main"}, 422),
        ({"name": "a.json", "text": "{}", "agent": "main"}, 422),
        ({"name": "../../a.txt", "text": "x", "agent": "main"}, 422),
        ({"name": f"{'ก' * 90}.txt", "text": "x", "agent": "main"}, 422),
        ({"name": "a.txt", "text": "x" * 5_000_001, "agent": "main"}, 422),
        ({"name": "a.txt", "text": "x", "agent": "mian"}, 404),
        ({"name": "a.txt", "text": "x", "project": "nowhere"}, 404),
        ({"name": "a.txt", "text": "x", "agent": "main"}, 201),
    ):
        answered, content = await call(people, "root", "POST", "/v1/documents", body)
        assert answered == status, (body, content)
        assert status != 404 or "There are" in content["detail"]
    assert content["name"] == "a.txt.md"
    folder = people.daemon.parts.data_dir / "workspaces" / "main" / "memory" / "documents"
    assert [file.name for file in folder.iterdir()] == ["a.txt.md"]
    assert (await call(people, "root", "DELETE", "/v1/documents/..%2F..%2FMEMORY.md?agent=main"))[0] == 404


async def test_without_a_helper_model_a_person_is_told_once_that_what_has_no_topic_is_not_recalled(
    people: Client,
) -> None:
    notes = [(await add(people, "ana", f"Ana has {n} plums"))["note"] for n in range(3)]
    assert "not recalled by itself" in notes[0]
    assert notes[1:] == [None, None]
    assert (await add(people, "ana", "Ana likes plums", topic="preferences"))["note"] is None
    assert "roles.helper" in (await add(people, "bob", "Bob has plums"))["note"]
