"""What a person has set of memory for themselves, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BaseModel, Field, create_model

from gateway.http.memories import WhoQuery, viewer_for
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.personal import PERSONAL, effective, fields_of, flat, names, policy_of

if TYPE_CHECKING:
    from aiohttp import web
    from pydantic.fields import FieldInfo

    from gateway.parts import Parts


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


def _shown(group: str) -> Any:
    """A group as it is shown: everything of it that a person may set."""
    policy = policy_of(group)
    if set(fields_of(group)) == set(policy.model_fields):
        return (policy, Field(description=policy.__doc__))
    chosen: dict[str, Any] = {name: (policy.model_fields[name].annotation, ...) for name in fields_of(group)}
    return (create_model(f"{policy.__name__}Shown", **chosen), Field(description=policy.__doc__))


def _choices() -> type[BaseModel]:
    groups: dict[str, Any] = {
        group: (_choice(policy_of(group), fields_of(group)) | None, Field(default=None)) for group in PERSONAL
    }
    return create_model("MemorySettingsIn", __base__=Body, __doc__="Settings; null: as configured again.", **groups)


MemorySettingsIn = _choices()
MemorySettings = create_model(
    "MemorySettings", __doc__="Settings by group.", **cast("Any", {group: _shown(group) for group in PERSONAL})
)


class MemorySettingsView(BaseModel):
    """What holds for a person, what is configured for all, and the names of what the person has set."""

    settings: MemorySettings  # pyright: ignore[reportInvalidTypeForm]
    configured: MemorySettings  # pyright: ignore[reportInvalidTypeForm]
    set: list[str]


def routes(parts: Parts) -> list[Route]:
    async def show(call: Call) -> web.Response:
        return json_answer(await _view(call))

    async def replace(call: Call) -> web.Response:
        given = flat(call.body.model_dump(exclude_unset=True))
        await parts.personal.put(viewer_for(call), {name: given.get(name) for name in names()})
        return json_answer(await _view(call))

    async def change(call: Call) -> web.Response:
        given = flat(call.body.model_dump(exclude_unset=True))
        await parts.personal.put(viewer_for(call), _with_groups(given))
        return json_answer(await _view(call))

    async def _view(call: Call) -> dict[str, Any]:
        configured = parts.personal.configured
        chosen = await parts.personal.chosen(viewer_for(call))
        return {
            "settings": _groups(effective(configured, chosen)),
            "configured": _groups(configured),
            "set": sorted(chosen),
        }

    def route(method: str, endpoint: Any, summary: str, **more: Any) -> Route:
        return Route(
            method=method,
            path="/v1/memory/settings",
            endpoint=endpoint,
            summary=summary,
            tag="memories",
            query=WhoQuery,
            answers={200: MemorySettingsView},
            **more,
        )

    return [
        route("GET", show, "What a person has set of memory"),
        route("PUT", replace, "Set it; what is left out is as configured", body=MemorySettingsIn),
        route("PATCH", change, "Set some of it; null is as configured again", body=MemorySettingsIn),
    ]


def _groups(policy: BaseModel) -> dict[str, Any]:
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
