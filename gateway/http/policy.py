"""Settings of the HTTP server and of who may speak to it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from sessions.policy import Composed, Policy

Role = Literal["admin", "frontend", "user"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
Prefix = Annotated[Composed, Field(pattern=r"^(agent|cron|hook):")]


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

    name: Annotated[str, Field(min_length=1)] = Field(description="Name for logs and limits; never the secret.")
    token: SecretStr | None = Field(default=None, description="The secret itself.")
    token_env: str | None = Field(default=None, description="Environment variable that holds the secret.")
    token_hash: Sha256 | None = Field(default=None, description="SHA-256 of the secret, in hex.")
    role: Role = Field(description="admin: everything; frontend: speaks for users; user: one person.")
    user: Composed | None = Field(default=None, description="The person a user token belongs to.")
    agents: tuple[Composed, ...] | None = Field(default=None, description="Agents it may speak to; null: all.")
    key_prefixes: tuple[Prefix, ...] | None = Field(
        default=None,
        description="Session keys it may use, by their first words, as in agent:main:telegram; null: all chats of its "
        "role.",
    )

    @model_validator(mode="after")
    def _whole(self) -> TokenPolicy:
        if sum(part is not None for part in (self.token, self.token_env, self.token_hash)) != 1:
            raise ValueError(f"token {self.name!r} needs exactly one of token, token_env and token_hash")
        if self.token is not None and not self.token.get_secret_value():
            raise ValueError(f"token {self.name!r} is empty; give it a long random text")
        if self.role == "user" and not self.user:
            raise ValueError(f"token {self.name!r} has the role user and needs a user")
        if self.role == "admin" and (self.agents is not None or self.key_prefixes is not None):
            raise ValueError(
                f"token {self.name!r} is an admin, who sees everything; take the role frontend to limit it, or leave "
                "out agents and key_prefixes"
            )
        return self


class AuthPolicy(Policy):
    """Who may use the API. Without any token everybody who reaches the loopback address is the owner."""

    tokens: tuple[TokenPolicy, ...] = Field(default=(), description="Tokens of frontends, people and administrators.")

    @model_validator(mode="after")
    def _told_apart(self) -> AuthPolicy:
        names = [token.name for token in self.tokens]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two tokens are called {twice!r}; limits and logs need a name for each")
        return self
