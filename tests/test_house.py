"""What holds for the repository as a whole."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from pydantic import BaseModel

from gateway.config import Config, load
from gateway.config_example import render_example

ROOT = Path(__file__).parents[1]
TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "compaction",
    "config.example.yaml",
    "constraints.txt",
    "gateway",
    "memory",
    "pyproject.toml",
    "sessions",
    "tests",
}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [Path(line) for line in listed.splitlines()]


def test_the_top_level_holds_only_what_the_plan_names() -> None:
    assert {path.parts[0] for path in tracked()} <= TOP_LEVEL


def test_every_package_has_a_page() -> None:
    for package in ("gateway", "sessions", "compaction", "memory"):
        assert (ROOT / package / "README.md").is_file()


def test_versions_are_pinned_by_name_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", line) for line in lines)


def test_no_path_of_a_machine_and_no_registry_is_in_the_tree() -> None:
    pattern = re.compile(rb"/wor[k]/|/roo[t]/|files\.pythonhosted|py[p]i\.org|[n]pmjs")
    found = [str(path) for path in tracked() if (ROOT / path).is_file() and pattern.search((ROOT / path).read_bytes())]
    assert found == []


def test_nothing_waits_in_a_way_that_may_swallow_being_cancelled() -> None:
    """Python 3.11's wait_for returns as if nothing had been when what it waits for ends at the same moment."""
    packages = {"gateway", "sessions", "compaction", "memory"}
    code = [path for path in tracked() if path.parts[0] in packages and path.suffix == ".py"]
    assert [str(path) for path in code if "asyncio.wait_for" in (ROOT / path).read_text()] == []


def test_the_example_configuration_is_generated_and_loads() -> None:
    path = ROOT / "config.example.yaml"
    assert path.read_text("utf-8") == render_example()
    assert load(path, {}) == load(None, {})


def test_every_setting_says_what_it_is() -> None:
    silent: list[str] = []

    def visit(policy: type[BaseModel], place: str) -> None:
        for name, field in policy.model_fields.items():
            if not field.description:
                silent.append(f"{place}{name}")
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                visit(field.annotation, f"{place}{name}.")

    visit(Config, "")
    assert silent == []
