from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config import BadConfig, Config, dump_yaml, load

if TYPE_CHECKING:
    from pathlib import Path

CHECKED = """
models:
  chat:    {provider: openai, base_url: "http://127.0.0.1:9999/v1", model: chat-model, api_key: x, window: 4000, max_output: 500}
  summary: {provider: openai, base_url: "http://127.0.0.1:9999/v1", model: summary-model, api_key: x, window: 32000}
roles: {chat: chat, summary: summary}
"""  # noqa: E501


def written(folder: Path, text: str) -> Path:
    path = folder / "sessiond.yaml"
    path.write_text(text, "utf-8")
    return path


def problems(folder: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(BadConfig) as refused:
        load(written(folder, text), environ or {})
    return refused.value.problems


def test_everything_can_be_left_out(tmp_path: Path) -> None:
    assert load(None, {}) == load(written(tmp_path, ""), {}) == Config()


def test_models_and_roles_are_read(tmp_path: Path) -> None:
    config = load(written(tmp_path, CHECKED), {})
    chat = config.models["chat"]
    assert (chat.window, chat.max_output, config.roles.summary) == (4000, 500, "summary")
    assert chat.api_key is not None
    assert chat.api_key.get_secret_value() == "x"


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "server: {port: 1, host: 127.0.0.2}\n")
    config = load(path, {"SESSIOND_SERVER__PORT": "9000", "SESSIOND_SERVER__CORS_ORIGINS": "[https://a.example]"})
    assert (config.server.port, config.server.host) == (9000, "127.0.0.2")
    assert config.server.cors_origins == ("https://a.example",)


def test_a_secret_in_the_environment_is_taken_as_it_is() -> None:
    environ = {
        "SESSIOND_MODELS__CHAT__PROVIDER": "openai",
        "SESSIOND_MODELS__CHAT__MODEL": "m",
        "SESSIOND_MODELS__CHAT__API_KEY": "1234 #5: *x",
    }
    key = load(None, environ).models["chat"].api_key
    assert key is not None
    assert key.get_secret_value() == "1234 #5: *x"


def test_variables_of_the_command_line_are_no_settings() -> None:
    assert (
        load(None, {"SESSIOND_URL": "http://x", "SESSIOND_TOKEN": "t", "SESSIOND_CONFIG": "f", "HOME": "/h"})
        == Config()
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("server: {prot: 1}", "server.prot: there is no such setting. Did you mean server.port?"),
        ("modles: {}", "modles: there is no such setting. Did you mean models?"),
        (
            "models: {chat: {provider: offline, windw: 5}}",
            "models.chat.windw: there is no such setting. Did you mean models.chat.window?",
        ),
        (
            "models: {chat: {provider: openai, model: m, prices: {inptu: 1, output: 2}}}",
            "models.chat.prices.inptu: there is no such setting. Did you mean models.chat.prices.input?",
        ),
        (
            "auth: {tokens: [{name: a, token: t, rol: admin}]}",
            "auth.tokens.0.rol: there is no such setting. Did you mean auth.tokens.0.role?",
        ),
        (
            "sessions: {reset: {by_type: {group: {idle: 5}}}}",
            "sessions.reset.by_type.group.idle: there is no such setting.",
        ),
        ("server: {zzz: 1}", "server.zzz: there is no such setting."),
    ],
)
def test_an_unknown_setting_is_refused_with_its_path_and_the_nearest_one(tmp_path: Path, text: str, told: str) -> None:
    assert any(problem.startswith(told) for problem in problems(tmp_path, text))


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, "server: {port: many, hots: x}\nqueue: {cap: 0}\n")
    assert [line.split(":")[0] for line in found] == ["server.port", "server.hots", "queue.cap"]


def test_an_unknown_variable_is_refused() -> None:
    with pytest.raises(BadConfig, match=r"server\.prot: there is no such setting\. Did you mean server\.port"):
        load(None, {"SESSIOND_SERVER__PROT": "1"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("server:\n  port: [1\n", "line 3: cannot be read as YAML"),
        ("server: {port: 1}\nroles: {}\nserver: {port: 2}\n", "line 3: cannot be read as YAML: server is given twice"),
        ("- 1\n", "must hold settings by name"),
        ("roles: {chat: other}\nmodels: {chat: {provider: offline}}\n", "roles.chat: there is no model 'other'"),
        ("models: {chat: {provider: offline, fallbacks: [gone]}}\n", "models.chat.fallbacks: there is no model 'gone'"),
        ("models: {chat: {provider: openai}}\n", "model is missing"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str, told: str) -> None:
    assert told in problems(tmp_path, text)[0]


JOB = "jobs: {scheduled: [{name: tea, message: x, "


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (JOB + "schedule: 99 * * * *}]}\n", "jobs.scheduled.tea: '99 * * * *' is no cron expression"),
        (JOB + "at: 2011-12-30 08:00:00, timezone: Pacific/Apia}]}\n", "jobs.scheduled.tea: 2011-12-30 does not exist"),
        (JOB + "at: 9999-12-31T23:00:00-12:00}]}\n", "jobs.scheduled.tea: 9999-12-31 is beyond"),
        (JOB + "every: 1h, model: gone}]}\n", "jobs.scheduled.tea.model: there is no model 'gone' under models."),
        (
            "agents: {helper: {}}\n" + JOB + "every: 1h, agent: gone}]}\n",
            "jobs.scheduled.tea.agent: there is no agent 'gone' under agents.",
        ),
        (
            "hooks: [{name: ci, scheme: bearer, secret: x, model: gone}]\n",
            "hooks.ci.model: there is no model 'gone' under models.",
        ),
    ],
)
def test_a_job_that_could_not_run_is_refused(tmp_path: Path, text: str, told: str) -> None:
    assert told in problems(tmp_path, text)[0]


@pytest.mark.parametrize(
    "text",
    [
        "deliver: {give_up_hours: 1.0e+9}",
        "cleanup: {after_days: 999999}",
        "cleanup: {after_days: 1, delete_after_days: 999999}",
        "sessions: {reset: {idle_minutes: 1000000000000}}",
        "sessions: {reset: {quiet_minutes: 1000000000000}}",
        "sessions: {reset: {by_type: {group: {idle_minutes: 1000000000000}}}}",
        "jobs: {run_retention_hours: 1.0e+9}",
        "memory: {trash: {days: 1.0e+9}}",
        "memory: {consolidation: {hours_since: 1.0e+12}}",
        "memory: {files: {compare_s: .inf}}",
    ],
)
def test_a_span_of_time_that_no_calendar_holds_is_refused(tmp_path: Path, text: str) -> None:
    assert "less than or equal to" in problems(tmp_path, text)[0]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"server:\n  host: caf\xe9\n", "line 2: is not written in UTF-8"),
        ("server: {port: 1}\n".encode("utf-16"), "line 1: is not written in UTF-8"),
        (b"logging:\n  level: 2026-02-30 08:00:00\n", "line 2: cannot be read as YAML: this is no timestamp."),
        (b"server: {port: !!int abc}\n", "line 1: cannot be read as YAML: this is no int."),
        (b"server: {port: !!bool abc}\n", "line 1: cannot be read as YAML: this is no bool."),
        (b"server: {port: !!timestamp abc}\n", "line 1: cannot be read as YAML: this is no timestamp."),
        (b"server: {port: 1" + b"0" * 5000 + b"}\n", "line 1: cannot be read as YAML: this is no int."),
        (b"server: " + b"[" * 3000, "is nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_in_words(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(BadConfig) as refused:
        load(path, {})
    assert told in refused.value.problems[0]


def test_a_group_whose_lines_are_all_commented_out_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    text = "server:\n#  port: 1\nmodels:\nhooks:\nauth:\n  tokens:\nsessions:\n  reset:\njobs:\n  scheduled:\n"
    assert load(written(tmp_path, text), {}) == Config()
    assert load(written(tmp_path, "server:\n"), {"SESSIOND_SERVER__PORT": "7"}).server.port == 7


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"gone\.yaml: cannot be read: No such file"):
        load(tmp_path / "gone.yaml", {})


def test_a_time_of_day_needs_no_quotes(tmp_path: Path) -> None:
    assert load(written(tmp_path, "sessions: {reset: {daily_at: 10:30}}\n"), {}).sessions.reset.daily_at == "10:30"


SECRET = "sk-very-secret"


@pytest.mark.parametrize(
    "settings",
    [
        {"models": {"chat": {"provider": "openai", "api_key": SECRET, "window": "x"}}},
        {"models": {"chat": {"provider": "openai", "model": "m", "api_key": [SECRET]}}},
        {"auth": {"tokens": [{"name": "a", "token": SECRET, "role": "user"}]}},
        {"auth": {"tokens": [{"name": "a", "token_hash": SECRET, "role": "admin"}]}},
        {"auth": {"tokens": [SECRET]}},
    ],
)
def test_no_secret_is_in_a_message(tmp_path: Path, settings: dict[str, Any]) -> None:
    assert not any(SECRET in problem for problem in problems(tmp_path, dump_yaml(settings)))


def test_no_secret_is_shown_of_a_configuration(tmp_path: Path) -> None:
    config = load(written(tmp_path, CHECKED.replace("api_key: x", f"api_key: {SECRET}")), {})
    assert SECRET not in repr(config) + str(config.model_dump(mode="json"))


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().server.port = 1  # pyright: ignore[reportAttributeAccessIssue]


def test_a_role_for_a_model_that_nothing_defines_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, "roles: {chat: nope}") == ["roles.chat: there is no model 'nope' under models."]
    assert load(written(tmp_path, "roles: {chat: offline}"), {}).roles.chat == "offline"


BANK = """
auth: {tokens: [{name: bank, token: b, role: frontend}, {name: tg, token: t, role: frontend}]}
engram: {projects: [{token: bank, project: bank}]}
"""


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (BANK + "sessions: {identities: {ana: ['bank:7']}}", "sessions.identities"),
        (BANK.replace("t, role: frontend", "t, role: frontend, key_prefixes: ['agent:main:bank']"), "key_prefixes"),
    ],
)
def test_an_engram_project_is_not_called_like_a_channel_of_others(tmp_path: Path, text: str, where: str) -> None:
    (problem,) = problems(tmp_path, text)
    assert "'bank' is the name of a channel too" in problem
    assert where in problem


def test_the_token_of_an_engram_project_may_have_the_channel_of_its_name(tmp_path: Path) -> None:
    text = BANK.replace("b, role: frontend", "b, role: frontend, key_prefixes: ['agent:main:bank']")
    assert load(written(tmp_path, text), {}).engram.projects[0].project == "bank"


def test_an_agent_that_is_given_twice_is_refused_also_with_other_accents(tmp_path: Path) -> None:
    twice = "".join(f"  {unicodedata.normalize(form, 'café')}: {{}}\n" for form in ("NFC", "NFD"))
    with pytest.raises(BadConfig, match="given twice"):
        load(written(tmp_path, f"agents:\n{twice}"), {})
