"""The configuration as a page shows it, and what a person may choose."""

from __future__ import annotations

from gateway.config import Config
from gateway.console.personal import choices_of
from gateway.console.settings import settings_of
from memory.policy import MemoryPolicy


def test_what_is_set_stands_apart_and_a_secret_is_never_shown() -> None:
    config = Config.model_validate(
        {
            "server": {"port": 9000},
            "models": {
                "chat": {"provider": "openai", "base_url": "http://x", "model": "m", "api_key": "sk-very-secret"}
            },
            "deliver": {"allow": ["10.0.0.1:80"]},
        }
    )
    sections = {section.name: section for section in settings_of(config)}
    changed = {one.path: one.value for one in sections["server"].settings if one.is_set}
    assert changed == {"server.port": "9000"}
    assert sections["queue"].set_count == 0
    assert [one.value for one in sections["deliver"].settings if one.is_set] == ['[\n  "10.0.0.1:80"\n]']
    assert "sk-very-secret" not in str(sections)
    assert "auth" not in sections


def test_what_a_person_may_choose_has_its_kind_bounds_and_what_is_configured() -> None:
    groups = choices_of(MemoryPolicy(), {"recall.limit": 3})
    choices = {one.name: one for group in groups.values() for one in group}
    limit = choices["recall.limit"]
    assert (limit.chosen, limit.configured, limit.is_whole, limit.least, limit.most) == (3, 10, True, 0, 100)
    assert choices["recall.on_message"].is_switch
    assert choices["recall.mid_turn.searches"].chosen is None
    assert choices["recall.mid_turn.searches"].text == "recall_mid_turn_searches"
