"""Jobs, webhooks and deliveries of a whole daemon, with receivers on this machine."""

from __future__ import annotations

import asyncio
import base64
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from aiohttp import web

from gateway.clock import ManualClock, SystemClock
from gateway.config import load
from gateway.jobs.runs import RESTS_S
from gateway.jobs.signatures import sign_github, sign_standard, verify
from tests.bench.standin import StandIn
from tests.journeys.daemon import Client, config, model_settings, running
from tests.patience import PATIENCE_S, until, until_equal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

SECRET = "whsec_" + base64.b64encode(b"a secret of this test").decode()
LATER = timedelta(hours=1)
BUILD = {"name": "build", "secret": SECRET, "template": "Build {{ body.id }} failed"}


class Receiver:
    """Takes deliveries, or is down."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.tries = 0
        self.status = 200
        self.location: str | None = None
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.tries += 1
        body = await request.read()
        if self.status < 300:
            verify("standard", SECRET, request.headers, body, now_s=datetime.now(UTC).timestamp())
            self.got.append((request.headers["webhook-id"], orjson.loads(body)))
        headers = {"Location": self.location} if self.location else {}
        return web.Response(status=self.status, headers=headers)


class Later(SystemClock):
    """Real time, and an hour later once the jobs are known: however long the start takes, none is late."""

    shift = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.shift

    async def comes(self, client: Client) -> None:
        await client.get("/v1/jobs")
        self.shift = LATER
        client.daemon.parts.scheduler.wake()


@asynccontextmanager
async def receiving(port: int = 0) -> AsyncGenerator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        yield receiver
    finally:
        await runner.cleanup()


def signed(body: bytes, message_id: str = "msg_1", *, at: int | None = None) -> dict[str, str]:
    moment = int(datetime.now(UTC).timestamp()) if at is None else at
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(moment),
        "webhook-signature": sign_standard(SECRET, message_id, moment, body),
    }


async def call(client: Client, body: Any, *, name: str = "build", message_id: str = "msg_1") -> tuple[int, Any]:
    payload = orjson.dumps(body)
    return await client.call("POST", f"/hooks/{name}", payload, signed(payload, message_id))


async def run_of(client: Client, run: str) -> dict[str, Any]:
    """The run when it has ended."""
    await client.daemon.parts.jobs.runs.ended(run)
    return await client.get(f"/hooks/runs/{run}")


async def test_calls_while_the_database_is_locked_for_long_are_all_told_to_come_back_in_time(tmp_path: Path) -> None:
    async with running(tmp_path / "data", config(hooks=[BUILD])) as client:
        store = client.daemon.parts.jobs.store
        assert (await call(client, {"id": 0}, message_id="first"))[0] == 202
        store.wait_s = 0.05
        async with store._writing:  # as the one who waits for SQLite
            told = await asyncio.gather(*(call(client, {"id": n}, message_id=f"msg_{n}") for n in range(20)))
        store.wait_s = PATIENCE_S
        assert {(status, body["title"]) for status, body in told} == {(503, "Not available")}
        taken = await asyncio.gather(*(call(client, {"id": n}, message_id=f"msg_{n}") for n in range(20)))
        assert {status for status, _ in taken} == {202}
        assert len({body["run"] for _, body in taken}) == 20


async def test_a_call_is_run_once_and_its_repeat_gets_the_same_answer(tmp_path: Path) -> None:
    async with running(tmp_path / "data", config(hooks=[BUILD])) as client:
        status, first = await call(client, {"id": 42})
        assert status == 202
        assert (await call(client, {"id": 42})) == (202, first)
        run = await run_of(client, first["run"])
        assert run["status"] == "ok"
        assert "Build 42 failed" in run["text"]
        assert (await call(client, {"id": 42})) == (202, first)
        page = await client.get("/v1/hooks/build/runs")
        assert [one["id"] for one in page["runs"]] == [first["run"]]
        said, reply = await client.transcript(first["key"])
        assert said["text"].split("\n")[1] == "Build 42 failed"
        assert reply["type"] == "assistant"


async def test_calls_that_are_refused_run_nothing(tmp_path: Path) -> None:
    hooks = [
        {**BUILD, "max_bytes": 200},
        {"name": "git", "scheme": "github", "secret": "hush", "template": "{{ body.id }}"},
        {"name": "token", "scheme": "bearer", "secret": "hush", "template": "{{ body.id }}"},
        {**BUILD, "name": "keyed", "session": "{{ body.key }}", "allow_key_prefixes": ["agent:main:ci"]},
    ]
    good, now = b'{"id": 1}', int(datetime.now(UTC).timestamp())
    keyed = b'{"id": 1, "key": "agent:main:telegram:direct:ana"}'
    refused: list[tuple[str, bytes, dict[str, str], int]] = [
        ("build", good, {}, 401),
        ("build", good, signed(b"other"), 401),
        ("build", good, signed(good, at=now - 400), 401),
        ("build", good, signed(good, at=now + 400), 401),
        ("build", b"x" * 201, signed(b"x" * 201), 413),
        ("build", b"{", signed(b"{"), 400),
        ("build", b"{}", signed(b"{}"), 422),
        ("git", good, {"X-Hub-Signature-256": sign_github("other", good)}, 401),
        ("token", good, {"Authorization": "Bearer hus"}, 401),
        ("keyed", keyed, signed(keyed), 422),
        ("unknown", good, signed(good), 404),
    ]
    async with running(tmp_path / "data", config(hooks=hooks)) as client:
        for name, body, headers, expected in refused:
            status, problem = await client.call("POST", f"/hooks/{name}", body, headers)
            assert status == expected, problem
            assert problem["detail"]
        for hook in hooks:
            assert (await client.get(f"/v1/hooks/{hook['name']}/runs"))["runs"] == []
        assert (await client.get("/v1/sessions"))["sessions"] == []


async def test_the_example_of_each_scheme_is_taken_and_tells_no_secret(tmp_path: Path) -> None:
    hooks = [BUILD, {"name": "git", "scheme": "github", "secret": "hush-hush", "template": "{{ body.a.b }}"}]
    async with running(tmp_path / "data", config(hooks=hooks)) as client:
        for hook in hooks:
            example = await client.get(f"/v1/hooks/{hook['name']}/example")
            assert str(hook["secret"]) not in str(example)
            status, taken = await client.call("POST", example["path"], example["body"].encode(), example["headers"])
            assert status == 202
            assert (await run_of(client, taken["run"]))["status"] == "ok"
        assert str(SECRET) not in str(await client.get("/v1/hooks"))


async def test_a_hook_that_waits_answers_with_the_reply_also_to_repeats_at_the_same_time(tmp_path: Path) -> None:
    async with running(tmp_path / "data", config(hooks=[{**BUILD, "wait": True}])) as client:
        answers = await asyncio.gather(*(call(client, {"id": 7}) for _ in range(5)))
        assert {status for status, _ in answers} == {200}
        assert len({orjson.dumps(body) for _, body in answers}) == 1
        assert "Build 7 failed" in answers[0][1]["text"]


async def test_a_hook_that_waits_does_so_for_its_time_however_long_the_line_is(tmp_path: Path) -> None:
    hook = {**BUILD, "wait": True, "timeout_s": 3600}
    clock = ManualClock(datetime.now(UTC))
    async with StandIn() as model:
        model.script("hang", "hang")
        settings = config(hooks=[hook], jobs={"hooks_parallel": 1}, **model_settings(model.base_url))
        async with running(tmp_path / "data", settings, clock=clock) as client:
            runs = client.daemon.parts.jobs.runs
            calls = [asyncio.create_task(call(client, {"id": n}, message_id=f"m{n}")) for n in range(2)]
            await until(lambda: (runs.going, runs.waiting) == (1, 1))
            await clock.advance(3600)
            answers = await asyncio.gather(*calls)
            assert {status for status, _ in answers} <= {202, 504}  # 504: the run that went on has ended itself
            taken = next(body for status, body in answers if status == 202)
            assert (await client.get(taken["location"]))["id"] == taken["run"]


async def test_a_job_runs_and_its_runs_are_listed(tmp_path: Path) -> None:
    async with running(tmp_path / "data", config()) as client:
        status, job = await client.call(
            "POST", "/v1/jobs", {"name": "soon", "every": "1s", "message": "good morning {{ job.name }}"}
        )
        assert status == 201
        assert len(job["next"]) == 5
        runs: list[dict[str, Any]] = []
        async with asyncio.timeout(PATIENCE_S):
            while not any(run["status"] == "ok" for run in runs):
                await asyncio.sleep(0.05)
                runs = (await client.get(f"/v1/jobs/{job['id']}/runs"))["runs"]
        ok = next(run for run in runs if run["status"] == "ok")
        assert ok["usage"]["output"] > 0
        assert ok["delivery"] == "none"
        assert (await client.texts(f"cron:{job['id']}"))[0] == "good morning soon"
        status, _ = await client.call("POST", "/v1/jobs", {"name": "soon", "every": "1h", "message": "x"})
        assert status == 409
        status, _ = await client.call("DELETE", "/v1/jobs/soon")
        assert status == 200


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"every": "1s"}, "message"),
        ({"message": "x"}, "body"),
        ({"message": "x", "every": "1s", "schedule": "* * * * *"}, "body"),
        ({"message": "x", "every": "soon"}, "every"),
        ({"message": "x", "schedule": "* * * *"}, "schedule"),
        ({"message": "x", "at": "2001-01-01T00:00:00"}, "at"),
        ({"message": "{{ x", "every": "1s"}, "message"),
        ({"message": "x", "every": "1s", "timezone": "Nowhere"}, "timezone"),
        ({"message": "x", "every": "1s", "deliver": {"url": "ftp://a"}}, "deliver.url"),
        ({"message": "x", "every": "1s", "session": "nonsense"}, "session"),
    ],
)
async def test_a_job_that_cannot_be_is_refused_with_its_place(tmp_path: Path, body: dict[str, Any], place: str) -> None:
    async with running(tmp_path / "data", config()) as client:
        status, problem = await client.call("POST", "/v1/jobs", {"name": "job", **body})
        assert status == 422
        assert place in [error["place"] for error in problem["errors"]]
        assert (await client.get("/v1/jobs"))["jobs"] == []


def delivering(receiver: Receiver) -> dict[str, Any]:
    return {"hooks": [{**BUILD, "deliver": {"url": receiver.url, "secret": SECRET, "headers": {"X-Own": "hidden"}}}]}


async def test_a_receiver_that_was_down_gets_everything_in_order_once_it_is_back(tmp_path: Path) -> None:
    async with receiving() as receiver:
        allow = {"allow": [receiver.url.split("/")[2]]}
        hooks: list[dict[str, Any]] = [
            {**BUILD, "session": "agent:main:ci:group:1", "allow_key_prefixes": ["agent:main:ci"]}
        ]
        hooks[0]["deliver"] = {"url": receiver.url, "secret": SECRET}
        receiver.status = 503
        async with running(tmp_path / "data", config(hooks=hooks, deliver=allow)) as client:
            runs: list[str] = []
            for number in range(5):
                _, taken = await call(client, {"id": number}, message_id=f"m{number}")
                assert (await run_of(client, taken["run"]))["status"] == "ok"
                runs.append(taken["run"])
            await until(lambda: receiver.tries)
            assert receiver.tries == 1
        receiver.status = 200
        async with running(tmp_path / "data", config(hooks=hooks, deliver=allow)) as client:
            pending = (await client.get("/v1/deliveries?status=pending"))["deliveries"]
            assert len(pending) == 5
            await until(lambda: len(receiver.got) == 5)
            assert [name for name, _ in receiver.got] == [one["id"] for one in reversed(pending)]
            assert [body["data"]["run"] for _, body in receiver.got] == runs
            assert all(body["id"] == name and body["data"]["text"] for name, body in receiver.got)


async def test_a_receiver_that_refuses_connections_gets_everything_when_it_listens_each_session_in_order(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}/"
    hook = {**BUILD, "session": "agent:main:ci:group:{{ body.chat }}", "allow_key_prefixes": ["agent:main:ci"]}
    hook["deliver"] = {"url": url, "secret": SECRET}
    async with running(tmp_path / "data", config(hooks=[hook], deliver={"allow": ["127.0.0.1"]})) as client:
        runs: dict[int, list[str]] = {1: [], 2: []}
        for number in range(6):
            chat = 1 + number % 2
            _, taken = await call(client, {"id": number, "chat": chat}, message_id=f"m{number}")
            assert (await run_of(client, taken["run"]))["status"] == "ok"
            runs[chat].append(taken["run"])
        await until(lambda: client.daemon.parts.jobs.telling.deliveries["retry"] >= 2)
        async with receiving(unused_tcp_port) as receiver:
            await until(lambda: len(receiver.got) == 6)
            told = [body["data"] for _, body in receiver.got]
            for chat, expected in runs.items():
                assert [one["run"] for one in told if one["key"].endswith(f":{chat}")] == expected
            assert len({name for name, _ in receiver.got}) == 6


async def test_nothing_is_sent_to_this_machine_unless_it_is_allowed(tmp_path: Path) -> None:
    async with receiving() as receiver:
        port = receiver.url.split(":")[2].strip("/")
        hooks: list[dict[str, Any]] = [
            {**BUILD, "name": name, "deliver": {"url": url}}
            for name, url in [
                ("address", receiver.url),
                ("name", f"http://localhost:{port}/"),
                ("mapped", f"http://[::ffff:127.0.0.1]:{port}/"),
                ("metadata", "http://169.254.169.254/latest"),
            ]
        ]
        async with running(tmp_path / "data", config(hooks=hooks)) as client:
            for hook in hooks:
                _, taken = await call(client, {"id": 1}, name=hook["name"])
                assert (await run_of(client, taken["run"]))["status"] == "ok"
            async with asyncio.timeout(PATIENCE_S):
                dead: list[dict[str, Any]] = []
                while len(dead) < len(hooks):
                    await asyncio.sleep(0.02)
                    dead = (await client.get("/v1/deliveries?status=dead"))["deliveries"]
            assert all("deliver.allow" in one["error"] for one in dead)
            assert receiver.tries == 0
            status, again = await client.call("POST", f"/v1/deliveries/{dead[0]['id']}/resend")
            assert (status, again["status"], again["id"]) == (202, "pending", dead[0]["id"])


async def test_a_redirect_to_an_address_that_is_not_allowed_is_not_followed(tmp_path: Path) -> None:
    async with receiving() as front, receiving() as behind:
        front.status, front.location = 307, behind.url.replace("127.0.0.1", "localhost")
        settings = delivering(front) | {"deliver": {"allow": [front.url.split("/")[2]]}}
        async with running(tmp_path / "data", config(**settings)) as client:
            _, taken = await call(client, {"id": 1})
            await run_of(client, taken["run"])
            await until(lambda: front.tries)
            async with asyncio.timeout(PATIENCE_S):
                while not (dead := (await client.get("/v1/deliveries?status=dead"))["deliveries"]):
                    await asyncio.sleep(0.02)
            assert "localhost" in dead[0]["error"]
            assert behind.tries == 0
            assert (await client.get(f"/hooks/runs/{taken['run']}"))["delivery"] == "dead"


async def test_a_reply_can_appear_in_another_session(tmp_path: Path) -> None:
    target = "agent:main:web:direct:ana"
    async with running(tmp_path / "data", config(hooks=[{**BUILD, "deliver": {"session": target}}])) as client:
        _, taken = await call(client, {"id": 9})
        await run_of(client, taken["run"])
        async with asyncio.timeout(PATIENCE_S):
            while not (await client.get("/v1/deliveries?status=delivered"))["deliveries"]:
                await asyncio.sleep(0.02)
        (entry,) = await client.transcript(target)
        assert entry["type"] == "assistant"
        assert "Build 9 failed" in entry["text"]


async def test_replies_of_sessions_are_pushed_where_the_configuration_says(tmp_path: Path) -> None:
    async with receiving() as receiver:
        followed = {"agent:main:web": {"url": receiver.url, "secret": SECRET}}
        deliver = {"allow": ["127.0.0.1"], "sessions": followed}
        async with running(tmp_path / "data", config(deliver=deliver)) as client:
            first = await client.say("one")
            await client.say("elsewhere", key="agent:main:mail:direct:ana")
            second = await client.say("two")
            await until(lambda: len(receiver.got) == 2)
            assert [body["data"]["turn"] for _, body in receiver.got] == [first["turn"], second["turn"]]
            assert receiver.got[0][1]["data"]["text"] == first["text"]
        async with running(tmp_path / "data", config(deliver=deliver)) as client:
            await client.say("three")
            await until(lambda: len(receiver.got) == 3)


async def test_what_was_replied_before_a_prefix_was_followed_is_not_sent(tmp_path: Path) -> None:
    async with receiving() as receiver:
        followed = {"agent:main:web": {"url": receiver.url, "secret": SECRET}}
        following = config(deliver={"allow": ["127.0.0.1"], "sessions": followed})
        sent: list[str] = []
        for settings, followed_now in ((config(), False), (following, True), (config(), False), (following, True)):
            async with running(tmp_path / "data", settings) as client:
                for text in ("one", "two"):
                    turn = (await client.say(text))["turn"]
                    sent.extend([turn] if followed_now else ())
                await until(lambda: len(receiver.got) == len(sent))
                await client.get("/v1/jobs")  # once the jobs are there, so is what is followed
                # what is not noted as delivered before the stop comes again
                await until_equal(lambda: client.get("/v1/deliveries?status=pending"), {"deliveries": [], "next": None})
        assert [body["data"]["turn"] for _, body in receiver.got] == sent


async def test_of_jobs_that_are_due_together_one_that_hangs_holds_up_none(tmp_path: Path) -> None:
    clock, at = Later(), datetime.now(UTC) + LATER
    once = {"at": at.isoformat(), "message": "say it", "timeout_s": 300}
    many = [{"name": f"j{number}", **once} for number in range(300)]
    settings: dict[str, Any] = {"jobs": {"scheduled": many, "max_parallel": 4, "spread_s": 1}}
    async with StandIn() as model:
        model.script("hang")
        everything = config(**settings, **model_settings(model.base_url))
        async with running(tmp_path / "data", everything, clock=clock) as client:
            await clock.comes(client)
            listing: list[float] = []
            most = 0
            async with asyncio.timeout(3 * PATIENCE_S):
                while most < 100 or open_runs(client) > 1:
                    most = max(most, open_runs(client))
                    began = asyncio.get_running_loop().time()
                    assert len((await client.get("/v1/jobs?limit=1000"))["jobs"]) == 300
                    listing.append(asyncio.get_running_loop().time() - began)
                    assert going(client) <= 4
                    await asyncio.sleep(0.2)
            assert going(client) == 1
            assert sorted(listing)[len(listing) // 2] < 2


async def test_while_somebody_is_answered_each_place_for_jobs_rests_between_two_runs(tmp_path: Path) -> None:
    clock, at = Later(), datetime.now(UTC) + LATER
    many = [{"name": f"j{number}", "at": at.isoformat(), "message": "say it"} for number in range(200)]
    settings: dict[str, Any] = {"jobs": {"scheduled": many, "max_parallel": 4, "spread_s": 0}}
    async with (
        StandIn() as model,
        running(tmp_path / "data", config(**settings, **model_settings(model.base_url)), clock=clock) as client,
    ):
        now = asyncio.get_running_loop().time
        await client.say("hello")
        await clock.comes(client)
        await until(lambda: open_runs(client) > 100)
        began, before = now(), open_runs(client)
        while now() < began + 2:
            assert (await client.say("and again"))["state"] == "done"
        assert before - open_runs(client) <= 4 + 4 * (now() - began) / RESTS_S
        await until(lambda: not open_runs(client))


def going(client: Client) -> int:
    return client.daemon.parts.jobs.runs.going


def open_runs(client: Client) -> int:
    return client.daemon.parts.jobs.runs.going + client.daemon.parts.jobs.runs.waiting


async def test_jobs_hooks_and_deliveries_are_there_for_administrators_only(tmp_path: Path) -> None:
    tokens = [
        {"name": "root", "token": "a", "role": "admin"},
        {"name": "bridge", "token": "f", "role": "frontend"},
        {"name": "ana", "token": "u", "role": "user", "user": "ana"},
    ]
    async with running(tmp_path / "data", config(hooks=[BUILD], auth={"tokens": tokens})) as client:
        _, taken = await call(client, {"id": 1})
        await client.daemon.parts.jobs.runs.ended(taken["run"])
        client.token = "a"
        await client.call("POST", "/v1/jobs", {"name": "job", "every": "1h", "message": "x"})
        routes = [
            ("GET", "/v1/jobs", 200),
            ("GET", "/v1/jobs/job", 200),
            ("POST", "/v1/jobs/job/run", 202),
            ("POST", "/v1/jobs/job/pause", 200),
            ("GET", "/v1/jobs/job/runs", 200),
            ("GET", "/v1/hooks", 200),
            ("GET", "/v1/hooks/build/example", 200),
            ("GET", "/v1/hooks/build/runs", 200),
            ("GET", f"/hooks/runs/{taken['run']}", 200),
            ("GET", "/v1/deliveries", 200),
            ("DELETE", "/v1/jobs/job", 200),
        ]
        for token in ("f", "u", None, "a"):
            client.token = token
            for method, path, ok in routes:
                status, content = await client.call(method, path)
                assert status == {"a": ok, None: 401}.get(token, 404), (token, path, content)


async def test_runs_and_deliveries_are_told_as_events_and_counted(tmp_path: Path) -> None:
    async with receiving() as receiver:
        target = {"url": receiver.url, "secret": SECRET}
        key = "agent:main:ci:group:1"
        hook = {**BUILD, "session": key, "allow_key_prefixes": ["agent:main:ci"], "deliver": target}
        deliver = {"allow": ["127.0.0.1"]}
        async with running(tmp_path / "data", config(hooks=[hook], deliver=deliver)) as client:
            _, taken = await call(client, {"id": 1})
            await run_of(client, taken["run"])
            await until(lambda: client.daemon.parts.jobs.telling.deliveries["delivered"])
            told = [one for one in client.daemon.parts.bus.recent() if one.name in ("run", "delivery")]
            assert [(one.name, one.fields["status"]) for one in told] == [
                ("run", "running"),
                ("run", "ok"),
                ("delivery", "pending"),
                ("delivery", "delivered"),
            ]
            assert {one.key for one in told} == {key}
            assert {one.fields["run"] for one in told} == {taken["run"]}
            assert "Build 1" not in str(told)
            counters = (await client.get("/metrics")).decode()
            assert 'sessiond_runs_total{kind="hook",status="ok"} 1.0' in counters
            assert 'sessiond_deliveries_total{outcome="delivered"} 1.0' in counters
            assert (await client.get("/readyz"))["parts"]["jobs"] == {"state": "ok", "detail": "0 runs go on, 0 wait"}


@pytest.mark.parametrize("line", ["- {name: morning,", "- {name: build,"])
async def test_the_example_configuration_with_one_line_uncommented_works_as_it_is(tmp_path: Path, line: str) -> None:
    example = (Path(__file__).parents[2] / "config.example.yaml").read_text("utf-8")
    assert example.count(f"#: {line}") == 1
    path = tmp_path / "sessiond.yaml"
    path.write_text(example.replace(f"#: {line}", line), "utf-8")
    settings = load(path, {"SESSIOND_SERVER__PORT": "0"})
    async with running(tmp_path / "data", settings) as client:
        if "morning" in line:
            (job,) = (await client.get("/v1/jobs"))["jobs"]
            _, run = await client.call("POST", f"/v1/jobs/{job['name']}/run")
            await client.daemon.parts.jobs.runs.ended(run["id"])
            (run,) = (await client.get("/v1/jobs/morning/runs"))["runs"]
            assert run["status"] == "ok"
            said, reply = await client.transcript(run["key"])
            assert (said["text"], reply["type"]) == ("Good morning!", "assistant")
        else:
            example_call = await client.get("/v1/hooks/build/example")
            body = example_call["body"].encode()
            status, taken = await client.call("POST", example_call["path"], body, example_call["headers"])
            assert status == 202
            assert (await run_of(client, taken["run"]))["status"] == "ok"


async def test_an_address_that_is_sent_back_as_it_was_shown_stays_as_it_is(tmp_path: Path) -> None:
    url = "https://hooks.slack.com/services/T00/B00/abcdefghijklmnopqrstuvwx1?token=abc"
    deliver = {"url": url, "headers": {"X-Key": "secret-value"}}
    body = {"name": "morning", "schedule": "0 7 * * *", "message": "hi", "deliver": deliver}
    async with running(tmp_path / "data", config()) as client:
        status, job = await client.call("POST", "/v1/jobs", body)
        assert status == 201, job
        shown = job["deliver"]["url"]
        assert shown == "https://hooks.slack.com/services/T00/B00/***?token=***"
        again = {**body, "message": "hello", "deliver": {"url": shown}}
        status, job = await client.call("PUT", "/v1/jobs/morning", again)
        assert status == 200, job
        kept = await client.daemon.parts.jobs.book.find("morning")
        assert kept is not None
        assert kept.policy.deliver is not None
        assert kept.policy.deliver.url == url
        assert kept.policy.deliver.headers["X-Key"].get_secret_value() == "secret-value"
        for method, path, name in (("PUT", "/v1/jobs/morning", "morning"), ("POST", "/v1/jobs", "another")):
            other = {**again, "name": name, "deliver": {"url": "https://hooks.slack.com/services/T00/B01/***"}}
            status, problem = await client.call(method, path, other)
            assert status == 422
            assert problem["errors"][0]["place"] == "deliver.url"
