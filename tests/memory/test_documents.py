"""Documents become Markdown that can be searched, or are refused with a reason."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.documents import PDF_S, bounded, to_markdown
from memory.errors import InvalidMemory
from memory.openapi import is_openapi, openapi_text

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


MOST = 5_000_000
CZECH = "Včela královna žije v úlu."


def read(ending: str, content: bytes, max_bytes: int = MOST) -> str:
    return to_markdown(ending, content, max_bytes=max_bytes)


def rendered(value: dict[str, Any]) -> str:
    return bounded(openapi_text(value), MOST)


def test_text_stays_as_it_is() -> None:
    assert read("md", "# Úl\n".encode()) == "# Úl\n"
    assert read("TXT", b"\xef\xbb\xbfa") == "a"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_text_that_is_marked_is_read_as_its_mark_says(encoding: str) -> None:
    assert read("txt", CZECH.encode(encoding)) == CZECH


@pytest.mark.parametrize("encoding", ["cp1250", "latin-1", "utf-16-le"])
def test_a_text_in_an_encoding_that_would_be_a_guess_is_refused_in_words(encoding: str) -> None:
    with pytest.raises(InvalidMemory, match=r"no UTF-8; save it as UTF-8|it is no text"):
        read("txt", CZECH.replace("č", "e").replace("ž", "z").encode(encoding))


def test_a_page_is_read_as_it_declares_unless_it_is_utf_8() -> None:
    page = f'<meta charset="windows-1250"><p>{CZECH}</p>'
    assert read("html", page.encode("cp1250")) == read("html", page.encode()) == CZECH
    for other in ("zip", "utf-7", "?"):
        with pytest.raises(InvalidMemory, match="no UTF-8"):
            read("html", page.replace("windows-1250", other).encode("cp1250"))


def test_a_text_that_would_never_be_indexed_is_refused_with_the_limit() -> None:
    assert read("txt", b"x" * 100, 100) == "x" * 100
    for ending, content in (("txt", b"x" * 101), ("html", b"<p>" + b"x" * 101), ("pdf", pdf("x" * 101))):
        with pytest.raises(InvalidMemory, match="more than 100 bytes, the limit of "):
            read(ending, content, 100)


def test_a_pdf_that_takes_too_long_is_refused() -> None:
    elapsed = iter([1.0, PDF_S + 1])
    with pytest.raises(InvalidMemory, match="takes longer than 60 s"):
        to_markdown("pdf", pdf("a", "b"), max_bytes=MOST, elapsed_s=lambda: next(elapsed))


@pytest.mark.parametrize("piece", ["<!--", "<a ", "<a x='", "</", "<title>", "<script></", "<![CDATA[", "<p><b></p>"])
def test_no_page_takes_a_time_that_grows_with_the_square_of_its_length(piece: str) -> None:
    with contextlib.suppress(InvalidMemory):
        read("html", (piece * 100_000).encode())


@pytest.mark.parametrize("piece", ["<div>", "<div></z>", "<B>"])
def test_a_page_whose_tags_are_inside_each_other_too_deep_is_refused(piece: str) -> None:
    with pytest.raises(InvalidMemory, match="inside each other"):
        read("html", (piece * 3000).encode())


def test_a_page_gives_what_is_shown_on_it() -> None:
    assert read("html", PAGE) == "# Hive\n\nThe queen is green.\n\n- one\n- two\n\n| a | b"


def test_a_page_whose_head_is_not_ended_gives_its_text() -> None:
    page = b"<!doctype html><head><title>Mills</title><style>p {}</style><body><p>Bread is baked.</p>"
    assert read("html", page) == "Bread is baked."


def test_a_pdf_gives_its_pages() -> None:
    assert read("pdf", pdf("The queen is green", "Drones fly")) == (
        "## Page 1\n\nThe queen is green\n\n## Page 2\n\nDrones fly"
    )


def test_an_api_gives_a_section_for_each_operation() -> None:
    assert is_openapi(API)
    text = rendered(API)
    assert "# Bees 2\n\nAll about bees." in text
    assert "## GET /hives/{id}\nOne hive\n- id (path): its number\n- answers 200: the hive" in text
    assert "## POST /hives/{id}\n- body queen: colour" in text


def api(path: dict[str, Any], **components: Any) -> str:
    return rendered({"openapi": "3.1.0", "paths": {"/hives": path}, "components": components})


def test_what_an_api_refers_to_is_found_where_it_is_used() -> None:
    text = api(
        {
            "parameters": [{"$ref": "#/components/parameters/yard"}, {"name": "lang", "in": "query"}],
            "post": {
                "parameters": [{"name": "lang", "in": "query", "description": "of the answer"}],
                "requestBody": {"$ref": "#/components/requestBodies/hive"},
                "responses": {"404": {"$ref": "#/components/responses/a~1b"}, "500": {"$ref": "other.yaml#/x"}},
            },
        },
        parameters={"yard": {"name": "yard", "in": "header", "description": "where it stands"}},
        requestBodies={"hive": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/hive"}}}}},
        responses={"a/b": {"description": "no such yard"}},
        schemas={
            "hive": {
                "allOf": [{"$ref": "#/components/schemas/thing"}],
                "properties": {"queen": {"description": "hue"}},
            },
            "thing": {"properties": {"part": {"$ref": "#/components/schemas/hive", "description": "inside"}}},
        },
    )
    assert text.splitlines()[2:] == [
        "## POST /hives",
        "- yard (header): where it stands",
        "- lang (query): of the answer",
        "- body part: inside",
        "- body queen: hue",
        "- answers 404: no such yard",
        "- answers 500: other.yaml#/x",
    ]


def test_references_in_a_circle_end_and_those_without_end_are_refused() -> None:
    circle = {"a": {"$ref": "#/components/parameters/b"}, "b": {"$ref": "#/components/parameters/a"}}
    assert "## GET /hives" in api({"get": {"parameters": [{"$ref": "#/components/parameters/a"}]}}, parameters=circle)
    many = {str(n): {"allOf": [{"$ref": f"#/components/schemas/{n + 1}"}] * 100} for n in range(6)}
    body = {"content": {"x": {"schema": {"$ref": "#/components/schemas/0"}}}}
    with pytest.raises(InvalidMemory, match="refer to each other too often"):
        api({"get": {"requestBody": body}}, schemas=many)


def test_a_description_whose_text_grows_without_end_is_refused() -> None:
    text = {"description": "x" * 100_000}
    with pytest.raises(InvalidMemory, match="limit"):
        api(
            {"get": {"responses": {str(n): {"$ref": "#/components/responses/x"} for n in range(99)}}},
            responses={"x": text},
        )


@pytest.mark.parametrize(
    ("ending", "content"), [("exe", b"MZ"), ("txt", b"a\0b"), ("pdf", b"no pdf"), ("pdf", pdf("")), ("", b"x")]
)
def test_what_cannot_be_read_is_refused_with_a_reason(ending: str, content: bytes) -> None:
    with pytest.raises(InvalidMemory, match="document"):
        read(ending, content)


@given(st.text())
def test_no_page_breaks_the_reader(text: str) -> None:
    with contextlib.suppress(InvalidMemory):
        read("html", text.replace("\0", "").encode("utf-8", "replace"))


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
    rendered({"openapi": "3", "paths": value, "info": value})


@pytest.mark.parametrize(
    ("ending", "content"), [("txt", b""), ("md", b" \n\t\xc2\xa0"), ("html", b"<p> </p><script>x</script>")]
)
def test_what_holds_no_text_is_refused(ending: str, content: bytes) -> None:
    with pytest.raises(InvalidMemory, match="no text"):
        to_markdown(ending, content, max_bytes=100)
