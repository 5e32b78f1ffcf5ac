"""The configuration: every package's policy in one place, read from YAML and the environment."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args, get_origin
from zoneinfo import ZoneInfo

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from yaml.error import MarkedYAMLError

from compaction.policy import CompactionPolicy
from gateway.agents import AgentPolicy
from gateway.clock import machine_zone
from gateway.commands import CommandsPolicy
from gateway.complaints import complaint
from gateway.http.policy import AuthPolicy, ServerPolicy
from gateway.jobs.policy import DeliverPolicy, HookPolicy, JobsPolicy, check_names, none_is_empty
from gateway.jobs.timing import schedule_of
from gateway.masking import masked, masked_within
from gateway.models.policy import LOCAL, ModelPolicy, RolesPolicy
from gateway.schedules import BadSchedule, parse_cron
from gateway.surfaces.policy import EngramPolicy, EngramProjectPolicy
from memory.policy import MemoryPolicy
from memory.records import composed
from sessions.policy import CleanupPolicy, Policy, QueuePolicy, SessionsPolicy, TurnPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PREFIX = "SESSIOND_"
SEPARATOR = "__"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECRETS = frozenset({"api_key", "token", "secret"})
NOT_SETTINGS = frozenset({"SESSIOND_URL", "SESSIOND_TOKEN", "SESSIOND_CONFIG"})


class ShutdownPolicy(Policy):
    """What happens to running turns when the daemon is told to stop."""

    grace_s: Annotated[float, Field(ge=0)] = Field(
        default=30, description="Seconds running turns get before they are cut; they are resumed at the next start."
    )


class LoggingPolicy(Policy):
    """The daemon's log, on standard error. No message text, memory text or secret is in it."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Lowest level shown.")
    format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto: console on a terminal, else one JSON object a line."
    )


def _told_apart(hooks: tuple[HookPolicy, ...]) -> tuple[HookPolicy, ...]:
    check_names("webhooks", [hook.name for hook in hooks])
    return hooks


def _agents_by_id(agents: dict[str, AgentPolicy]) -> dict[str, AgentPolicy]:
    """By the ids keys have, which are in NFC."""
    known = {composed(name): policy for name, policy in agents.items()}
    if len(known) < len(agents):
        raise ValueError("an agent is given twice, with its accents written in two ways")
    return known


class Config(Policy):
    """All settings. Everything can be left out."""

    data_dir: Path = Field(default=Path("data"), description="Where everything is kept; made when missing.")
    server: ServerPolicy = Field(default_factory=ServerPolicy, description="Where the daemon listens.")
    auth: AuthPolicy = Field(default_factory=AuthPolicy, description="Who may speak to it.")
    models: dict[str, ModelPolicy] = Field(
        default_factory=dict,
        description="Models by a name of your choice; empty: what the environment offers, else the offline model.",
    )
    roles: RolesPolicy = Field(default_factory=RolesPolicy, description="Which model does what.")
    agents: Annotated[dict[str, AgentPolicy], AfterValidator(_agents_by_id)] = Field(
        default_factory=dict, description="Agents by the id used in session keys."
    )
    sessions: SessionsPolicy = Field(
        default_factory=SessionsPolicy, description="Where messages go and how they are kept."
    )
    cleanup: CleanupPolicy = Field(default_factory=CleanupPolicy, description="Sessions that are not used any more.")
    queue: QueuePolicy = Field(default_factory=QueuePolicy, description="Messages that arrive while a turn runs.")
    turn: TurnPolicy = Field(default_factory=TurnPolicy, description="Limits of one turn.")
    compaction: CompactionPolicy = Field(
        default_factory=CompactionPolicy, description="When a conversation is summarised, and what stays."
    )
    memory: MemoryPolicy = Field(default_factory=MemoryPolicy, description="Memories: facts that outlive sessions.")
    commands: CommandsPolicy = Field(default_factory=CommandsPolicy, description="Commands people type.")
    jobs: JobsPolicy = Field(default_factory=JobsPolicy, description="Scheduled jobs, and how they are run.")
    hooks: Annotated[tuple[HookPolicy, ...], BeforeValidator(none_is_empty), AfterValidator(_told_apart)] = Field(
        default=(), description="Webhooks, each at POST /hooks/<name>; `sessiond hooks show <name>` prints a call."
    )
    deliver: DeliverPolicy = Field(
        default_factory=DeliverPolicy, description="Pushing replies to other servers and sessions."
    )
    engram: EngramPolicy = Field(default_factory=EngramPolicy, description="Engram's API, for its published clients.")
    shutdown: ShutdownPolicy = Field(default_factory=ShutdownPolicy, description="Stopping.")
    logging: LoggingPolicy = Field(default_factory=LoggingPolicy, description="The daemon's log.")


class BadConfig(ValueError):
    """The configuration cannot be used. Each problem names the setting and what to do; values are never shown."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load(path: Path | None, environ: Mapping[str, str]) -> Config:
    """Defaults, then the YAML file, then `SESSIOND_...` variables. Raises BadConfig.

    Variables name nested settings with two underscores: `SESSIOND_SERVER__PORT=9000`; values are YAML,
    secrets are taken as they are. pydantic-settings would read the same, for a quarter of a second at every start.
    """
    settings = _read_file(path) if path is not None else {}
    for name, value in environ.items():
        if name.startswith(PREFIX) and name not in NOT_SETTINGS:
            place = name[len(PREFIX) :].lower().split(SEPARATOR)
            _put(settings, place, value if place[-1] in SECRETS else _yaml(value, name), name)
    try:
        config = Config.model_validate(_without_empty(settings, Config))
    except ValidationError as error:
        raise BadConfig([_problem(item) for item in error.errors()]) from None
    zone = machine_zone(environ.get("TZ"), Path("/etc/localtime"))
    problems = [*_dangling(config), *_schedules(config, zone)]
    if problems:
        raise BadConfig(problems)
    return config


class _Loader(yaml.SafeLoader):
    """YAML as people mean it: 10:30 is a text and no number to the base of 60, a name given twice is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise MarkedYAMLError(problem=f"{name} is given twice", problem_mark=key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """What a value cannot be is told with its line: 30 February, a number of 5,000 digits."""
        try:
            return super().construct_object(node, deep)  # pyright: ignore[reportUnknownMemberType]
        except (ValueError, OverflowError, TypeError, KeyError, AttributeError) as error:
            kind = node.tag.rpartition(":")[2]
            raise MarkedYAMLError(problem=f"this is no {kind}", problem_mark=node.start_mark) from error

    def construct_yaml_int(self, node: Any) -> Any:
        return node.value if ":" in node.value else super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def _without_empty(settings: dict[str, Any], kind: Any) -> dict[str, Any]:
    """A group whose lines are all commented out is left out, as in `server:` with nothing under it."""
    kept: dict[str, Any] = {}
    for name, value in settings.items():
        field = kind.model_fields.get(name)
        group = field.annotation if field is not None and _is_model(field.annotation) else None
        if value is None and field is not None and (group is not None or get_origin(field.annotation) in (dict, tuple)):
            continue
        inner = group is not None and isinstance(value, dict)
        kept[name] = _without_empty(cast("dict[str, Any]", value), group) if inner else value
    return kept


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise BadConfig([f"{path}: cannot be read: {error.strerror}."]) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise BadConfig([f"{path}, line {line}: is not written in UTF-8. Save the file as UTF-8."]) from error
    settings = _yaml(text, str(path))
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise BadConfig([f"{path}: must hold settings by name, as in `server: {{port: 8420}}`."])
    return cast("dict[str, Any]", settings)


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # noqa: S506  (a SafeLoader)
    except RecursionError as error:
        raise BadConfig([f"{where}: is nested too deeply."]) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise BadConfig([f"{where}{line}: cannot be read as YAML: {getattr(error, 'problem', error)}."]) from error


class _Dumper(yaml.SafeDumper):
    """Writes equal values out instead of referring to the first one."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def shown(config: Config, **left_out: Any) -> dict[str, Any]:
    """The settings as anybody may read them: secrets are stars, and so are passwords in addresses."""
    return masked_within(config.model_dump(mode="json", **left_out))


def dump_yaml(value: Any, *, flow: bool = False) -> str:
    """YAML text; `flow`: on one line."""
    dump = cast("Callable[..., str]", yaml.dump)
    return dump(value, Dumper=_Dumper, default_flow_style=flow, width=10_000, sort_keys=False, allow_unicode=True)


def _put(settings: dict[str, Any], names: list[str], value: Any, variable: str) -> None:
    *outer, last = names
    for name in outer:
        if settings.get(name) is None:
            settings[name] = {}
        inner = settings[name]
        if not isinstance(inner, dict):
            raise BadConfig([f"{variable}: {name} is not a group of settings."])
        settings = cast("dict[str, Any]", inner)
    settings[last] = value


def _problem(item: Any) -> str:
    place = [str(part) for part in item["loc"]]
    if item["type"] == "extra_forbidden":
        nearest = difflib.get_close_matches(place[-1], known_names(place[:-1]), n=1, cutoff=0.5)
        hint = f" Did you mean {'.'.join([*place[:-1], nearest[0]])}?" if nearest else ""
        return f"{'.'.join(place)}: there is no such setting.{hint}"
    return f"{'.'.join(place)}: {masked(complaint(item))}."


def known_names(place: list[str]) -> list[str]:
    """The settings of the group at `place`."""
    kind: Any = Config
    for name in place:
        field = kind.model_fields.get(name) if _is_model(kind) else None
        kind = field.annotation if field is not None else _value_type(kind)
        kind = next((part for part in (kind, *get_args(kind)) if _is_model(part)), kind)
        if kind is None:
            return []
    return list(kind.model_fields) if _is_model(kind) else []


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _value_type(kind: Any) -> Any:
    arguments = get_args(kind)
    return arguments[-1] if arguments else kind if _is_model(kind) else None


def _dangling(config: Config) -> Iterator[str]:
    """Names of models that nothing defines."""
    known = {*(config.models or ("chat",)), "offline"}  # what is found without configuration is named chat
    for role, name in config.roles.model_dump().items():
        if role == "embedding" and name == LOCAL:
            continue
        if name is not None and name not in known:
            yield f"roles.{role}: there is no model {name!r} under models."
    frontends = {token.name for token in config.auth.tokens if token.role == "frontend"}
    for project in config.engram.projects:
        if project.token not in frontends:
            yield f"engram.projects: there is no token {project.token!r} with the role frontend under auth.tokens."
        yield from _channel_of_project(config, project)
    for agent, policy in config.agents.items():
        if policy.model is not None and policy.model not in known:
            yield f"agents.{agent}.model: there is no model {policy.model!r} under models."
    for model, policy in config.models.items():
        for name in policy.fallbacks:
            if name not in known:
                yield f"models.{model}.fallbacks: there is no model {name!r} under models."
    work = [("jobs.scheduled", one) for one in config.jobs.scheduled] + [("hooks", one) for one in config.hooks]
    for place, one in work:
        if one.model is not None and one.model not in known:
            yield f"{place}.{one.name}.model: there is no model {one.model!r} under models."
        if config.agents and one.agent not in {"main", *config.agents}:
            yield f"{place}.{one.name}.agent: there is no agent {one.agent!r} under agents."


def _channel_of_project(config: Config, project: EngramProjectPolicy) -> Iterator[str]:
    """What a frontend calls its peers is `<channel>:<peer>`, as a project's users are `<project>:<id>`."""
    aliases = (alias for known in config.sessions.identities.values() for alias in known)
    prefixes = (
        prefix for token in config.auth.tokens if token.name != project.token for prefix in token.key_prefixes or ()
    )
    if any(alias.startswith(f"{project.project}:") for alias in aliases):
        where = "sessions.identities"
    elif any(prefix.split(":")[2:3] == [project.project] for prefix in prefixes):
        where = "auth.tokens, key_prefixes"
    else:
        return
    yield f"engram.projects: {project.project!r} is the name of a channel too ({where}). Give the project another name."


def _schedules(config: Config, zone: ZoneInfo) -> Iterator[str]:
    """Schedules that never come due, and cron expressions that memory, which knows none, has taken as texts."""
    for job in config.jobs.scheduled:
        try:
            schedule_of(job, zone, EPOCH)
        except BadSchedule as error:
            yield f"jobs.scheduled.{job.name}: {error}"
    batch = config.memory.learn.batch
    try:
        if batch is not None:
            parse_cron(batch, ZoneInfo("UTC"))
    except BadSchedule as error:
        yield f"memory.learn.batch: {error}"
