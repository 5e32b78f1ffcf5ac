"""Documents at the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from gateway.cli.documents import app

if TYPE_CHECKING:
    from pathlib import Path


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


def test_an_api_goes_to_a_project_and_other_json_is_refused(tmp_path: Path) -> None:
    api = tmp_path / "api.yaml"
    api.write_text("openapi: 3.1.0\npaths: {/x: {get: {summary: Bees}}}\n", "utf-8")
    other = tmp_path / "other.json"
    other.write_text("{}", "utf-8")
    data = tmp_path / "data"
    data.mkdir()
    assert run("add", api, "--project", "house", "--data-dir", data)[0] == 0
    stored = data / "documents" / "house" / "memory" / "documents" / "api.yaml.md"
    assert "## GET /x\nBees" in stored.read_text("utf-8")
    code, told = run("add", other, "--project", "house", "--data-dir", data)
    assert code == 2
    assert "no OpenAPI" in told
    assert run("add", api, "--data-dir", data)[0] == 2
