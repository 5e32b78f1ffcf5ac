"""Words by which the rules summary knows a decision, a prohibition, a preference or a change, in four languages."""

from __future__ import annotations

DECISIONS = (
    "decided", "decide to", "let's go with", "we will use", "we'll use", "agreed", "settled on", "chose ", "will go with",
    "the plan is", "rozhodl", "rozhodnut", "domluvili", "dohodli", "použijeme", "vybrali", "zvolili", "platí, že",
    "ตัดสินใจ", "ตกลง", "เลือกใช้", "สรุปว่า", "จะใช้", "决定", "同意", "选择", "采用", "就用",
)  # fmt: skip
CONSTRAINTS = (
    " never ", " must not", "mustn't", " do not ", "don't ", " must ", "not allowed", " only ", " always ", "forbidden",
    "at most", "at least", "deadline", "no later than", "nikdy", "nesmí", "musí", "zakáz", "pouze", "jenom", "vždy",
    "nejvýše", "nejpozději", "ne dříve", "ห้าม", "อย่า", "ต้อง", "เท่านั้น", "เสมอ", "ไม่เกิน", "不要", "不能", "禁止", "必须", "只能", "总是",
    "最多", "至少",
)  # fmt: skip
PREFERENCES = (
    "i prefer", "i like", "i love", "i hate", "i'm allergic", "i am allergic", "my name is", "call me", "i live", "i work",
    "my wife", "my husband", "my son", "my daughter", "my favourite", "my favorite", "jmenuji se", "mám rád", "nemám rád",
    "raději", "radši", "preferuji", "bydlím", "pracuji", "jsem alerg", "moje žena", "můj muž", "můj syn", "moje dcera",
    "ชอบ", "ไม่ชอบ", "ชื่อ", "แพ้", "อาศัยอยู่", "ทำงานที่", "喜欢", "我叫", "我住", "过敏", "我是", "更喜欢",
)  # fmt: skip
CHANGES = (
    " now ", "no longer", "instead", "rather than", "changed", "moved", "switched", "correction", "from now on", "any more",
    "anymore", "actually", " teď ", " nyní ", "nově", "už ne", "místo ", "změn", "oprav", "přesun", "přesou", "odteď",
    "od teď", "nakonec", "ตอนนี้", "เปลี่ยน", "แทน", "แก้ไข", "เลื่อน", "ไม่ใช่แล้ว", "现在", "改成", "改为", "改到", "换成", "而不是",
    "不再", "更正",
)  # fmt: skip
INSTEAD = (
    r"\b(?:instead of|rather than) ([^,.;!?]{1,60})", r"\b(?:changed|moved|switched)\b[^.;]{0,40}? from ([^,.;!?]{1,40}?) to ",
    r"\bmísto ([^\s,.;!?]+(?: [^\W\d]+)?)", r"\b(?:změn\w*|přesu\w*|přeš\w*)[^.;]{0,40}? ze? ([^,.;!?]{1,40}?) na ",
    r"แทน(?:ที่)?\s*([^\s,.;!?]{1,40})", r"จาก\s*([^,.;!?]{1,40}?)\s*เป็น", r"而不是([^,。;!?,]{1,20})",
    r"[从把]([^,。;!?,]{1,20}?)(?:改成|改为|换成)",
)  # fmt: skip
STOPWORDS = frozenset(
    "the and for are was were that this with you your have has had not but can will would could should what when where which "
    "who how why from they them their there here then than too very just about into over also any all some more most its "
    "it's i'm don't is it of to in on at by an be as or if we me my he she his her our us do does did so no yes up out "
    "je se na to že si jsem jsi jsou být bylo byla byl ale jak co kdo kde kdy proč aby když nebo tak ten ta ty tu pro při po "
    "od do za ze ve už ještě jen mi mě mám máš má můj moje jeho její jejich nás vás bude budu".split()
)
