"""Documents at the command line."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from gateway.cli.documents import app

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.gateway.cli.conftest import CommandLine
    from tests.journeys.daemon import Client


def run(*arguments: object) -> tuple[int, str]:
    told = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return told.exit_code, told.output


def test_a_document_is_added_listed_replaced_and_removed(tmp_path: Path) -> None:
    page = tmp_path / "my bees.html"
    page.write_text("<h1>Hive</h1><p>green</p>", "utf-8")
    data = tmp_path / "data"
    data.mkdir()
    whose = ("--agent", "main", "--data-dir", data)
    assert run("add", page, *whose)[0] == 0
    page.write_text("<h1>Hive</h1><p>blue</p>", "utf-8")
    assert run("add", page, *whose)[0] == 0
    stored = data / "workspaces" / "main" / "memory" / "documents" / "my bees.html.md"
    assert stored.read_text("utf-8") == "# Hive\n\nblue"
    assert stored.stat().st_mode & 0o777 == 0o600
    assert "my bees.html.md" in run("list", *whose)[1]
    assert run("remove", "my bees.html.md", *whose)[0] == 0
    assert run("remove", "../../MEMORY.md", *whose)[0] == 2
    assert not stored.exists()


def test_an_api_goes_to_a_project_and_other_json_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = tmp_path / "api.yaml"
    api.write_text("openapi: 3.1.0\npaths: {/x: {get: {summary: Bees}}}\n", "utf-8")
    other = tmp_path / "other.json"
    other.write_text("{}", "utf-8")
    data = tmp_path / "data"
    data.mkdir()
    config = tmp_path / "config.yaml"
    config.write_text("agents: {keeper: {project: house}}\n", "utf-8")
    monkeypatch.setenv("SESSIOND_CONFIG", str(config))
    assert run("add", api, "--project", "house", "--data-dir", data)[0] == 0
    stored = data / "documents" / "house" / "memory" / "documents" / "api.yaml.md"
    assert "## GET /x\nBees" in stored.read_text("utf-8")
    code, told = run("add", other, "--project", "house", "--data-dir", data)
    assert code == 2
    assert "no OpenAPI" in told
    assert run("add", api, "--data-dir", data)[0] == 2


def test_a_name_of_nobody_is_told_and_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("agents: {keeper: {project: house}}\n", "utf-8")
    monkeypatch.setenv("SESSIOND_CONFIG", str(config))
    page = tmp_path / "bees.txt"
    page.write_text("bees", "utf-8")
    data = tmp_path / "data"
    (data / "transcripts" / "guest").mkdir(parents=True)
    with sqlite3.connect(data / "state.db") as database:
        database.execute("CREATE TABLE memory_projects (id)")
        database.execute("INSERT INTO memory_projects VALUES ('shop')")
    for whose, told in (
        (("--agent", "mian"), "There is no agent 'mian': it is not configured, and nobody has spoken with it. "),
        (("--agent", "mian"), "There are keeper, main."),
        (("--project", "hose"), "There is no project 'hose' here. There are house, shop."),
    ):
        for command in (("add", page), ("list",), ("remove", "bees.txt.md")):
            code, output = run(*command, *whose, "--data-dir", data)
            assert (code, told in output) == (2, True), output
    assert not (data / "workspaces").exists()
    assert not (data / "documents").exists()
    for whose in (("--agent", "main"), ("--agent", "guest"), ("--project", "house"), ("--project", "shop")):
        assert run("add", page, *whose, "--data-dir", data)[0] == 0


def test_a_refused_document_is_named_and_keeps_no_other_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    files = [tmp_path / name for name in ("a.txt", "b.exe", "c.txt", "gone.txt", "d.txt")]
    for file, text in zip(files, ("bees", "bees", " \n", None, "hives"), strict=True):
        if text is not None:
            file.write_text(text, "utf-8")
    code, told = run("add", *files, "--agent", "main", "--data-dir", data)
    assert code == 2
    for name, why in (("b.exe", "not known"), ("c.txt", "no text"), ("gone.txt", "cannot be read")):
        assert any(name in line and why in line for line in told.splitlines()), told
    folder = data / "workspaces" / "main" / "memory" / "documents"
    assert sorted(file.name for file in folder.iterdir()) == ["a.txt.md", "d.txt.md"]


async def test_what_a_daemon_refuses_is_named_and_keeps_no_other_out(
    line: CommandLine, client: Client, tmp_path: Path
) -> None:
    texts = {
        "a.txt": b"bees",
        "b.exe": b"bees",
        "c.txt": b" \n",
        "large.txt": b"x" * 5_000_001,
        "gone.txt": None,
        os.fsdecode(b"d\xff.txt"): b"bees",
        "e.txt": b"hives",
    }
    for name, content in texts.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
    ended = await line.end("documents", "add", *(str(tmp_path / name) for name in texts), "--agent", "main")
    assert ended.exit_code == 4, ended.output
    for name in ("b.exe", "c.txt", "large.txt", "gone.txt"):
        assert f"{tmp_path / name} " in ended.stderr, name
    listed = (await client.get("/v1/documents?agent=main"))["documents"]
    assert [one["name"] for one in listed] == ["a.txt.md", "d\ufffd.txt.md", "e.txt.md"]
    assert ended.stdout.count(" -> ") == 3


async def test_a_document_is_removed_by_the_name_of_the_file_that_was_added(line: CommandLine, tmp_path: Path) -> None:
    page = tmp_path / "bees.md"
    page.write_text("bees", "utf-8")
    data = tmp_path / "elsewhere"
    data.mkdir()
    for where in (("--url", line.url), ("--data-dir", str(data))):
        whose = ("--agent", "main", *where)
        await line.run("documents", "add", str(page), *whose)
        assert await line.run("documents", "remove", "bees.md", *whose) == "Removed bees.md.\n"
        assert "bees" not in await line.run("documents", "list", *whose)
        assert (await line.end("documents", "remove", "bees.md", *whose)).exit_code in (2, 4)
