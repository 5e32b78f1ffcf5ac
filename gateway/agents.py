"""Settings of agents: who speaks, with which model and tools."""

from __future__ import annotations

from pydantic import Field

from sessions.policy import Composed, Policy


class AgentPolicy(Policy):
    """One agent. An agent that is not configured speaks with the defaults."""

    system: str | None = Field(default=None, description="Its system text; null: a short default.")
    model: str | None = Field(default=None, description="Its model, by name; null: that of roles.chat.")
    tools: tuple[str, ...] | None = Field(default=None, description="Its built-in tools, by name; null: all.")
    tells_time: bool = Field(
        default=False,
        description="Tell the model date and time with every message, behind it, where it costs no cache; it can also "
        "ask with the tool current_time.",
    )
    project: Composed | None = Field(default=None, description="The project whose memories it shares; null: none.")
