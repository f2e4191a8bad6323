"""One settings object, read from the environment (prefix ``CRCR_``) once at start.

Any secret may also be given as a file (``CRCR_..._FILE``), which keeps it out of process listings. A wrong value is
answered with the variable's name, the rule and the fix, never with the value itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from allowlist.model import RepoName
from levels.outcomes import GateEffect, Outcome, check_overrides

GITHUB_ISSUER = "https://token.actions.githubusercontent.com"
BUILDKITE_ISSUER = "https://agent.buildkite.com"
PRODUCTION_AUDIENCE = "pytorch-cross-repo-ci-relay"
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class SettingsError(Exception):
    """The service cannot start with these settings; the message says which and why, in one line each."""


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise ValueError("expected an http(s) URL without user info")
    if parts.query or parts.fragment or any(character.isspace() for character in value):
        raise ValueError("expected an http(s) URL without a query, a fragment or white space")
    if parts.port == 0:  # Asking for the port also raises ValueError for one that is none.
        raise ValueError("port 0 cannot be reached")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValueError("plain http is accepted for loopback addresses only; use https")
    return value.rstrip("/")


class Issuer(BaseModel):
    """A trust anchor: an OIDC issuer and where its keys are."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    issuer: str
    jwks_url: str

    @field_validator("issuer", "jwks_url")
    @classmethod
    def _check(cls, value: str) -> str:
        return _http_url(value)


class Pipeline(BaseModel):
    """Which repository a Buildkite pipeline reports for, and which further claims its tokens must carry."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    repo: RepoName
    required_claims: dict[str, str] = Field(default_factory=dict)

    @field_validator("repo", mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        return RepoName.parse(value) if isinstance(value, str) else value


DEFAULT_ISSUERS = (
    Issuer(issuer=GITHUB_ISSUER, jwks_url=f"{GITHUB_ISSUER}/.well-known/jwks"),
    Issuer(issuer=BUILDKITE_ISSUER, jwks_url=f"{BUILDKITE_ISSUER}/.well-known/jwks"),
)


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class Settings(BaseSettings):
    """Everything an admin can set. Names in the environment are these in capitals behind ``CRCR_``."""

    model_config = SettingsConfigDict(env_prefix="CRCR_", frozen=True, extra="ignore", hide_input_in_errors=True)

    upstream: RepoName = Field(description="The repository whose changes are tested, owner/repo.")
    github_api_url: str = Field("https://api.github.com", description="GitHub's API; for GHES https://HOST/api/v3.")
    github_app_id: int = Field(description="The app's id.", gt=0)
    github_private_key: SecretStr = Field(description="The app's private key, PEM text.")
    downstream_app_id: int | None = Field(None, gt=0, description="A second app for the backends; default: the same.")
    downstream_private_key: SecretStr | None = Field(None, description="The second app's private key, PEM text.")
    webhook_secrets: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        min_length=1, description="Webhook secrets, comma-separated; all are valid."
    )
    secret_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (),
        description="Keys for capabilities, comma-separated; the first signs. Made and kept when unset.",
    )
    allowlist: str = Field(
        ".github/allowlist.yml",
        description="A file, owner/repo:path@ref fetched through the app, or a GitHub blob URL.",
    )
    allowlist_seconds: float = Field(
        30.0, gt=0, le=86_400, description="How often the allowlist is reread, in seconds."
    )
    database_url: str = Field("sqlite:///crcr.db", description="SQLite or PostgreSQL, as SQLAlchemy writes it.")
    admin_tokens: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (), description="Who may use /api/v1/admin: name:secret, comma-separated; a name may have two."
    )
    oidc_audience: str = Field(PRODUCTION_AUDIENCE, min_length=1, description="The audience a token must name.")
    oidc_issuers: tuple[Issuer, ...] = Field(
        DEFAULT_ISSUERS, min_length=1, description='JSON list of {"issuer", "jwks_url"}.'
    )
    buildkite_pipelines: Mapping[str, Pipeline] = Field(
        default_factory=dict, description='JSON: "org uuid/pipeline uuid": "owner/repo" or {"repo", "required_claims"}.'
    )
    hud_api_url: str | None = Field(None, description="Where reports are forwarded; off when unset.")
    hud_key: SecretStr | None = Field(None, description="Sent to the HUD as x-hud-internal-bot.")
    public_url: str = Field("http://127.0.0.1:8000", description="Where people and backends reach this service.")
    label_prefix: str = Field("ciflow/crcr/", pattern=r"^[\w./:-]{1,40}$", description="What an L3 label starts with.")
    checks: Literal["backend", "job"] = Field("backend", description="job adds production's names, one per job.")
    retention_days: int = Field(90, ge=1, le=36_500, description="How long rows of a finished change are kept.")
    legacy_ignored: bool = Field(False, description="Answer L1 and unlisted callers 200 ignored, as production does.")
    outcomes: Mapping[Outcome, GateEffect] = Field(
        default_factory=dict, description="JSON: outcome to gate effect, where it differs from the table."
    )
    check_interval_seconds: float = Field(3.0, ge=0, le=3_600, description="A check run is written at most this often.")
    sweep_seconds: float = Field(5.0, gt=0, le=3_600, description="How often deadlines are looked at.")
    drain_seconds: float = Field(
        0.0, ge=0, le=300, description="How long after SIGTERM requests are still taken, while /readyz says to leave."
    )
    missed_seconds: float = Field(
        300.0, gt=0, le=86_400, description="How often GitHub is asked for webhooks that it could not deliver."
    )
    gaps_seconds: float = Field(
        900.0, gt=0, le=86_400, description="How often upstream is compared with what was dispatched."
    )
    merge_group_minutes: float = Field(50.0, gt=0, le=1_440, description="Deadline of a merge group's gate.")
    retry_scale: float = Field(1.0, gt=0, le=100, description="Multiplies the retry schedule; below 1 for demos only.")

    @field_validator("upstream", mode="before")
    @classmethod
    def _parse_upstream(cls, value: object) -> object:
        return RepoName.parse(value) if isinstance(value, str) else value

    @field_validator("webhook_secrets", "secret_keys", "admin_tokens", mode="before")
    @classmethod
    def _split_secrets(cls, value: object) -> object:
        return _split(value)

    @field_validator("buildkite_pipelines", mode="before")
    @classmethod
    def _expand_pipelines(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {str(key).lower(): {"repo": entry} if isinstance(entry, str) else entry for key, entry in value.items()}

    @field_validator("buildkite_pipelines")
    @classmethod
    def _check_pipelines(cls, value: Mapping[str, Pipeline]) -> Mapping[str, Pipeline]:
        for key in value:
            organization, slash, pipeline = key.partition("/")
            if not (slash and organization and pipeline) or "/" in pipeline:
                raise ValueError("each key is '<organization uuid>/<pipeline uuid>'")
        return value

    @field_validator("github_api_url", "public_url", "hud_api_url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        return None if value is None else _http_url(value)

    @field_validator("outcomes")
    @classmethod
    def _check_outcomes(cls, value: Mapping[Outcome, GateEffect]) -> Mapping[Outcome, GateEffect]:
        check_overrides(value)
        return value

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if (self.downstream_app_id is None) != (self.downstream_private_key is None):
            raise ValueError("DOWNSTREAM_APP_ID and DOWNSTREAM_PRIVATE_KEY go together")
        if self.hud_api_url is not None and self.hud_key is None:
            raise ValueError("HUD_API_URL needs HUD_KEY")
        if self.allowlist.lower().startswith(("https://", "http://")):
            api = urlsplit(self.github_api_url).hostname or ""
            # https://docs.github.com/enterprise-server@latest/rest/quickstart: there the API is at the pages' host.
            if urlsplit(self.allowlist).hostname not in {api, api.removeprefix("api.")}:
                raise ValueError("ALLOWLIST is read through GITHUB_API_URL, so its URL must be of the same GitHub")
        return self


SECRET_FIELDS = (
    "github_private_key",
    "downstream_private_key",
    "webhook_secrets",
    "secret_keys",
    "admin_tokens",
    "hud_key",
    "database_url",
)


def load_settings(environ: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """Settings from the environment, ``*_FILE`` variables included; ``given`` values win.

    Raises SettingsError with one line per fault, naming the variable and never its value.
    """
    source = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    faults: list[str] = []
    for name in Settings.model_fields:
        variable = f"CRCR_{name.upper()}"
        text = source.get(variable)
        path = source.get(f"{variable}_FILE") if name in SECRET_FIELDS else None
        if text is None and path is not None:
            try:
                text = Path(path).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                faults.append(f"{variable}_FILE: cannot read {path!r}: {type(error).__name__}")
                continue
        if text is not None:
            values[name] = _decode(name, text, variable, faults)
    values.update(given)
    if faults:
        raise SettingsError("\n".join(faults))
    try:
        return _FromValuesOnly(**values)
    except ValidationError as error:
        raise SettingsError("\n".join(_fault(item["loc"], item["msg"]) for item in error.errors())) from None


_JSON_FIELDS = {"oidc_issuers", "buildkite_pipelines", "outcomes"}


def _decode(name: str, text: str, variable: str, faults: list[str]) -> Any:
    if name not in _JSON_FIELDS:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        faults.append(f"{variable}: expected JSON")
        return None


def _fault(location: tuple[int | str, ...], message: str) -> str:
    where = f"CRCR_{str(location[0]).upper()}" if location else "settings"
    inner = "".join(f"[{part}]" for part in location[1:])
    if message == "Field required":
        message = "must be set"
    return f"{where}{inner}: {message.removeprefix('Value error, ')}"


class _FromValuesOnly(Settings):
    """Settings that look nowhere else, so that a test or a command gets just what it was given."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what was given; the environment has been read by ``load_settings``, files included."""
        return (init_settings,)
