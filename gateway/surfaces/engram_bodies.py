"""What Engram's clients send and get, as they are published."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from gateway.http.routes import Body

UserId = Annotated[str, Field(min_length=1, max_length=200, description="Whose memories; cases are not told apart")]
Name = Annotated[str, Field(min_length=1, max_length=80)]
Properties = Annotated[dict[Name, Annotated[str, Field(min_length=1, max_length=512)]], Field(max_length=16)]
Text = Annotated[str, Field(min_length=1, max_length=200_000)]


class PreExtractedItemIn(Body):
    content: Text
    topic: Name


class PreExtractedIn(Body):
    """Facts that are kept as they are given."""

    items: list[PreExtractedItemIn] = Field(min_length=1, max_length=1000)


class StringIn(Body):
    content: list[Text] = Field(min_length=1, max_length=1000)
    created_at: AwareDatetime | None = None
    updated_at: AwareDatetime | None = None


class MessageIn(Body):
    role: Literal["user", "assistant", "system", "tool", "developer"]
    content: Annotated[str, Field(max_length=200_000)] | None = None
    created_at: AwareDatetime | None = None
    tool_call_id: str | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ConversationIn(Body):
    messages: list[MessageIn] = Field(min_length=1, max_length=1000)
    metadata: dict[str, Any] | None = None
    created_at: AwareDatetime | None = None
    updated_at: AwareDatetime | None = None


class InputIn(Body):
    """Exactly one of them."""

    string: StringIn | None = None
    conversation: ConversationIn | None = None
    pre_extracted: PreExtractedIn | None = None


class AddIn(Body):
    input: InputIn
    user_id: UserId | None = None
    group: Name | None = None
    properties: Properties = Field(default_factory=dict[str, str])


class TopicIn(Body):
    name: Name
    properties: Annotated[dict[Name, Annotated[str, Field(max_length=512)] | None], Field(max_length=16)] | None = None


class ScopeIn(Body):
    user_id: UserId | None = None
    group: Name | None = None
    topics: Annotated[list[Name | TopicIn], Field(max_length=200)] | None = None
    properties: Properties = Field(default_factory=dict[str, str])


class RetrievalIn(Body):
    retrieval_type: Literal["vector", "bm25", "hybrid", "fetch"]
    limit: Annotated[int, Field(ge=1, le=100)] | None = None


class EngramSearchIn(ScopeIn):
    query: Annotated[str, Field(max_length=8000)]
    retrieval_config: RetrievalIn | None = None


class EngramListIn(ScopeIn):
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    cursor: Annotated[str, Field(max_length=200, description="`next` of the page before")] | None = None


class OneQuery(Body):
    user_id: UserId | None = None
    group: Name | None = None


class TakenMemoryIn(BaseModel):
    """A memory as Engram shows it; what it says beside that is not needed."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: Annotated[str, Field(min_length=1, max_length=200)]
    content: Text
    topic: Name
    group: Name = "default"
    created_at: AwareDatetime
    user_id: UserId | None = None
    properties: Properties | None = None


class TakenScopingIn(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    user_scoped: bool
    scope_properties: Annotated[list[Name], Field(max_length=16)] | None = None


class TakenTopicIn(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    topic_name: Name
    description: Annotated[str, Field(max_length=4000)]
    is_bounded: bool
    scoping: TakenScopingIn


class TakenGroupIn(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    topics: Annotated[list[TakenTopicIn], Field(max_length=200)] | None = None


class EngramImportIn(Body):
    """A part of another project: its groups first, then its memories. `slices` name what is whole with them."""

    groups: Annotated[list[TakenGroupIn], Field(max_length=100)] = Field(default_factory=list[TakenGroupIn])
    memories: Annotated[list[TakenMemoryIn], Field(max_length=500)] = Field(default_factory=list[TakenMemoryIn])
    slices: Annotated[list[Annotated[str, Field(max_length=1024)]], Field(max_length=1000)] = Field(
        default_factory=list[str]
    )
    ended: bool = Field(default=False, description="All of it is here: the next import begins anew")


class ImportQuery(Body):
    project: Name | None = Field(default=None, description="For administrators, where there are several")


class RefusedView(BaseModel):
    id: str
    detail: str


class EngramImportView(BaseModel):
    """What became of it: `there` were here already, `forgotten` were deleted here before and stay so."""

    added: int
    there: int
    forgotten: int
    redacted: int
    refused: list[RefusedView]


class SlicesView(BaseModel):
    """What an import that has not ended has brought already."""

    slices: list[str]


class EngramMemoryView(BaseModel):
    """A memory; `topic` is empty until it is sorted into one."""

    id: str
    project_id: str
    content: str
    topic: str
    group: str
    created_at: str
    updated_at: str
    user_id: str | None = None
    properties: dict[str, str] | None = None
    score: float | None = None
    tags: list[str] | None = None


class EngramMemoriesView(BaseModel):
    """Memories; `total` says how many are in this answer, `next` is the cursor of the following page of a list."""

    memories: list[EngramMemoryView]
    total: int
    next: str | None = None


class RunView(BaseModel):
    """A write that was taken: `running` while it is learnt from, then `completed` or `failed`."""

    run_id: str
    status: str
    error: str | None = None
    note: str | None = None


class CommittedView(BaseModel):
    memory_id: str
    committed_at: str


class OperationsView(BaseModel):
    created: list[CommittedView]
    updated: list[CommittedView]
    deleted: list[CommittedView]


class RunStatusView(RunView):
    """What became of a write."""

    group_id: str
    user_id: str | None = None
    starting_step: int
    input_type: str
    created_at: str
    updated_at: str
    committed_operations: OperationsView


class ScopingView(BaseModel):
    user_scoped: bool
    scope_properties: list[str]


class EngramTopicView(BaseModel):
    topic_name: str
    description: str
    is_bounded: bool
    scoping: ScopingView


class GroupView(BaseModel):
    """`scoping` is what a write to all its topics must give."""

    group_id: str
    name: str
    topics: list[EngramTopicView]
    scoping: ScopingView


class GroupsView(BaseModel):
    """The groups of the project, with their topics."""

    groups: list[GroupView]


class EngramErrorView(BaseModel):
    """An error as Engram's clients read it."""

    model_config = ConfigDict(extra="allow")

    status: int
    title: str
    detail: str
    message: str
