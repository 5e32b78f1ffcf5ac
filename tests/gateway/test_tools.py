"""Which built-in tools are offered."""

from __future__ import annotations

from compaction.layout import ToolSpec
from gateway.tools import fitting


def spec(name: str) -> ToolSpec:
    return ToolSpec(name=name, description="A tool.")


def test_in_a_small_window_only_the_first_tools_are_offered() -> None:
    tools = [spec("one"), spec("two"), spec("three")]
    offered = [[tool.name for tool in fitting(tools, limit, lambda _: 100)] for limit in (0, 99, 100, 250, 300)]
    assert offered == [[], [], ["one"], ["one", "two"], ["one", "two", "three"]]
