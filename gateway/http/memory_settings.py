"""What a person has set of memory for themselves, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, create_model

from gateway.http.memories import PoolName, PoolQuery, viewer_for
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.personal import PERSONAL, effective, fields_of, flat, names, policy_of
from memory.records import parse_pool

if TYPE_CHECKING:
    from aiohttp import web
    from pydantic.fields import FieldInfo

    from gateway.parts import Parts
    from memory.records import Pool, Viewer


def _choice(policy: type[BaseModel], fields: tuple[str, ...]) -> type[BaseModel]:
    """A group as it may be sent: every setting can be left out, or null."""
    given: dict[str, Any] = {name: _optional(policy.model_fields[name]) for name in fields}
    name = policy.__name__.removesuffix("Policy")
    return create_model(f"{name}Choice", __base__=Body, __doc__=policy.__doc__, **given)


def _optional(field: FieldInfo) -> Any:
    kind: Any = field.annotation
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        kind = _choice(kind, tuple(kind.model_fields))
    elif field.metadata:
        kind = Annotated[kind, *field.metadata]
    return (kind | None, Field(default=None, description=field.description))


def _view(group: str, *, own: bool) -> Any:
    """A group as it is shown. `own`: with the names of what the person has set."""
    policy = policy_of(group)
    shown: dict[str, Any] = {name: (policy.model_fields[name].annotation, ...) for name in fields_of(group)}
    if own:
        shown["own"] = (list[str], ...)
    name = f"{policy.__name__.removesuffix('Policy')}{'Settings' if own else 'Configured'}View"
    return (create_model(name, __doc__=policy.__doc__, **shown), ...)


def _groups(name: str, doc: str, base: type[BaseModel], **groups: Any) -> type[BaseModel]:
    return create_model(name, __base__=base, __doc__=doc, **groups)


class Addressed(Body):
    pool: PoolName | None = Field(default=None, description="Whose, as user:<id>; your own when left out")


MemorySettingsIn = _groups(
    "MemorySettingsIn",
    "Settings of a person; null: as configured.",
    Addressed,
    **{group: (_choice(policy_of(group), fields_of(group)) | None, Field(default=None)) for group in PERSONAL},
)
ConfiguredView = _groups(
    "MemoryConfiguredView",
    "What holds for who has set nothing.",
    BaseModel,
    **{group: _view(group, own=False) for group in PERSONAL},
)
MemorySettingsView = _groups(
    "MemorySettingsView",
    "What holds for the memory of one person; `own` names what that person has set, the rest is as configured.",
    BaseModel,
    pool=(str, ...),
    configured=(ConfiguredView, ...),
    **{group: _view(group, own=True) for group in PERSONAL},
)


def routes(parts: Parts) -> list[Route]:
    async def asked(call: Call, given: str | None) -> tuple[Viewer, Pool]:
        named = None if given is None else parse_pool(given)
        viewer = viewer_for(call, named)
        return viewer, await (await parts.memory.open()).topics.prepare(viewer, named)

    async def show(call: Call) -> web.Response:
        query: PoolQuery = call.query
        return await answer(*await asked(call, query.pool))

    async def replace(call: Call) -> web.Response:
        viewer, pool = await asked(call, call.body.pool)
        given = _given(call.body)
        await parts.personal.put(viewer, pool, {name: given.get(name) for name in names()})
        return await answer(viewer, pool)

    async def change(call: Call) -> web.Response:
        viewer, pool = await asked(call, call.body.pool)
        await parts.personal.put(viewer, pool, _with_groups(_given(call.body)))
        return await answer(viewer, pool)

    async def answer(viewer: Viewer, pool: Pool) -> web.Response:
        configured, chosen = parts.personal.configured, await parts.personal.chosen(viewer, pool)
        holds, told = _shown(effective(configured, chosen)), _shown(configured)
        own = {group: [name[len(group) + 1 :] for name in chosen if name.startswith(f"{group}.")] for group in holds}
        groups = {group: {**settings, "own": own[group]} for group, settings in holds.items()}
        return json_answer({"pool": str(pool), **groups, "configured": told})

    def route(method: str, endpoint: Any, summary: str, **more: Any) -> Route:
        more.setdefault("query", PoolQuery)
        return Route(
            method=method,
            path="/v1/memory-settings",
            endpoint=endpoint,
            summary=summary,
            tag="memories",
            answers={200: MemorySettingsView},
            **more,
        )

    return [
        route("GET", show, "What a person has set of memory"),
        route("PUT", replace, "Set it; what is left out is as configured", body=MemorySettingsIn),
        route("PATCH", change, "Set some of it; null is as configured again", body=MemorySettingsIn),
    ]


def _given(body: BaseModel) -> dict[str, Any]:
    return flat(body.model_dump(exclude_unset=True, exclude={"pool"}))


def _shown(policy: BaseModel) -> dict[str, dict[str, Any]]:
    settings = policy.model_dump(mode="json")
    return {group: {name: settings[group][name] for name in fields_of(group)} for group in PERSONAL}


def _with_groups(given: dict[str, Any]) -> dict[str, Any]:
    """A group that is null as a whole means all of it."""
    found = dict(given)
    for name in names():
        outer = [name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)]
        if any(at in given for at in outer):
            found[name] = None
    return found
