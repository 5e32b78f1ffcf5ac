from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.gateway.cli.conftest import CommandLine


async def test_helpers_are_told_apart_in_a_table_and_as_json(alone: CommandLine) -> None:
    shown = await alone.run("eval", "memory", "--model", "good", "--language", "en")
    assert shown.splitlines()[1].split()[:5] == ["good", "en", "3/3", "0", "0/11"]
    found = json.loads(await alone.run("eval", "memory", "--model", "broken", "--language", "cs", "--json"))
    (result,) = found["results"]
    assert (result["failed"], result["runs"], result["kept"]) == (11, 11, 0)
    assert all(result[rule] == 0 for rule in found["rules"])


async def test_an_unknown_language_or_model_is_refused_with_those_there_are(alone: CommandLine) -> None:
    refused = await alone.end("eval", "memory", "--language", "xx")
    assert (refused.exit_code, "en, cs, th, zh" in refused.stderr) == (2, True)
    refused = await alone.end("eval", "memory", "--model", "nobody")
    assert (refused.exit_code, "good, omits" in refused.stderr) == (2, True)
