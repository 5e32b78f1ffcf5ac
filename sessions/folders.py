"""Names of folders that cannot leave their parent."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

MAX_FOLDER = 100
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])", re.IGNORECASE)


def agent_folder(agent: str) -> str:
    """A folder name that cannot leave its parent, different for different agents.

    All but letters, digits, `-` and `_` is percent-encoded, and the first letter of names some systems reserve. A long
    one ends in `~` and a hash; `~` is in no other.
    """
    safe = quote(agent, safe="").replace(".", "%2E").replace("~", "%7E")
    if _RESERVED.fullmatch(safe):
        safe = f"%{ord(safe[0]):02X}{safe[1:]}"
    if len(safe) > MAX_FOLDER:
        return f"{safe[:40]}~{hashlib.sha256(agent.encode()).hexdigest()[:32]}"
    return safe
