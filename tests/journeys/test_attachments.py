"""Files that come with messages: uploaded ahead, named in a message, gone with the chat."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.journeys.daemon import KEY, Client, config, model_settings, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.standin import StandIn

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PNG = {"Content-Type": "image/png"}


def files_of(folder: Path) -> list[str]:
    return [path.name for path in (folder / "blobs").rglob("*") if path.is_file()]


async def upload(client: Client, content: bytes = PIXEL) -> str:
    status, made = await client.call("POST", "/v1/attachments?name=pixel.png", content, PNG)
    assert status == 201, made
    assert (made["media_type"], made["size_bytes"], made["name"]) == ("image/png", len(content), "pixel.png")
    return made["url"]


async def test_an_uploaded_image_reaches_the_model_and_goes_with_the_chat(
    client: Client, standin: StandIn, tmp_path: Path
) -> None:
    url = await upload(client)
    body = {"content": [{"type": "text", "text": "what is it?"}, {"type": "image", "url": url}], "request_id": "r1"}
    status, answer = await client.call("POST", f"/v1/sessions/{KEY}/messages", body)
    assert status == 200, answer
    sent = standin.requests[-1].body["messages"][-1]["content"]
    assert sent[1]["image_url"]["url"].endswith(base64.b64encode(PIXEL).decode())
    said = (await client.transcript())[0]
    assert said["tokens"] > 255  # one tile, and the text
    again = await client.call("POST", f"/v1/sessions/{KEY}/messages", body)
    assert again[1]["turn"] == answer["turn"]
    assert (await client.call("DELETE", f"/v1/sessions/{KEY}"))[0] == 200
    assert files_of(tmp_path / "data") == []
    gone = await client.call("POST", f"/v1/sessions/{KEY}/messages", {"content": [{"type": "image", "url": url}]})
    assert (gone[0], gone[1]["errors"][0]["place"]) == (422, "content.0.url")


async def test_a_multipart_upload_brings_its_name(client: Client) -> None:
    form = aiohttp.FormData()
    form.add_field("file", PIXEL, filename="photo.png", content_type="image/png")
    async with client._session.post(f"{client.url}/v1/attachments", data=form) as response:
        made = await response.json()
        assert (response.status, made["name"], made["media_type"]) == (201, "photo.png", "image/png")


async def test_an_upload_is_for_its_owner_only(tmp_path: Path, standin: StandIn) -> None:
    tokens: list[dict[str, Any]] = [
        {"name": name, "token": name, "role": "user", "user": name} for name in ("ana", "bob")
    ]
    settings = config(auth={"tokens": tokens}, **model_settings(standin.base_url))
    async with running(tmp_path, settings) as client:
        client.token = "ana"
        url = await upload(client)
        client.token = "bob"
        key = "agent:main:web:direct:bob"
        stolen = await client.call("POST", f"/v1/sessions/{key}/messages", {"content": [{"type": "image", "url": url}]})
        assert stolen[0] == 422
        image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
        chat = {"model": "agent/main", "messages": [image]}
        assert (await client.call("POST", "/v1/chat/completions", chat))[0] == 400
        client.token = "ana"
        assert (await client.call("POST", "/v1/chat/completions", chat))[0] == 200


async def test_uploads_have_their_limits(tmp_path: Path) -> None:
    async with running(tmp_path, config(sessions={"max_attachment_bytes": 1000})) as client:
        status, told = await client.call("POST", "/v1/attachments", b"x" * 1001, PNG)
        assert (status, told["title"]) == (413, "Attachment too large")
        assert (await client.call("POST", "/v1/attachments", b"", PNG))[0] == 422
        form = {"Content-Type": "multipart/form-data; boundary=b"}
        large = b'--b\r\nContent-Disposition: form-data; name="f"\r\n\r\n' + b"x" * 5000 + b"\r\n--b--\r\n"
        assert (await client.call("POST", "/v1/attachments", large, form))[0] == 413
        for broken in (b"nonsense", b"--b--\r\n", b"--b\r\n"):
            assert (await client.call("POST", "/v1/attachments", broken, form))[0] in (400, 422), broken
        no_boundary = {"Content-Type": "multipart/form-data"}
        assert (await client.call("POST", "/v1/attachments", b"x", no_boundary))[0] == 400
        assert files_of(tmp_path) == []


async def test_a_message_that_is_refused_and_a_call_without_a_session_leave_no_file(
    client: Client, tmp_path: Path
) -> None:
    url = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    image = {"type": "image", "url": url}
    for refused, expected in (
        ({"content": [image], "model": "nobody"}, 400),
        ({"content": [image], "text": "long " * 400_000}, 413),
        ({"content": [image, {"type": "image", "url": "https://example.org/a.png"}]}, 422),
        ({"content": [image, {"type": "image", "url": "attachment:unknown"}]}, 422),
    ):
        status, told = await client.call("POST", f"/v1/sessions/{KEY}/messages", refused)
        assert status == expected, told
        assert files_of(tmp_path / "data") == [], expected
    content = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    chat = {"model": "agent/main", "messages": [{"role": "user", "content": content}]}
    assert (await client.call("POST", "/v1/chat/completions", chat))[0] == 200
    assert files_of(tmp_path / "data") == []
    assert (await client.call("POST", "/v1/chat/completions", {**chat, "user": "ana"}))[0] == 200
    assert len(files_of(tmp_path / "data")) == 2
    assert (await client.call("POST", f"/v1/sessions/{KEY}/messages", {"content": [image]}))[0] == 200
    refused = {"content": [image], "model": "nobody"}
    assert (await client.call("POST", f"/v1/sessions/{KEY}/messages", refused))[0] == 400
    assert len(files_of(tmp_path / "data")) == 3
