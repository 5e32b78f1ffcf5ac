"""Deliveries: what is to be pushed, what was, and what could not be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, Field

from gateway.http.problems import Problem, not_found
from gateway.http.routes import Body, Call, Route, json_answer
from gateway.http.run_views import id_of, time_or_none
from sessions.entries import format_time

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.jobs.values import Delivery
    from gateway.parts import Parts


class DeliveriesQuery(Body):
    status: Literal["pending", "delivered", "dead"] | None = None
    run: Annotated[str, Field(min_length=26, max_length=26)] | None = Field(default=None, description="Of one run")
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str, Field(min_length=26, max_length=26)] | None = Field(
        default=None, description="`next` of the page before"
    )


class DeliveryView(BaseModel):
    """One delivery; `id` is the `webhook-id` of every attempt. Headers and secrets are not shown, nor keys in `to`."""

    id: str
    kind: str
    status: str
    key: str
    run: str | None
    turn: str | None
    to: str
    attempts: int
    error: str | None
    created_at: str
    next_at: str | None
    ended_at: str | None


class DeliveryPageView(BaseModel):
    """Deliveries, newest first."""

    deliveries: list[DeliveryView]
    next: str | None


def routes(parts: Parts) -> list[Route]:
    async def list_all(call: Call) -> web.Response:
        query: DeliveriesQuery = call.query
        found = await parts.jobs.store.deliveries(
            status=query.status, run=query.run, limit=query.limit + 1, before=query.cursor
        )
        shown = found[: query.limit]
        following = shown[-1].id if len(found) > len(shown) else None
        return json_answer(DeliveryPageView(deliveries=[delivery_view(one) for one in shown], next=following))

    async def found(call: Call) -> Delivery:
        delivery = await parts.jobs.store.delivery(id_of(call))
        if delivery is None:
            raise not_found("delivery")
        return delivery

    async def show(call: Call) -> web.Response:
        return json_answer(delivery_view(await found(call)))

    async def resend(call: Call) -> web.Response:
        delivery = await found(call)
        if delivery.status != "dead":
            raise Problem(
                409, "Not dead", f"This delivery is {delivery.status}; only dead ones are sent again by hand."
            )
        return json_answer(delivery_view(await parts.jobs.outbox.again(delivery)), 202)

    return [
        Route(
            method="GET",
            path="/v1/deliveries",
            endpoint=list_all,
            summary="Deliveries, newest first",
            tag="deliveries",
            query=DeliveriesQuery,
            answers={200: DeliveryPageView},
            roles=("admin",),
        ),
        Route(
            method="GET",
            path="/v1/deliveries/{id}",
            endpoint=show,
            summary="One delivery",
            tag="deliveries",
            answers={200: DeliveryView},
            roles=("admin",),
        ),
        Route(
            method="POST",
            path="/v1/deliveries/{id}/resend",
            endpoint=resend,
            summary="Send a dead delivery again, with the same id",
            tag="deliveries",
            answers={202: DeliveryView},
            roles=("admin",),
        ),
    ]


def delivery_view(delivery: Delivery) -> DeliveryView:
    return DeliveryView(
        id=delivery.id,
        kind=delivery.kind,
        status=delivery.status,
        key=delivery.key,
        run=delivery.run,
        turn=delivery.turn,
        to=delivery.target.shown,
        attempts=delivery.attempts,
        error=delivery.error,
        created_at=format_time(delivery.created_at),
        next_at=format_time(delivery.next_at) if delivery.status == "pending" else None,
        ended_at=time_or_none(delivery.ended_at),
    )
