"""What is a command and what is a text, and who may use which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.commands import COMMANDS, Command, CommandsPolicy, may_use, parse_command, render_help
from sessions.keys import parse_key

NAMES = [info.name for info in COMMANDS]
GROUP = parse_key("agent:main:telegram:group:1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/new", Command("new")),
        ("/NeW", Command("new")),
        ("/new hello", Command("new", "hello")),
        ("/new\nhello\n\nthere ", Command("new", "hello\n\nthere")),
        ("/new\thello", Command("new", "hello")),
        ("/new  ", Command("new")),
        ("/compact keep /model names", Command("compact", "keep /model names")),
        ("/usage week", Command("usage", "week")),
        ("/resume 2", Command("resume", "2")),
        ("/stop", Command("stop")),
    ],
)
def test_an_exact_word_at_the_start_is_a_command(text: str, expected: Command) -> None:
    assert parse_command(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "/", "//", "new", "/newish", "/new-text", "/new/text", "/new:", "/new@bot", "/etc/passwd", " /new",
        "\n/new", "/ new", "/\nnew", "//new", "hello /new", "\ufeff/new", "\u200b/new", "/né", "/ſtop",
        "/status\u200b", "／new",
    ],
)  # fmt: skip
def test_anything_else_is_a_text(text: str) -> None:
    assert parse_command(text) is None


@given(st.sampled_from(NAMES), st.text(), st.sampled_from([" ", "\n", "\t", "\u00a0"]))
def test_every_command_takes_any_argument(name: str, argument: str, space: str) -> None:
    assert parse_command(f"/{name.upper()}{space}{argument}") == Command(name, argument.strip())


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    for candidate in (text, f"/{text}"):
        command = parse_command(candidate)
        assert command is None or candidate[1:].lower().startswith(command.name)


def test_only_new_and_reset_end_the_session() -> None:
    assert [name for name in NAMES if Command(name).ends_session] == ["new", "reset"]


def test_help_names_every_command_with_its_argument() -> None:
    lines = render_help().splitlines()
    assert len(lines) == len(COMMANDS)
    for info, line in zip(COMMANDS, lines, strict=True):
        assert line.startswith(f"/{info.name} {info.argument}".rstrip() + ": ")
        assert line.endswith(info.help)


def test_in_groups_a_role_may_use_what_is_listed_for_it_and_all_when_nothing_is() -> None:
    policy = CommandsPolicy(allow={"frontend": ("status", "help"), "user": ()})
    assert may_use(policy, Command("status"), GROUP, "frontend")
    assert not may_use(policy, Command("new"), GROUP, "frontend")
    assert not may_use(policy, Command("help"), parse_key("agent:main:slack:channel:1:thread:2"), "user")
    assert may_use(policy, Command("new"), GROUP, "admin")
    assert all(may_use(CommandsPolicy(), Command(name), GROUP, "frontend") for name in NAMES)


@pytest.mark.parametrize("key", ["agent:main:main", "agent:main:telegram:direct:1", "cron:x"])
def test_in_ones_own_chat_every_command_is_open(key: str) -> None:
    policy = CommandsPolicy(allow={"admin": (), "frontend": (), "user": ()})
    assert all(may_use(policy, Command(name), parse_key(key), "user") for name in NAMES)


@pytest.mark.parametrize(
    ("allow", "message"),
    [({"owner": ["help"]}, "there is no role 'owner'"), ({"user": ["halp"]}, "there is no command 'halp'")],
)
def test_a_role_or_command_that_is_not_there_is_refused(allow: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CommandsPolicy.model_validate({"allow": allow})
