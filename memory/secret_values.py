"""What a secret value looks like, and what looks like one and is none."""

from __future__ import annotations

import itertools
import re

from memory.secret_shapes import CARD

QUOTES = "\"'`„“"
HARMLESS = frozenset(
    "a an the not no now so too very also already always never only still in on at by for from of to with stored kept "
    "saved required needed expired wrong correct missing empty unknown optional invalid valid secret encrypted hashed "
    "changed rotated reset ok fine long short weak strong safe different same shared private public used set being "
    "it that this which what where who one none null true false generated written known sent given visible hidden "
    "shown printed managed handled checked verified validated updated created chosen assigned recorded noted "
    "documented listed displayed requested asked accepted rejected refused blocked locked disabled enabled active "
    "inactive old new easy hard simple complex secure insecure mandatory important available unavailable lost "
    "forgotten leaked compromised exposed stolen case-sensitive up-to-date tbd todo n/a unset unchanged yes "
    "je v na ne není uložené uloženo špatně povinné prošlé ulozene ulozeno spatne povinne prosle napsane napsano "
    "zname tajne silne slabe stejne jine nove stare dlouhe kratke potreba zmenene příliš prilis velmi nevím "
    "nicht in im ein eine der die das falsch abgelaufen bekannt notwendig erforderlich pflicht geheim sicher unsicher "
    "gespeichert notiert gleich neu alt lang kurz richtig leer unbekannt keine zu sehr "
    "obligatoire requis incorrect incorrecte connu inconnu faux vide stocké noté secret nécessaire dans sur trop très "
    "obligatoria obligatorio requerida requerido incorrecta incorrecto conocida desconocida segura vacía guardada "
    "necesaria secreta en muy".split()
)
"""Words after "the password is" that are no password."""
SAYINGS = frozenset(
    "ask see look email call contact check must should can may will written find found at min max minimum maximum "
    "between use up "
    "viz zeptej zeptat podívej hledej je jsou má musí visí leží stejné stejný jako napsané uložené nejméně "
    "siehe frag frage fragen steht liegt hängt muss soll wie gleich mindestens "
    "voir demander demande demandez doit comme même au "
    "ver véase preguntar pregunta preguntad debe está igual misma mínimo "
    "vedi chiedi chiedere deve nel nella perguntar patrz zapytaj musi "
    "см смотри спроси спросить хранится записан".split()
)
"""Words after "password:" that begin to say where it is or how it must be, where more words follow."""
MEASURES = frozenset(
    "words characters letters digits symbols slova slov znaky znaků písmen číslic wörter wörtern zeichen buchstaben "
    "ziffern mots caractères lettres chiffres palabras caracteres letras dígitos".split()
)
"""What a secret is counted in."""
OF = frozenset(
    "for of to from at on k ke do od z ze na pro u für zum zur von vom des der de del della dell dello do da dos das "
    "du d pour para al van voor het от для к number číslo nummer".split()
)
"""Words behind a name that begin to say what it is of: "the code for the alarm"."""
UNSPACED_SAYINGS = re.compile("[见見在请請问問忘无無没沒不]|ถาม|อยู่|ดู|ไม่|ลืม|เก็บ|จด")
UNSPACED_LETTER = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
ASCII_PIECE = re.compile(r"[!-~]{4}")
TAKEN = re.compile(r"^\[|\[[a-z]{3,8}$|^removed\]")
"""The first word of a placeholder, and its last."""
UNITS = re.compile(
    r"(?i)\s{0,2}(?:%|€|\$|[°/:.-]\d|(?:mm?|cm|km|kg|g|v|mv|czk|kč|eur|usd|people|lidí|metres|meters|miles|metrů|minutes|minut|"
    r"hours|hodin|seconds|sekund|days|dní|times|krát|characters|znaků|words|slov|digits|číslic|cifer|ziffern|chiffres|dígitos|letters|lines|řádků|tokens|users|points|votes|ohms?)\b)"
)
"""Behind a number these make it an amount: "1500 m away", "5000 tokens"."""
ENDING = re.compile(
    r"\s{0,3}(?:$|[\n.,;!?)\"'…。，；！]|(?:and|or|but|for|to|at|so|please|because|since|if|when|now|a|i|k|ke|na|pro|nebo|ale"
    r"|und|oder|für|bitte|et|ou|pour|y|para|e|per|и|для)\s)"
)
"""Behind a secret: the end of what is said, or a word that goes on from it, and not what it would be an amount of."""
PLAIN_SHAPE = re.compile(
    r"""(?ix)
      \d{1,4}[./:-]\d{1,2}(?:[./:-]\d{0,4})?(?:t[\d:.z+-]{0,20})?(?:am|pm|h)?   # dates and times
    | v?\d{1,5}(?:[.,]\d{1,5}){1,4}(?:[a-z]{1,3}\d{0,2})?                     # versions and amounts
    | \d{1,5} | \d{1,6}(?:[-/.][a-zá-ž]{1,20}){1,3}                            # counts, "8-character"
    | \d{1,6}(?:st|nd|rd|th|x|k|m|g|s|h|min|ms|gb|mb|kb|kč|v|w|am|pm|px)
    | [a-z]{1,2}-?\d{1,4}                                                      # rooms, trains, papers
    | (?:sha|aes|rsa|wpa|utf|iso|rfc|oauth|tls|argon|base|ed|gpt|cve|http|ipv|covid
      |bcrypt|scrypt|pbkdf|ecdsa|hmac|erc|bip|ieee|totp)[\w.]{0,4}-?[\d./:-]{1,12}(?:-?[a-z]{1,20}){0,2}
    | [1-9]password[\w']{0,3} | (?:last|kee)pass\w{0,5} | bitwarden | icloud | github | gitlab | onedrive | paypal
    | youtube | whatsapp | linkedin
    | [\w-]{1,60}\.(?:py|ts|js|go|rs|md|txt|json|ya?ml|toml|pdf|html?|docx?|xlsx?|csv|png|jpe?g)
    | [\w.+-]{1,64}@[\w-]{1,63}(?:\.[a-z]{2,20}){1,4}                          # addresses
    | (?:https?:)?//.{0,400} | www\..{0,400} | [/~].{0,400}
    """
)
"""What has digits or signs, and is no secret."""


def bare_value(value: str) -> str:
    """Without quotation marks, and without the end of its sentence."""
    return value.strip(QUOTES).rstrip(".!?")


def is_code(bare: str, value: re.Match[str]) -> bool:
    """Three to eight digits that are neither a year, nor an amount, nor the beginning of a card's number."""
    if not bare.isdecimal() or not 3 <= len(bare) <= 8 or (len(bare) == 4 and bare[:2] in ("19", "20")):
        return False
    return UNITS.match(value.string, value.end()) is None and CARD.match(value.string, value.start(1)) is None


def is_prose(bare: str) -> bool:
    """Words of a script without spaces, also with a number among them ("8位数")."""
    return UNSPACED_LETTER.search(bare) is not None and ASCII_PIECE.search(bare) is None


def looks_secret(bare: str, *, last: bool) -> bool:
    """Digits, signs inside a word ("S3cr!t"), or, where the sentence ends (`last`), capitals inside ("SunFlower")."""
    if is_prose(bare) or not _is_odd(bare):
        return False
    if bare.isdecimal() or is_mixed(bare):
        return True
    if any(sign in bare for sign in "!@#$%^&*+=~?_|\\") and any(c.isalpha() for c in bare):
        return True
    return last and any(a.islower() and b.isupper() for a, b in itertools.pairwise(bare))


def is_mixed(bare: str) -> bool:
    """Letters and digits: "Kocour123"."""
    return _is_odd(bare) and any(c.isalpha() for c in bare) and any(c.isdigit() for c in bare)


def _is_odd(bare: str) -> bool:
    return len(bare) >= 6 and TAKEN.search(bare) is None and PLAIN_SHAPE.fullmatch(bare) is None
