"""How much of what was planted in a conversation survives its compactions: kept, stale, invented, in neither place."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compaction.extract import extract_summary
from compaction.plan import Plan, next_generation, plan_compaction
from compaction.summary import completed, identifiers_in, render_summary, shortened, texts_of
from sessions.context import uncarried
from sessions.entries import AssistantEntry, Entry, SummaryEntry, UserEntry, turn_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from compaction.policy import CompactionPolicy
    from sessions.entries import JsonObject

SESSION = "01EVALUATION00000000000000"
FILLER_TURNS = 30

# class: (what is said, the piece that must survive), in each language
FACTS: dict[str, dict[str, tuple[str, str]]] = {
    "en": {
        "opaque id": ("The ticket is QX7-4431-ZK.", "QX7-4431-ZK"),
        "number with unit": ("The tank holds 385 kg.", "385 kg"),
        "date with zone": ("We launch on 2027-03-14T09:30+02:00.", "2027-03-14T09:30+02:00"),
        "name": ("My name is Bohumila Vaňková.", "Bohumila Vaňková"),
        "prohibition": ("Never call the supplier before noon.", "supplier before noon"),
        "preference": ("I prefer oat milk in my coffee.", "oat milk"),
        "decision with reason": ("We decided on Postgres because of the backups.", "Postgres because of the backups"),
        "quoted instruction": ("The letter says “burn this after reading”.", "burn this after reading"),
        "open ask": ("Can you find me a plumber in Brno?", "plumber in Brno"),
    },
    "cs": {
        "opaque id": ("Číslo tiketu je QX7-4431-ZK.", "QX7-4431-ZK"),
        "number with unit": ("Nádrž pojme 385 kg.", "385 kg"),
        "date with zone": ("Spouštíme 2027-03-14T09:30+02:00.", "2027-03-14T09:30+02:00"),
        "name": ("Jmenuji se Bohumila Vaňková.", "Bohumila Vaňková"),
        "prohibition": ("Dodavateli nikdy nevolej před polednem.", "nikdy nevolej před polednem"),
        "preference": ("Do kávy mám rád ovesné mléko.", "ovesné mléko"),
        "decision with reason": ("Rozhodli jsme se pro Postgres kvůli zálohám.", "Postgres kvůli zálohám"),
        "quoted instruction": ("V dopise stojí „po přečtení spal“.", "po přečtení spal"),
        "open ask": ("Najdeš mi instalatéra v Brně?", "instalatéra v Brně"),
    },
    "th": {
        "opaque id": ("หมายเลขตั๋วคือ QX7-4431-ZK", "QX7-4431-ZK"),
        "number with unit": ("ถังจุได้ 385 kg", "385 kg"),
        "date with zone": ("เราเปิดตัว 2027-03-14T09:30+02:00", "2027-03-14T09:30+02:00"),
        "name": ("ฉันชื่อ โบฮุมิลา", "โบฮุมิลา"),
        "prohibition": ("ห้ามโทรหาซัพพลายเออร์ก่อนเที่ยง", "ก่อนเที่ยง"),
        "preference": ("ฉันชอบนมข้าวโอ๊ตในกาแฟ", "นมข้าวโอ๊ต"),
        "decision with reason": ("เราตัดสินใจใช้ Postgres เพราะการสำรองข้อมูล", "เพราะการสำรองข้อมูล"),
        "quoted instruction": ("จดหมายเขียนว่า “อ่านแล้วเผาทิ้ง”", "อ่านแล้วเผาทิ้ง"),
        "open ask": ("ช่วยหาช่างประปาในเบอร์โนได้ไหม", "ช่างประปา"),
    },
    "zh": {
        "opaque id": ("工单号是 QX7-4431-ZK。", "QX7-4431-ZK"),
        "number with unit": ("水箱能装 385 kg。", "385 kg"),
        "date with zone": ("我们在 2027-03-14T09:30+02:00 上线。", "2027-03-14T09:30+02:00"),
        "name": ("我叫王小明。", "王小明"),
        "prohibition": ("中午之前不要给供应商打电话。", "不要给供应商打电话"),
        "preference": ("我喜欢咖啡里加燕麦奶。", "燕麦奶"),
        "decision with reason": ("我们决定用 Postgres,因为备份。", "因为备份"),
        "quoted instruction": ("信上写着“读后即焚”。", "读后即焚"),
        "open ask": ("你能在布尔诺帮我找个水管工吗?", "水管工"),
    },
}
FILLER = {
    "en": "Today the weather over hill {n} was calm and the walk to village {n} took a while.",
    "cs": "Dnes bylo nad kopcem {n} klidné počasí a cesta do vesnice {n} chvíli trvala.",
    "th": "วันนี้อากาศบนเนินเขา {n} สงบ และเดินไปหมู่บ้าน {n} ใช้เวลาสักพัก",
    "zh": "今天第{n}座山上天气平静,走到第{n}个村子花了一些时间。",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """After `generation` compactions: which planted classes can still be read in the prompt, and what must be 0."""

    language: str
    generation: int
    kept: dict[str, bool]
    invented: int
    neither: int
    tokens_share: float


def evaluate_rules(
    language: str, generations: int, policy: CompactionPolicy, window: int, count: Callable[[str], int], at: datetime
) -> list[Survival]:
    """Plants one fact of each class, then talks on and compacts by rules, `generations` times."""
    chat = _Chat(count, at)
    for said, _ in FACTS[language].values():
        chat.say(said)
    found: list[Survival] = []
    for generation in range(1, generations + 1):
        for _ in range(FILLER_TURNS):
            chat.say(FILLER[language].format(n=chat.seq))
        plan = plan_compaction(chat.file, policy, window)
        if isinstance(plan, Plan):
            chat.compact(plan, generation + 1, int(policy.summary_share * window))
            found.append(_judge(chat, language, generation, plan))
    return found


class _Chat:
    """A session in memory, written as a store would write it."""

    def __init__(self, count: Callable[[str], int], at: datetime) -> None:
        self._count = count
        self._at = at
        self.seq = 0
        self.file: list[Entry] = []
        self.said: dict[int, str] = {}

    def say(self, text: str) -> None:
        turn = turn_id(SESSION, self.seq + 1)
        for draft in (UserEntry(text=text, turn=turn), AssistantEntry(text="OK.", turn=turn)):
            self._write(dataclasses.replace(draft, tokens=self._count(draft.text)))
            self.said[self.seq] = draft.text

    def _write(self, draft: Entry) -> None:
        self.seq += 1
        self.file.append(draft.stamped(seq=self.seq, id="", at=self._at, turn=draft.turn))

    def compact(self, plan: Plan, generation: int, budget: int) -> None:
        previous = plan.previous.summary if plan.previous else None
        summary = completed(
            extract_summary(plan.fresh, previous), texts=texts_of(plan.fresh), previous=previous, generation=generation
        )
        summary = shortened(summary, budget, self._count)
        tokens = self._count(render_summary(summary))
        drafts = next_generation(plan, self.file, summary, by="rules", model=None, tokens=tokens)
        self.file = []
        for draft in drafts:
            self._write(draft)

    def summary(self) -> JsonObject:
        return next(e.summary for e in self.file if isinstance(e, SummaryEntry))


def _judge(chat: _Chat, language: str, generation: int, plan: Plan) -> Survival:
    there = {e.seq for e in uncarried(chat.file)}
    prompt = "\n".join([*_leaves(chat.summary()), *texts_of(uncarried(chat.file))])
    source = "\n".join(chat.said.values())
    return Survival(
        language=language,
        generation=generation,
        kept={name: piece in prompt for name, (_, piece) in FACTS[language].items()},
        invented=sum(1 for one in identifiers_in("\n".join(_leaves(chat.summary()))) if one not in source),
        neither=sum(1 for seq in chat.said if seq > plan.summarised_through and seq not in there),
        tokens_share=sum(e.tokens for e in chat.file) / plan.tokens_before,
    )


def _leaves(summary: JsonObject) -> Sequence[str]:
    return [item for value in summary.values() if isinstance(value, list) for item in value]  # pyright: ignore
