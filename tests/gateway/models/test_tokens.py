from __future__ import annotations

import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.models.tokens import CHUNK, TokenCounter, encoding, load

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> TokenCounter:
    return load(tmp_path_factory.mktemp("cache"))


def test_it_loads_with_no_network_and_mends_a_damaged_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    encoding.cache_clear()
    load(tmp_path)
    (cached,) = tmp_path.iterdir()
    whole = cached.read_bytes()
    cached.write_bytes(whole[:-100])
    encoding.cache_clear()
    assert load(tmp_path).count("hello world") == 2
    assert cached.read_bytes() == whole


def test_the_tokenizer_of_the_wheel_is_not_loaded_beside_ours(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; from gateway.models.tokens import load;"
        f"load(pathlib.Path({str(tmp_path)!r})); print('bpe_openai' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]


def test_known_texts_have_their_known_length(counter: TokenCounter) -> None:
    assert counter.count("") == 0
    assert counter.count("hello world") == 2
    assert counter.count("tiktoken is great!") == 6


def test_special_tokens_in_a_text_are_text(counter: TokenCounter) -> None:
    assert counter.count("<|endoftext|>") > 1


def test_half_a_surrogate_pair_is_counted(counter: TokenCounter) -> None:
    assert counter.count("a\ud83d") > 0


@pytest.mark.parametrize("piece", ["a", " ", "\n", "!", "ก", "字", "🙂", "a1", "\u0301"])
def test_a_million_of_the_same_takes_no_time(counter: TokenCounter, piece: str) -> None:
    started = time.process_time()
    assert counter.count(piece * (1_000_000 // len(piece))) > 0
    assert time.process_time() - started < 5


@given(st.text(min_size=1, max_size=200), st.integers(1, 5000))
def test_where_a_long_text_is_cut_hardly_matters(counter: TokenCounter, text: str, place: int) -> None:
    long = (text * (CHUNK // len(text) + 1))[: CHUNK + 5000]
    in_two = counter.count(long[:place]) + counter.count(long[place:])
    assert abs(counter.count(long) - in_two) <= 10
