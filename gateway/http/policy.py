"""Settings of the HTTP server and of who may speak to it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from sessions.policy import Policy

Role = Literal["admin", "frontend", "user"]


class ServerPolicy(Policy):
    """Where the daemon listens, and how much it takes."""

    host: str = Field(default="127.0.0.1", description="Address to listen on; anything but loopback needs a token.")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(default=8420, description="Port; 0: any free one.")
    max_body_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=8 * 1024 * 1024, description="Largest request body, in bytes, after decompression."
    )
    cors_origins: tuple[str, ...] = Field(
        default=(), description="Origins of browser frontends that may call the API, as in https://chat.example."
    )
    rate_limit_per_minute: Annotated[int, Field(ge=1)] | None = Field(
        default=6000, description="Requests a minute for each token; null: no limit."
    )
    max_streams_per_token: Annotated[int, Field(ge=1)] = Field(
        default=2000, description="Event streams one token may hold open at the same time."
    )
    ping_s: Annotated[float, Field(gt=0)] = Field(default=15, description="Seconds between comments on a quiet stream.")


class TokenPolicy(Policy):
    """One token: a name for the log, the secret (or where it is), and what it may do."""

    name: str = Field(description="Name for logs and limits; never the secret.")
    token: SecretStr | None = Field(default=None, description="The secret itself.")
    token_env: str | None = Field(default=None, description="Environment variable that holds the secret.")
    token_hash: str | None = Field(default=None, description="SHA-256 of the secret, in hex.")
    role: Role = Field(description="admin: everything; frontend: speaks for users; user: one person.")
    user: str | None = Field(default=None, description="The person a user token belongs to.")
    agents: tuple[str, ...] | None = Field(default=None, description="Agents it may speak to; null: all.")
    key_prefixes: tuple[str, ...] | None = Field(
        default=None, description="Session keys it may use, by their beginning; null: all chats of its role."
    )

    @model_validator(mode="after")
    def _one_secret(self) -> TokenPolicy:
        if sum(part is not None for part in (self.token, self.token_env, self.token_hash)) != 1:
            raise ValueError(f"token {self.name!r} needs exactly one of token, token_env and token_hash")
        if self.role == "user" and not self.user:
            raise ValueError(f"token {self.name!r} has the role user and needs a user")
        return self


class AuthPolicy(Policy):
    """Who may use the API. Without any token everybody who reaches the loopback address is the owner."""

    tokens: tuple[TokenPolicy, ...] = Field(default=(), description="Tokens of frontends, people and administrators.")
