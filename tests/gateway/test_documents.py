"""Descriptions of APIs as people have them: JSON and YAML, well and badly written."""

from __future__ import annotations

import pytest

from gateway.documents import converted
from memory.errors import InvalidMemory


def test_json_may_hold_tabs_and_pairs_of_surrogates() -> None:
    said = b'{\n\t"openapi": "3.1.0",\n\t"info": {"title": "Bees \\ud83d\\ude00", "version": "1"},\n\t"paths": {}\n}'
    assert converted("api.json", said) == "# Bees \N{GRINNING FACE} 1"


@pytest.mark.parametrize("content", [b"openapi: 3\npaths: {}\nsince: 2026-02-30\n", b"\xff\xfe\x00", b"{", b"[]", b""])
def test_what_is_no_description_is_refused_with_a_reason(content: bytes) -> None:
    with pytest.raises(InvalidMemory, match="document"):
        converted("api.yaml", content)
