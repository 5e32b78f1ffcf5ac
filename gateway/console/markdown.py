"""Text of people and models as HTML that can do nothing: rendered, then sanitised."""

from __future__ import annotations

from functools import cache

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup

# No images, forms, styles or frames: a message can neither load anything nor look like a part of the page.
TAGS = frozenset(
    "p br hr h1 h2 h3 h4 h5 h6 em strong s code pre blockquote ul ol li table thead tbody tr th td a".split()
)
ATTRIBUTES = {"a": {"href"}, "ol": {"start"}}
MAX_CHARACTERS = 200_000


@cache
def _renderer() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "linkify": False, "breaks": True}).enable(
        ["table", "strikethrough"]
    )


def to_html(text: str) -> Markup:
    """Markdown as safe HTML; what is longer than MAX_CHARACTERS is shown as it is, which is quicker."""
    if len(text) > MAX_CHARACTERS:
        return Markup("<pre>{}</pre>").format(text)
    html = nh3.clean(
        _renderer().render(text),
        tags=set(TAGS),
        attributes=ATTRIBUTES,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    return Markup(html)  # noqa: S704  (sanitised in the line above)
