"""Settings of the surfaces of others."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from memory.records import folded_name
from sessions.policy import Policy

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
TopicName = Annotated[str, Field(min_length=1, max_length=80)]
LONGEST_NAME = 80
"""Of a topic; in another group than the default one its own name has the group's before it."""


class EngramTopicPolicy(Policy):
    """A topic of an Engram project, as it was set up there."""

    name: TopicName = Field(description="Name of the topic; one of the defaults is changed by its name.")
    description: Annotated[str, Field(min_length=1, max_length=4000)] = Field(
        description="What belongs to it, in which form: the model is told this."
    )
    bounded: bool = Field(default=False, description="true: one memory for each scope, which every write updates.")
    user_scoped: bool = Field(default=True, description="false: shared by the whole project; no user_id is needed.")
    scope_properties: tuple[TopicName, ...] = Field(
        default=(), description="Properties that keep its memories apart, as in conversation_id."
    )
    group: Name = Field(default="default", description="The group it belongs to.")

    @model_validator(mode="after")
    def _short(self) -> EngramTopicPolicy:
        if self.group != "default" and len(self.name) + len(self.group) >= LONGEST_NAME:
            raise ValueError(f"name and group of {self.name!r:.40} may have {LONGEST_NAME - 1} characters together")
        return self


class EngramProjectPolicy(Policy):
    """One project of Engram's clients: what a token reaches."""

    token: str = Field(description="Name of a token under auth.tokens, with the role frontend.")
    project: Name = Field(description="Its users' memories belong to user:<project>:<user_id>.")
    topics: tuple[EngramTopicPolicy, ...] = Field(default=(), description="Topics beside the default ones.")

    @model_validator(mode="after")
    def _told_apart(self) -> EngramProjectPolicy:
        names = [(topic.group, folded_name(topic.name)) for topic in self.topics]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"the project {self.project!r} has two topics {twice[1]!r} in the group {twice[0]!r}")
        return self


class EngramPolicy(Policy):
    """Engram's API under /engram, for its published clients."""

    projects: tuple[EngramProjectPolicy, ...] = Field(default=(), description="Which token reaches which project.")

    @model_validator(mode="after")
    def _one_each(self) -> EngramPolicy:
        tokens = [project.token for project in self.projects]
        twice = next((token for token in tokens if tokens.count(token) > 1), None)
        if twice is not None:
            raise ValueError(f"the token {twice!r} has two projects; give each project a token of its own")
        return self
