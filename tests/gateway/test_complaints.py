"""People are told what is wrong in the words of whoever checked it, without what pydantic puts before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from gateway.config import BadConfig, load
from gateway.http.problems import invalid
from gateway.jobs.policy import JobPolicy
from gateway.jobs.reading import reason_of

if TYPE_CHECKING:
    from pathlib import Path

NAME = "a name has letters, digits, - and _, at most 64, and starts with a letter or digit"


def refused(**fields: str) -> ValidationError:
    with pytest.raises(ValidationError) as raised:
        JobPolicy.model_validate({"name": "tea", "message": "x", **fields})
    return raised.value


def test_of_a_setting(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("models:\n  big: {provider: openai, model: m, base_url: nowhere}\n")
    with pytest.raises(BadConfig) as raised:
        load(path, {})
    assert raised.value.problems == [
        "models.big.base_url: this is no address of an API, such as http://127.0.0.1:11434/v1."
    ]


def test_of_a_request() -> None:
    problem = invalid(refused(name="?", every="1h"), JobPolicy)
    assert problem.detail == f"name: {NAME}"


def test_of_a_job_that_is_set_aside() -> None:
    assert reason_of(refused(name="?", every="1h")) == f"name: {NAME}"
    assert reason_of(refused()) == "a job needs exactly one of schedule (a cron expression), every and at"
