"""Settings of jobs, webhooks and delivery."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    SerializationInfo,
    field_serializer,
    model_validator,
)

from gateway.jobs.addresses import parse_allowed, read_url
from gateway.jobs.signatures import Scheme, signing_key
from gateway.masking import HIDDEN, masked_target
from sessions.keys import MalformedKey, parse_key
from sessions.policy import LONGEST_DAYS, Composed, Policy, ZoneName

Missed = Literal["skip", "once", "all"]
Overlap = Literal["skip", "queue", "cancel"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
EXAMPLE_SECRET = "whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFuZ2UtbWU="  # noqa: S105  (refused where strangers call)
_EVERY = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_LONGEST = timedelta(days=LONGEST_DAYS)
REVEAL = "reveal"


def parse_every(text: str) -> timedelta:
    """`90m`, `1h30m`, `1s`. Raises ValueError."""
    match = _EVERY.fullmatch(text.strip())
    if match is None or not text.strip() or len(text) > 40:
        raise ValueError(f"{text!r:.60} is no span of time, such as 30s, 90m, 1h30m or 7d")
    days, hours, minutes, seconds = (int((part or "0")[:9]) for part in match.groups())
    span = timedelta(seconds=((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    if not timedelta(seconds=1) <= span <= _LONGEST:
        raise ValueError("the span must be from 1s to 3660d")
    return span


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError("a name has letters, digits, - and _, at most 64, and starts with a letter or digit")
    return text


def _every(text: str | None) -> str | None:
    if text is not None:
        parse_every(text)
    return text


def _session(text: str) -> str:
    return text if text in ("isolated", "continuing") else _key(text)


def _key(text: str) -> str:
    try:
        return str(parse_key(text))
    except MalformedKey as error:
        raise ValueError(str(error)) from error


def _url(text: str | None) -> str | None:
    if text is not None:
        read_url(text)
    return text


def _allowed(entries: tuple[str, ...]) -> tuple[str, ...]:
    for entry in entries:
        parse_allowed(entry)
    return entries


def none_is_empty(value: Any) -> Any:
    """A list whose entries are all commented out is empty."""
    return () if value is None else value


def _message(source: str) -> str:
    """Jinja is imported where something is a template at all."""
    if "{" not in source:
        return source
    from gateway.jobs.templates import check_template

    check_template(source)
    return source


Name = Annotated[str, AfterValidator(_name)]
Template = Annotated[str, Field(min_length=1, max_length=20_000), AfterValidator(_message)]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,100}$")]
HeaderValue = Annotated[SecretStr, Field(max_length=4000)]
OURS = frozenset("host content-length content-type transfer-encoding connection".split()) | {
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
}


class DeliverTo(Policy):
    """Where replies are pushed to: an address, or another session."""

    url: Annotated[str | None, Field(max_length=2000), AfterValidator(_url)] = Field(
        default=None, description="http(s) address that gets the reply as JSON."
    )
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict, description="Headers sent with it.")
    secret: SecretStr | None = Field(
        default=None, description="whsec_<base64>: signed by the Standard Webhooks scheme; null: not signed."
    )
    session: Annotated[str, AfterValidator(_key)] | None = Field(
        default=None, description="Key of a session in which the reply appears, instead of url."
    )

    @model_validator(mode="after")
    def _whole(self) -> DeliverTo:
        if (self.url is None) == (self.session is None):
            raise ValueError("deliver needs exactly one of url and session")
        if self.session is not None and (self.headers or self.secret):
            raise ValueError("deliver to a session has no headers and no secret")
        ours = sorted(name for name in self.headers if name.lower() in OURS)
        if ours:
            raise ValueError(f"the header {ours[0]} is set by sessiond; leave it out")
        for name, value in self.headers.items():
            if not value.get_secret_value().isprintable():
                raise ValueError(f"the value of the header {name} holds control characters")
        if self.secret is not None:
            signing_key(self.secret.get_secret_value())
        return self

    @property
    def shown(self) -> str:
        """Where it goes, as anybody may read it."""
        return self.session or masked_target(self.url or "")

    def as_known(self, kept: DeliverTo | None) -> DeliverTo:
        """What comes back as it was shown means what is kept. Raises ValueError for stars that mean nothing."""
        if self.url is None or HIDDEN not in self.url:
            return self
        if kept is None or kept.url is None or self.url != kept.shown:
            raise ValueError(f"{HIDDEN} stands for what is not shown; write the whole address")
        return self.model_copy(update={"url": kept.url, "headers": kept.headers, "secret": kept.secret})

    @field_serializer("url", when_used="json")
    def _hidden_url(self, url: str | None, info: SerializationInfo) -> str | None:
        """An address may be a key as well: those of Slack are, and many have one in their query."""
        return url if url is None or info.context == REVEAL else masked_target(url)

    @field_serializer("headers", when_used="json")
    def _hidden_headers(self, headers: dict[str, SecretStr], info: SerializationInfo) -> dict[str, str]:
        """Secrets are shown to nobody; only what goes to the disk has them."""
        return {name: _revealed(value, info) for name, value in headers.items()}

    @field_serializer("secret", when_used="json")
    def _hidden_secret(self, secret: SecretStr | None, info: SerializationInfo) -> str | None:
        return None if secret is None else _revealed(secret, info)


def _revealed(secret: SecretStr, info: SerializationInfo) -> str:
    return secret.get_secret_value() if info.context == REVEAL else str(secret)


class JobPolicy(Policy):
    """One job: when, what is said, and what becomes of the reply (spec jobs.md, "Cron jobs")."""

    name: Name = Field(description="Its name.")
    schedule: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="Cron expression of five fields, or six with seconds first."
    )
    cron: Annotated[str, Field(max_length=200)] | None = Field(default=None, description="The same as schedule.")
    every: Annotated[str | None, AfterValidator(_every)] = Field(
        default=None, description="Span between runs, as in 90m or 1h30m."
    )
    at: datetime | None = Field(default=None, description="One run at this time; local to timezone without an offset.")
    timezone: ZoneName = Field(default=None, description="IANA zone of schedule and at; null: the machine's zone.")
    message: Template = Field(description="What is said; a Jinja template that knows now, job and last_run.")
    agent: Annotated[Composed, Field(min_length=1, max_length=100)] = Field(
        default="main", description="Agent that answers."
    )
    model: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        default=None, description="Model by name; null: the agent's."
    )
    session: Annotated[str, AfterValidator(_session)] = Field(
        default="isolated",
        description="isolated: each run has a new session under cron:<id>; continuing: cron:<id> goes on; or a key.",
    )
    deliver: DeliverTo | None = Field(default=None, description="Where the reply is pushed; null: nowhere.")
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = Field(default=600, description="Limit of one run.")
    overlap: Overlap = Field(
        default="skip", description="When the last run still goes: skip this one, queue it, or cancel the last one."
    )
    missed: Missed = Field(
        default="once", description="What was due while the daemon was down: skip, once, or all (the last five)."
    )
    enabled: bool = Field(default=True, description="false: it does not run by itself.")
    delete_after_run: bool = Field(default=False, description="Remove it once it has run.")

    @model_validator(mode="after")
    def _one_schedule(self) -> JobPolicy:
        given = [name for name in ("schedule", "cron", "every", "at") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("a job needs exactly one of schedule (a cron expression), every and at")
        return self

    @property
    def expression(self) -> str | None:
        """The cron expression."""
        return self.schedule or self.cron


class JobsPolicy(Policy):
    """Scheduled jobs and how they are run."""

    scheduled: Annotated[tuple[JobPolicy, ...], BeforeValidator(none_is_empty)] = Field(
        default=(), description="Jobs; more can be added over the API and with `sessiond jobs add`."
    )
    max_parallel: Annotated[int, Field(ge=1, le=1000)] = Field(default=4, description="Runs of jobs at the same time.")
    hooks_parallel: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=8, description="Runs of webhooks at the same time."
    )
    spread_s: Annotated[float, Field(ge=0, le=60)] = Field(
        default=5, description="Seconds over which the starts of jobs that are due together are spread."
    )
    run_retention_hours: Annotated[float, Field(gt=0, le=LONGEST_DAYS * 24)] | None = Field(
        default=24, description="Hours the sessions of runs are kept; the record of a run stays. null: for ever."
    )

    @model_validator(mode="after")
    def _told_apart(self) -> JobsPolicy:
        check_names("jobs", [job.name for job in self.scheduled])
        return self


class HookPolicy(Policy):
    """One webhook, at POST /hooks/<name> (spec jobs.md, "Webhooks")."""

    name: Name = Field(description="Its name, the last part of its address.")
    scheme: Scheme = Field(
        default="standard",
        description="How callers prove who they are: standard (Standard Webhooks), github (its signature), bearer.",
    )
    secret: SecretStr | None = Field(default=None, description="The secret; for standard whsec_<base64>.")
    secret_env: str | None = Field(default=None, description="Environment variable that holds the secret.")
    template: Template = Field(
        default="{{ body | tojson }}", description="What of the payload is shown to the model: Jinja over body."
    )
    instruction: Annotated[str, Field(max_length=20_000)] | None = Field(
        default=None, description="What the model should do with it, in your own words; holds nothing of the payload."
    )
    agent: Annotated[Composed, Field(min_length=1, max_length=100)] = Field(
        default="main", description="Agent that answers."
    )
    model: str | None = Field(default=None, description="Model by name; null: the agent's.")
    session: Template | None = Field(
        default=None, description="Key of the session as a Jinja template over body; null: a new session for each call."
    )
    allow_key_prefixes: tuple[Composed, ...] = Field(
        default=(), description="Session keys that session may give, by their first words; others are refused."
    )
    deliver: DeliverTo | None = Field(default=None, description="Where the reply is pushed; null: nowhere.")
    wait: bool = Field(
        default=False, description="false: 202 with the run's id; true: the reply, or after timeout_s 202."
    )
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = Field(default=120, description="Limit of one run.")
    max_bytes: Annotated[int, Field(ge=1)] = Field(default=1_048_576, description="Largest payload, in bytes.")

    @model_validator(mode="after")
    def _whole(self) -> HookPolicy:
        if (self.secret is None) == (self.secret_env is None):
            raise ValueError(f"webhook {self.name!r} needs exactly one of secret and secret_env")
        if self.secret is not None:
            self.check_secret(self.secret.get_secret_value())
        if self.session is not None and not self.allow_key_prefixes:
            raise ValueError(f"webhook {self.name!r} gives session keys: say which under allow_key_prefixes")
        return self

    def check_secret(self, secret: str) -> None:
        """Raises ValueError for a secret that its scheme cannot use."""
        if not secret:
            raise ValueError(f"the secret of webhook {self.name!r} is empty")
        if self.scheme == "standard":
            signing_key(secret)


class DeliverPolicy(Policy):
    """Pushing replies to other places."""

    allow: Annotated[tuple[str, ...], AfterValidator(_allowed)] = Field(
        default=(),
        description="Hosts and networks that are not on the open internet but may be sent to, as in 127.0.0.1:9000, "
        "10.0.0.0/8 or hooks.lan.",
    )
    timeout_s: Annotated[float, Field(gt=0, le=300)] = Field(default=15, description="Limit of one attempt.")
    give_up_hours: Annotated[float, Field(gt=0, le=LONGEST_DAYS * 24)] = Field(
        default=24,
        description="Hours after which a delivery that never succeeded is dead; it can be sent again by hand.",
    )
    sessions: dict[str, DeliverTo] = Field(
        default_factory=dict, description="Replies of sessions to push, by the first words of their keys."
    )


def check_names(what: str, names: list[str]) -> None:
    """Raises ValueError when two are called the same."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two {what} are called {twice!r}")
