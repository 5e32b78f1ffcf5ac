"""Numbers that are secrets because a word for a code stands by them: "the code for the alarm is 7741"."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from memory.letter_case import lowered
from memory.secret_shapes import CARD
from memory.secret_values import ENDING, OF, UNITS
from memory.text import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BEGINNINGS = (
    "cod",
    "cód",
    "kod",
    "kód",
    "код",
    "combination",
    "clave",
    "geheimzahl",
    "pin",
    "otp",
    "puk",
    "pass",
    "hesl",
    "senha",
)
"""What the names begin with: a text that holds none of these needs no closer look."""
NAME = re.compile(
    r"(?:c[oó]d(?:es?|igos?|ice|ul)|k[oó]d(?:u|em|en|e|y)?|код(?:а|ом|у|ы)?|combination|clave|geheimzahl|pin|otp|puk"
    r"|password|passcode|passwort|hesl[oa]|senha)(?![^\W_])"
)
PINS = frozenset(("pin", "geheimzahl", "otp", "puk"))
PASSWORDS = frozenset(("password", "passcode", "passwort", "heslo", "hesla", "senha"))
"""Of these a short number is a secret only where they open something, as "the password of the safe"."""
LINK = re.compile(
    r"(?:\s{0,3}(?:[:=：＝]|=>|->)|['’]s"
    r"|\s(?:is|are|was|je|jsou|ist|lautet|est|es|è|é|to|jest|är|это|bude|zní|zni))"
    r"(?:\s{1,3}(?:now|still|currently|number|teď|nyní|jetzt|ahora|le|el|il))?\s{0,3}$"
)
"""What ends right before a number, and says that it is the code."""
VALUE = re.compile(
    r"(?i)[#*]?(\d\d?(?:[ -]\d\d?){2,3}|\d\d[ -]\d\d|\d{3}[ -]\d{3}|\d{3,8}|\d(?:[ -]\d){3,7}"
    r"|(?=[a-z]{0,4}\d)[a-z0-9]{4,10})[#*]?(?![a-z0-9à-öø-ÿ_\u0100-\u024f]|[-./:,]\d)"
)
"""7741, 77 41, 7-7-4-1, 12-34-56, 45B21."""
BEFORE = re.compile(
    r"(?<![^\s(\"'])[#*]?(\d{4,8})[#*]?\s(?:is|was|je|ist|est|es|è|é|to|jest|это)\s"
    r"(?:(?:the|my|our|der|die|das|mein|meine|unser|le|mon|notre|el|mi|il|o|můj|náš|de|mijn)\s)?"
    r"(?:[^\W\d_]{2,20}[ -]){0,2}$"
)
"""7741 is the alarm ..., before the name."""
THREE_DIGITS = re.compile(r"\d[ A-Za-z-]?\d[ A-Za-z-]?\d")
CLAUSE_END = re.compile(r"[.,;:!?()\[\]\n…]")
WORD = re.compile(r"[^\W\d_]+")
DIGIT = re.compile(r"\d")
LETTERS_BEFORE = 4
WINDOW, AROUND, MOST_WORDS = 80, 48, 7
"""Characters looked at behind a name and before it, and words between it and its number."""

AND = frozenset("and or but nor nebo ale und oder aber et ou y и или но".split())


LOCKS = frozenset(
    fold(
        "alarm door gate lock unlock padlock safe garage entry entrance access disarm keypad intercom doorbell vault "
        "verification security voicemail open opens opened keybox locker pin "
        "otevír otevř odemč dveř dver vrat brán bran zámek zámk trezor sejf garáž vchod vstup odemyk "
        "odemk přístup ověřov zabezpeč "
        "tür haustür tor tresor garagen eingang schloss zugang zutritt einlass entsperr sicherheit bestätigung "
        "porte portail immeuble coffre cadenas accès digi interphone vérification "
        "puerta alarma portal caja garaje candado acceso seguridad cerradura verificación "
        "porta allarme cancello cassaforte lucchetto accesso portão cofre cadeado alarme garagem "
        "drzwi bram furtk domofon deur poort kluis toegang "
        "домофон двер сигнализац сейф подъезд ворот замк доступ подтвержд калитк пин карт poart kapi"
    ).split()
)
"""What a secret code opens, by the beginnings of the words."""
OTHERS = frozenset(
    fold(
        "area zip postal postcode post error status exit return response http dress qr bar source country product item "
        "color colour promo promotion discount voucher coupon gift airport iata tax currency language order flight "
        "booking reservation dial dialling dialing swift sort iso class course model reference ref tracking project "
        "task ticket issue bug region city district state county department cost employee student customer client "
        "member invoice part icao vat nato icd diagnosis morse ascii unicode event cheat version "
        "name means article branch "
        "bank conduct review coverage freeze editor policy line lines test tests exam python java rust shipping parcel "
        "hash sku catalog catalogue serial file page "
        "znamen chyb chybov zem země stát produkt výrobk zboží barv měst objedn rezerv slev slevov kurz předmět stav "
        "návrat poštov směrov oblast "
        "čárov zdroj kraj okres obce škol zákazn zaměstn faktur daň verz soubor řádk "
        "fehler länder land farb artikel bestell buchung rabatt kurs postleit blz bedeutet vorwahl quell gebiet "
        "zeile zeilen "
        "erreur pays produit couleur projet commande réservation réduction barres ville statut ligne lignes "
        "país paises producto proyecto pedido reserva descuento barras fuente zona artículo estado línea líneas "
        "errore paese prodotto progetto ordine sconto fiscale fonte righe erro produto cores projeto desconto linhas "
        "poczt błęd rabat kresk źród zamów linii fout korting regel "
        "почтов ошиб стран товар цвет проект заказ скид штрих исход регион город област строк"
    ).split()
)
"""What other codes are of, by the beginnings of the words: "error code 4043"."""

THAI = re.compile(
    r"(?i)(?:รหัส|โค้ด|(พิน)(?![ัิ]))([\u0e01-\u0e4eA-Z ]{0,40}?)\s{0,3}(คือ|เป็น|[:=：])?"
    r"\s{0,3}[#*]?(\d{3,8})[#*]?(?!\d|[-./:,]\d|[A-Za-z])"
)
THAI_LOCKS = re.compile("ประตู|เซฟ|สัญญาณ|กันขโมย|ล็อ|กุญแจ|ยืนยัน|ลับ|เข้า|ปลด|พิน|ATM|SIM|PIN|OTP|เอทีเอ็ม|ไวไฟ|wifi|รั้ว|ลิฟต์")
THAI_OTHERS = re.compile(
    "ไปรษณีย์|สินค้า|นักเรียน|นักศึกษา|พนักงาน|ประจำตัว|วิชา|ประเทศ|พื้นที่|โครงการ|ลูกค้า|จอง|ผิดพลาด|สี|สถานะ|พัสดุ|ส่วนลด|โปรโมชั่น|แท่ง"
    "|สมาชิก|เที่ยวบิน|เมือง|จังหวัด|ภาษี|สาขา|(?:ที่|ใน|สมุด)หน้า|อยู่|เครื่อง|ปี|ทุก|เปลี่ยน"
)
THAI_UNITS = re.compile(r"\s{0,2}(?:วัน|ปี|บาท|บรรทัด|คน|ครั้ง|ตัว|หลัก|ชิ้น|เมตร|กิโล|นาที|ชั่วโมง|หน้า)")
EAST_ASIAN = re.compile(
    "(?:验证码|驗證碼|口令|门禁码|門禁碼|开门码|開門碼|开锁码|解锁码|解鎖碼|取件码|动态码|安全码|密码|密碼|暗証番号|認証コード|認証番号|確認コード|解除コード"
    "|パスワード|인증번호|비밀번호|비번)"
    r"(?:은|는|이|가|は|が|是|为|為)?\s{0,3}[:=：＝]?\s{0,3}(\d{4,8})(?!\d|[-./:,]\d|[A-Za-z]|\s?[位个個次年字桁개자회월])"
)


def without_codes(text: str, note: Callable[[str], str]) -> str:
    """The text without numbers that have a word for a code by them. `note` makes the placeholder of a kind."""
    if THREE_DIGITS.search(text) is None:
        return text
    out: list[str] = []
    at = 0
    for start, end in sorted(chain(_by_names(text), _thai(text), _east_asian(text))):
        if start >= at:
            out += [text[at:start], note("code")]
            at = end
    return "".join([*out, text[at:]])


# --- in languages with spaces -----------------------------------------------------------------------------------------


def _by_names(text: str) -> Iterator[tuple[int, int]]:
    plain = lowered(text)
    if not any(held in plain for held in BEGINNINGS):
        return
    for name in NAME.finditer(plain):
        before = plain[max(0, name.start() - AROUND) : name.start()]
        if DIGIT.search(plain, name.end(), name.end() + WINDOW) is None and DIGIT.search(before) is None:
            continue
        near = WORD.findall(CLAUSE_END.split(before)[-1])[-2:]
        if before[-1:].isalnum() and not (near and _begins(near[-1], LOCKS)):
            continue  # "Fehlercode", "unicode"
        if name[0] in PINS:
            near.append("pin")
        if value := _behind(plain, name, near):
            yield value.span()
        elif DIGIT.search(before) and (value := _in_front(plain, name, near)):
            yield value.span(1)


def _behind(text: str, name: re.Match[str], near: list[str]) -> re.Match[str] | None:
    """The first number behind a name, where it is the code."""
    first = DIGIT.search(text, name.end(), name.end() + WINDOW)
    value = None if first is None else VALUE.match(text, _start(text, first.start(), name.end()))
    if value is None or _is_amount(value, 1):
        return None
    between = text[name.end() : value.start()]
    link = LINK.search(between)
    gap = between if link is None else between[: link.start()]
    words = WORD.findall(gap)
    if CLAUSE_END.search(gap) or not _is_of(words):
        return None
    around = [*near, *words, *_words_behind(value)]
    if _any_of(around, OTHERS):
        return None
    if "pin" in near and _is_year(value[1]):
        return None
    if link is None:
        fits = value[1].isdecimal() and between[-1:].isspace() and not _is_year(value[1])
        return value if fits and _any_of(around, LOCKS) else None
    if _any_of(around, LOCKS):
        fits = not _is_year(value[1]) or ENDING.match(text, value.end()) is not None
    else:
        plain = name[0] not in PASSWORDS and value[1].isdecimal() and len(value[1]) >= 4 and not _is_year(value[1])
        fits = plain and ENDING.match(text, value.end()) is not None
    return value if fits else None


def _start(text: str, digit: int, least: int) -> int:
    """Where the word of a first digit begins: "B45", "#7741"."""
    at = digit
    while at > max(least, digit - LETTERS_BEFORE) and "a" <= text[at - 1] <= "z":
        at -= 1
    return at - 1 if at > least and text[at - 1] in "#*" else at


def _in_front(text: str, name: re.Match[str], near: list[str]) -> re.Match[str] | None:
    """The number that is said to be the code, right before the name: "7741 is the alarm code"."""
    value = BEFORE.search(text, max(0, name.start() - AROUND), name.start())
    if value is None or _is_year(value[1]) or name[0] in PASSWORDS:
        return None
    around = [*near, *_words_behind(name)]
    fits = _any_of(around, LOCKS) or ENDING.match(text, name.end()) is not None
    return value if fits and not _any_of(around, OTHERS) else None


def _words_behind(match: re.Match[str]) -> list[str]:
    """The next four words of the clause."""
    behind = match.string[match.end() : match.end() + AROUND]
    return WORD.findall(CLAUSE_END.split(behind, maxsplit=1)[0])[:4]


def _is_of(words: list[str]) -> bool:
    """A few words that say what it opens: " for the alarm", " alarmu", not " changed and the bus"."""
    if not words:
        return True
    if len(words) > MOST_WORDS:
        return False
    last_and = max((place for place, word in enumerate(words) if word in AND), default=-1)
    return (words[0] in OF and last_and < 0) or _any_of(words[last_and + 1 :], LOCKS)


def _any_of(words: Iterable[str], beginnings: frozenset[str]) -> bool:
    return any(_begins(word, beginnings) for word in words)


def _begins(word: str, beginnings: frozenset[str]) -> bool:
    """Whether a word begins with one of them; a short one has a short ending only: "land", not "landing"."""
    folded = fold(word)
    whole = len(folded)
    return any(folded[:length] in beginnings for length in range(max(2, min(whole - 2, 5)), whole + 1))


# --- in languages without spaces --------------------------------------------------------------------------------------


def _thai(text: str) -> Iterator[tuple[int, int]]:
    if text.isascii() or not any(name in text for name in ("รหัส", "โค้ด", "พิน")):
        return
    for found in THAI.finditer(text):
        pin, gap, link, digits = found.groups()
        if _is_amount(found, 4) or THAI_OTHERS.search(gap) or THAI_UNITS.match(text, found.end()):
            continue
        if pin or THAI_LOCKS.search(gap) or (link is not None and len(digits) >= 4):
            yield found.span(4)


def _east_asian(text: str) -> Iterator[tuple[int, int]]:
    if text.isascii():
        return
    for found in EAST_ASIAN.finditer(text):
        if not _is_amount(found, 1) and not _is_year(found[1]):
            yield found.span(1)


# --- what both share --------------------------------------------------------------------------------------------------


def _is_year(digits: str) -> bool:
    return len(digits) == 4 and digits[:2] in ("19", "20")


def _is_amount(value: re.Match[str], group: int) -> bool:
    """Whether the digits are so many of something, or begin the number of a card."""
    return (
        UNITS.match(value.string, value.end()) is not None or CARD.match(value.string, value.start(group)) is not None
    )
