"""All configured models: which one answers, and who steps in when it cannot."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import aclosing
from typing import TYPE_CHECKING

import structlog

from gateway.models.base import ContextOverflow, Finished, ModelBroken, ModelError, ModelUnavailable, UnknownModel
from gateway.models.discovery import found_in, key_of
from gateway.models.offline import OfflineModel
from gateway.models.policy import ModelPolicy, RolesPolicy
from gateway.models.prices import window_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from gateway.agents import AgentPolicy
    from gateway.models.base import ChatModel, ModelEvent, ModelRequest

log = structlog.get_logger()

HOLD_S = 15.0
MAX_HOLD_S = 300.0


class Failover:
    """A model with its fallbacks. The next one answers when one is out or gives nothing usable before anything was
    shown; a request the provider refuses is ours to mend, and no reason to ask another."""

    def __init__(self, models: Sequence[ChatModel], monotonic: Callable[[], float]) -> None:
        self._models = models
        self._monotonic = monotonic
        self._held_until: dict[str, float] = {}

    @property
    def name(self) -> str:
        return self._models[0].name

    @property
    def model(self) -> str:
        return self._models[0].model

    @property
    def window(self) -> int | None:
        return self._models[0].window

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        errors: list[ModelError] = []
        for model in self._in_order():
            try:
                async with aclosing(model.stream(request)) as events:
                    async for event in events:
                        yield _signed(event, model)
                return
            except ContextOverflow as error:
                error.name = model.name
                raise
            except (ModelUnavailable, ModelBroken) as error:
                self._hold(model, error)
                if error.partial:
                    raise
                errors.append(error)
        raise errors[0]

    def _in_order(self) -> list[ChatModel]:
        """Models that are not on hold first; the others are still tried before giving up."""
        now = self._monotonic()
        held = [m for m in self._models if self._held_until.get(m.name, 0) > now]
        return [m for m in self._models if m not in held] + held

    def _hold(self, model: ChatModel, error: ModelError) -> None:
        """A model without a fallback is never on hold: there is nobody else to ask."""
        wait_s = 0.0
        if len(self._models) > 1 and isinstance(error, ModelUnavailable):
            wait_s = min(error.retry_after_s or HOLD_S, MAX_HOLD_S)
            self._held_until[model.name] = self._monotonic() + wait_s
        log.warning("model.failed", model=model.name, code=error.code, error=str(error), hold_s=wait_s)

    async def close(self) -> None:
        """The pool closes the models."""


def _signed(event: ModelEvent, model: ChatModel) -> ModelEvent:
    return dataclasses.replace(event, name=model.name) if isinstance(event, Finished) else event


class LazyModel:
    """A model whose SDK is imported, in a thread, when it is first called: nobody's message waits for an import."""

    def __init__(self, name: str, policy: ModelPolicy, make: Callable[[], ChatModel]) -> None:
        self.name = name
        self.model = policy.model
        self.window = window_of(policy)
        self._policy = policy
        self._make = make
        self._loaded: ChatModel | None = None

    async def load(self) -> ChatModel:
        """The adapter itself."""
        if self._loaded is None:
            await asyncio.to_thread(_import_for, self._policy)
            self._loaded = self._loaded or self._make()
        return self._loaded

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        model = await self.load()
        async with aclosing(model.stream(request)) as events:
            async for event in events:
                yield event

    async def close(self) -> None:
        if self._loaded is not None:
            await self._loaded.close()


class ModelPool:
    """Models by name, made when they are first asked for: an SDK takes a second to import."""

    def __init__(
        self,
        *,
        policies: Mapping[str, ModelPolicy],
        roles: RolesPolicy,
        agents: Mapping[str, AgentPolicy],
        environ: Mapping[str, str],
        monotonic: Callable[[], float],
        count: Callable[[str], int],
        load_blob: Callable[[str], bytes],
        probe: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`policies` may be empty: then what the environment or `probe` offers is used, else the offline model.

        Whoever names the offline model wants no other: nothing is looked for.
        """
        found = dict(policies) or ({} if roles.chat == "offline" else found_in(environ, probe))
        self._policies = {**found, "offline": ModelPolicy(provider="offline", model="offline")} | found
        self._roles = roles
        self._agents = agents
        self._environ = environ
        self._monotonic = monotonic
        self._count = count
        self._load_blob = load_blob
        self._first = next(iter(found), "offline")
        self._models: dict[str, ChatModel] = {}
        self._chains: dict[str, Failover] = {}

    def names(self) -> list[str]:
        return list(self._policies)

    def policy(self, name: str) -> ModelPolicy | None:
        return self._policies.get(name)

    def name_of(self, model: str) -> str:
        """The configured name of a provider's model; the model itself when none has it."""
        return next((name for name, policy in self._policies.items() if policy.model == model), model)

    def choose(self, agent: str, wanted: str | None) -> ChatModel:
        """What answers: the wanted model, else the agent's, else that of `roles.chat`. Raises UnknownModel."""
        policy = self._agents.get(agent)
        return self.by_name(wanted or (policy.model if policy else None) or self._roles.chat or self._first)

    def by_name(self, name: str) -> ChatModel:
        """Raises UnknownModel."""
        chain = self._chains.get(name)
        if chain is None:
            policy = self._policies.get(name)
            if policy is None:
                raise UnknownModel(f"There is no model {name!r}. Known models: {', '.join(self._policies)}.")
            names = [name, *(other for other in policy.fallbacks if other in self._policies)]
            chain = self._chains[name] = Failover([self._model(one) for one in names], self._monotonic)
        return chain

    def put(self, model: ChatModel) -> None:
        """A model made elsewhere answers under its name, whatever the settings say of it."""
        self._chains[model.name] = Failover([model], self._monotonic)

    def for_role(self, role: str) -> ChatModel | None:
        """The model of a role other than chat; None when the configuration names none."""
        name = getattr(self._roles, role)
        return None if name is None else self.by_name(name)

    def _model(self, name: str) -> ChatModel:
        known = self._models.get(name)
        if known is None:
            known = self._models[name] = self._make(name, self._policies[name])
        return known

    def _make(self, name: str, policy: ModelPolicy) -> ChatModel:
        if policy.provider == "offline":
            return OfflineModel(name, count=self._count)
        return LazyModel(name, policy, lambda: self._adapter(name, policy))

    def _adapter(self, name: str, policy: ModelPolicy) -> ChatModel:
        if policy.provider == "openai":
            from gateway.models.openai import OpenAIModel as Adapter
        else:
            from gateway.models.anthropic import AnthropicModel as Adapter
        return Adapter(
            name,
            policy,
            api_key=key_of(policy, self._environ),
            window=window_of(policy),
            count=self._count,
            load_blob=self._load_blob,
        )

    async def warm(self) -> None:
        """Imports and builds the chat model beside the start, so that the first message does not wait for it."""
        name = self._roles.chat or self._first
        if name in self._policies:
            self.by_name(name)
            model = self._models[name]
            if isinstance(model, LazyModel):
                await model.load()

    async def close(self) -> None:
        for model in self._models.values():
            await model.close()


def _import_for(policy: ModelPolicy) -> None:
    if policy.provider == "openai":
        import gateway.models.openai  # pyright: ignore[reportUnusedImport]
    else:
        import gateway.models.anthropic  # noqa: F401  # pyright: ignore[reportUnusedImport]
    window_of(policy)
