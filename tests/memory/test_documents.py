"""Documents become Markdown that can be searched, or are refused with a reason."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.documents import is_openapi, render_openapi, to_markdown
from memory.errors import InvalidMemory

PAGE = b"""<html><head><title>x</title><style>p{}</style></head><body><h1>Hive</h1><p>The queen
is <b>green</b>.</p><script>alert(1)</script><ul><li>one<li>two</ul><table><tr><td>a<td>b</table></body></html>"""
API = {
    "openapi": "3.1.0",
    "info": {"title": "Bees", "version": "2", "description": "All about bees."},
    "paths": {
        "/hives/{id}": {
            "get": {
                "summary": "One hive",
                "parameters": [{"name": "id", "in": "path", "description": "its number"}],
                "responses": {"200": {"description": "the hive"}},
            },
            "post": {
                "requestBody": {
                    "content": {"application/json": {"schema": {"properties": {"queen": {"description": "colour"}}}}}
                }
            },
        }
    },
}


def pdf(*pages: str) -> bytes:
    """A PDF with a line of text on each page."""
    objects = ["<</Type/Catalog/Pages 2 0 R>>", "", "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]
    kids: list[int] = []
    for text in pages:
        stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET"
        objects.append(f"<</Length {len(stream)}>>\nstream\n{stream}\nendstream")
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents {len(objects)} 0 R"
            "/Resources<</Font<</F1 3 0 R>>>>>>"
        )
        kids.append(len(objects))
    objects[1] = f"<</Type/Pages/Count {len(kids)}/Kids[{' '.join(f'{kid} 0 R' for kid in kids)}]>>"
    out = io.BytesIO(b"")
    out.write(b"%PDF-1.4\n")
    places: list[int] = []
    for number, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n{body}\nendobj\n".encode())
    start = out.tell()
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    out.writelines(f"{place:010} 00000 n \n".encode() for place in places)
    out.write(f"trailer\n<</Size {len(objects) + 1}/Root 1 0 R>>\nstartxref\n{start}\n%%EOF".encode())
    return out.getvalue()


def test_text_stays_as_it_is() -> None:
    assert to_markdown("md", "# Úl\n".encode()) == "# Úl\n"
    assert to_markdown("TXT", b"\xef\xbb\xbfa\xff") == "a\ufffd"


def test_a_page_gives_what_is_shown_on_it() -> None:
    assert to_markdown("html", PAGE) == "# Hive\n\nThe queen is green.\n\n- one\n- two\n\n| a | b"


def test_a_page_whose_head_is_not_ended_gives_its_text() -> None:
    page = b"<!doctype html><head><title>Mills</title><style>p {}</style><body><p>Bread is baked.</p>"
    assert to_markdown("html", page) == "Bread is baked."


def test_a_pdf_gives_its_pages() -> None:
    assert to_markdown("pdf", pdf("The queen is green", "Drones fly")) == (
        "## Page 1\n\nThe queen is green\n\n## Page 2\n\nDrones fly"
    )


def test_an_api_gives_a_section_for_each_operation() -> None:
    assert is_openapi(API)
    text = render_openapi(API)
    assert "# Bees 2\n\nAll about bees." in text
    assert "## GET /hives/{id}\nOne hive\n- id (path): its number\n- answers 200: the hive" in text
    assert "## POST /hives/{id}\n- body queen: colour" in text


@pytest.mark.parametrize(
    ("ending", "content"), [("exe", b"MZ"), ("txt", b"a\0b"), ("pdf", b"no pdf"), ("pdf", pdf("")), ("", b"x")]
)
def test_what_cannot_be_read_is_refused_with_a_reason(ending: str, content: bytes) -> None:
    with pytest.raises(InvalidMemory, match="document"):
        to_markdown(ending, content)


@given(st.text())
def test_no_page_breaks_the_reader(text: str) -> None:
    to_markdown("html", text.replace("\0", "").encode("utf-8", "replace"))


VALUES = st.recursive(
    st.none() | st.text(max_size=5) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["get", "parameters", "responses", "/x", "info", "requestBody", "content", "200"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(VALUES)
def test_no_description_breaks_the_renderer(value: object) -> None:
    render_openapi({"openapi": "3", "paths": value, "info": value})
