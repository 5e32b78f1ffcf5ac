from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compaction.layout import build_prompt
from gateway.agents import AgentPolicy
from gateway.models.base import (
    ContextOverflow,
    Finished,
    ModelBroken,
    ModelError,
    ModelRejected,
    ModelRequest,
    ModelUnavailable,
    TextDelta,
    UnknownModel,
    complete,
)
from gateway.models.policy import ModelPolicy, RolesPolicy
from gateway.models.pool import HOLD_S, Failover, ModelPool
from sessions.context import UserMessage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from gateway.models.base import ModelEvent

REQUEST = ModelRequest(prompt=build_prompt(system="", messages=[UserMessage(text="hi")]))


class Scripted:
    """A model that fails as told, after showing as much as told, and counts how often it was asked."""

    def __init__(self, name: str, *failures: ModelError | None) -> None:
        self.name = name
        self.model = f"{name}-1"
        self.window: int | None = 1000
        self.asked = 0
        self._failures = list(failures)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.asked += 1
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None:
            if failure.partial:
                yield TextDelta(failure.partial)
            raise failure
        yield TextDelta("yes")
        yield Finished(text="yes", calls=(), finish="stop", usage=None, model=self.model, name=self.name)

    async def close(self) -> None:
        """Nothing is open."""


class Monotonic:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("failure", [ModelUnavailable("down"), ModelBroken("an HTML page")])
async def test_the_next_model_answers_and_the_reply_says_which_it_was(failure: ModelError) -> None:
    chain = Failover([Scripted("first", failure), Scripted("second")], Monotonic())
    finished = await complete(chain, REQUEST)
    assert (finished.text, finished.name, finished.model) == ("yes", "second", "second-1")


@pytest.mark.parametrize("failure", [ModelRejected("bad field"), ContextOverflow("too long")])
async def test_a_bad_request_is_no_outage(failure: ModelError) -> None:
    first, second = Scripted("first", failure), Scripted("second")
    chain = Failover([first, second], Monotonic())
    with pytest.raises(type(failure)):
        await complete(chain, REQUEST)
    assert second.asked == 0
    await complete(chain, REQUEST)
    assert first.asked == 2, "it was not put on hold either"


async def test_nothing_is_tried_again_once_something_was_shown() -> None:
    second = Scripted("second")
    chain = Failover([Scripted("first", ModelBroken("cut", partial="half")), second], Monotonic())
    with pytest.raises(ModelBroken) as raised:
        await complete(chain, REQUEST)
    assert raised.value.partial == "half"
    assert second.asked == 0


@pytest.mark.parametrize(("retry_after_s", "held_s"), [(None, HOLD_S), (40.0, 40.0), (100_000.0, 300.0)])
async def test_a_failing_model_rests_as_long_as_it_asks_for(retry_after_s: float | None, held_s: float) -> None:
    clock = Monotonic()
    first = Scripted("first", ModelUnavailable("rate limited", retry_after_s=retry_after_s))
    chain = Failover([first, Scripted("second")], clock)
    await complete(chain, REQUEST)
    clock.now = held_s - 1
    assert (await complete(chain, REQUEST)).name == "second"
    clock.now = held_s + 1
    assert (await complete(chain, REQUEST)).name == "first"


async def test_a_resting_model_is_still_better_than_none() -> None:
    down = ModelUnavailable("down")
    chain = Failover([Scripted("first", down), Scripted("second", None, down)], Monotonic())
    await complete(chain, REQUEST)
    assert (await complete(chain, REQUEST)).name == "first"


async def test_when_all_fail_the_first_error_is_told() -> None:
    chain = Failover(
        [Scripted("a", ModelUnavailable("a is down")), Scripted("b", ModelUnavailable("b is down"))], Monotonic()
    )
    with pytest.raises(ModelUnavailable, match="a is down"):
        await complete(chain, REQUEST)


def pool(
    policies: Mapping[str, ModelPolicy] | None = None,
    *,
    roles: RolesPolicy | None = None,
    agents: Mapping[str, AgentPolicy] | None = None,
    environ: Mapping[str, str] | None = None,
    ollama: str | None = None,
) -> ModelPool:
    return ModelPool(
        policies=policies or {},
        roles=roles or RolesPolicy(),
        agents=agents or {},
        environ=environ or {},
        monotonic=Monotonic(),
        count=len,
        load_blob=lambda _: b"",
        probe=lambda: ollama,
    )


A = ModelPolicy(provider="openai", model="a-1", base_url="http://127.0.0.1:1/v1", fallbacks=("b", "offline"))
B = ModelPolicy(provider="openai", model="b-1", base_url="http://127.0.0.1:1/v1")


@pytest.mark.parametrize(
    ("environ", "ollama", "model"),
    [
        ({}, None, "offline"),
        ({}, "smollm2:135m", "smollm2:135m"),
        ({"OPENAI_API_KEY": "x"}, "smollm2:135m", "gpt-"),
        ({"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "y"}, None, "claude-"),
        ({"OPENAI_API_KEY": ""}, None, "offline"),
    ],
)
async def test_without_configuration_the_environment_decides(
    environ: Mapping[str, str], ollama: str | None, model: str
) -> None:
    models = pool(environ=environ, ollama=ollama)
    assert models.choose("main", None).model.startswith(model)
    await models.close()


async def test_a_configuration_keeps_the_environment_out() -> None:
    models = pool({"a": A}, environ={"ANTHROPIC_API_KEY": "y"}, ollama="smollm2")
    assert set(models.names()) == {"a", "offline"}
    assert models.choose("main", None).name == "a"
    await models.close()


async def test_wanted_comes_before_agent_and_agent_before_role() -> None:
    agents = {"cook": AgentPolicy(model="b")}
    models = pool({"a": A, "b": B}, roles=RolesPolicy(chat="a"), agents=agents)
    assert models.choose("main", None).name == "a"
    assert models.choose("cook", None).name == "b"
    assert models.choose("cook", "offline").name == "offline"
    with pytest.raises(UnknownModel, match=r"'c'.*a, b"):
        models.choose("main", "c")
    await models.close()


async def test_roles_without_a_model_have_none() -> None:
    models = pool({"a": A, "b": B}, roles=RolesPolicy(chat="a", summary="b"))
    summary = models.for_role("summary")
    assert summary is not None
    assert summary.name == "b"
    assert models.for_role("helper") is None
    await models.close()


async def test_when_every_server_is_gone_the_offline_fallback_answers() -> None:
    models = pool({"a": A, "b": B})
    finished = await complete(models.by_name("a"), REQUEST)
    assert finished.name == "offline"
    assert "offline model" in finished.text
    await models.close()


async def test_warming_up_needs_no_server() -> None:
    models = pool({"a": A})
    await models.warm()
    await models.close()
