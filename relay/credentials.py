"""What the service proves itself by, and knows others by: made of the settings' secrets, replaced when those change."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from sqlalchemy import Connection

from relay.admins import AdminTokens
from relay.capability import CapabilityKeys
from relay.clock import Now
from relay.github.keys import AppKey, Apps, BadKey, read_key
from relay.hud import HudClient
from relay.results.binding import CAPABILITY_LIFE
from relay.settings import Settings, SettingsError
from relay.store import documents
from relay.store.engine import Store
from relay.store.login import same_place

log = structlog.get_logger(__name__)

#: How long the key that is kept verifies once the settings name others: until the last result of what it was given to.
#: A key that lies in the database is not to be good for ever.
KEPT_KEY_LASTS = CAPABILITY_LIFE + timedelta(days=5)


class Credentials:
    """The secrets in force, in the form in which they are used."""

    def __init__(self, settings: Settings, apps: Apps, keys: CapabilityKeys, hud: HudClient | None) -> None:
        self.apps = apps
        self.keys = keys
        self.admins = _admins(settings)
        self._hud = hud
        self._settings = settings
        self._webhook_secrets = _bytes_of(settings)

    def webhook_secrets(self) -> Sequence[bytes]:
        """The secrets by which GitHub may sign now."""
        return self._webhook_secrets

    def renew(self, settings: Settings) -> None:
        """Put the secrets of these settings in force; their other values are looked at when the service starts.

        So is where the database is: its user and password alone are read anew, by each new connection.

        Raises SettingsError for one that cannot be used, and changes nothing then.
        """
        # All that can be refused comes first, so that never a part of the new secrets is in force.
        apps, admins = load_apps(settings), _admins(settings)
        moved = not same_place(settings.database_url, self._settings.database_url)
        texts = [key.get_secret_value() for key in settings.secret_keys]
        if texts:
            try:
                self.keys.renew(texts)
            except ValueError as error:
                raise SettingsError(f"CRCR_{error}") from None
        if _private_keys(settings) != _private_keys(self._settings):
            # Installation tokens are kept by key, so a key that is the same must stay the same object.
            self.apps.renew(apps)
        self.admins.renew(admins)
        if self._hud is not None and settings.hud_key is not None:
            self._hud.renew(settings.hud_key.get_secret_value())
        self._webhook_secrets = _bytes_of(settings)
        if moved:
            log.warning(
                "database_url_not_taken", reason="it does not name the database in use; another takes a restart"
            )
        self._settings = settings.model_copy(update={"database_url": self._settings.database_url})


def load_apps(settings: Settings, read: Callable[[str], RSAPrivateKey] = read_key) -> Apps:
    """The apps' keys, each as ``read`` reads its text. Raises SettingsError for text that is no key."""
    try:
        upstream = AppKey.load(settings.github_app_id, settings.github_private_key.get_secret_value(), read)
    except BadKey as error:
        raise SettingsError(f"CRCR_GITHUB_PRIVATE_KEY: {error}") from None
    if settings.downstream_app_id is None or settings.downstream_private_key is None:
        return Apps(upstream, upstream)
    try:
        key = settings.downstream_private_key.get_secret_value()
        return Apps(upstream, AppKey.load(settings.downstream_app_id, key, read))
    except BadKey as error:
        raise SettingsError(f"CRCR_DOWNSTREAM_PRIVATE_KEY: {error}") from None


def capability_keys(settings: Settings, store: Store, now: Now) -> CapabilityKeys:
    """The keys of the settings, else one that is made once and kept in the store.

    Once there are others the kept one goes on verifying for a while: runs that were told by it may be on their way.

    Raises SettingsError for one that cannot be used.
    """
    texts = [key.get_secret_value() for key in settings.secret_keys]
    if texts:
        kept = store.write_now(lambda conn: _left_key(conn, now()))
    else:
        fresh = secrets.token_urlsafe(48)
        kept = store.write_now(lambda conn: _kept_key(conn, fresh, now()))
        texts = [kept]
    try:
        return CapabilityKeys.of(texts, kept)
    except ValueError as error:
        raise SettingsError(f"CRCR_{error}") from None


def _kept_key(conn: Connection, fresh: str, now: datetime) -> str:
    documents.forget(conn, documents.CAPABILITY_KEY_LEFT)
    return documents.keep_first(conn, documents.CAPABILITY_KEY, fresh, now)


def _left_key(conn: Connection, now: datetime) -> str | None:
    found = documents.load(conn, documents.CAPABILITY_KEY)
    if found is None:
        return None
    documents.keep_first(conn, documents.CAPABILITY_KEY_LEFT, "", now)
    left = documents.load(conn, documents.CAPABILITY_KEY_LEFT)
    if left is None or now < left.updated_at + KEPT_KEY_LASTS:
        return found.body
    documents.forget(conn, documents.CAPABILITY_KEY)
    documents.forget(conn, documents.CAPABILITY_KEY_LEFT)
    return None


def _admins(settings: Settings) -> AdminTokens:
    try:
        return AdminTokens([token.get_secret_value() for token in settings.admin_tokens])
    except ValueError as error:
        raise SettingsError(f"CRCR_{error}") from None


def _bytes_of(settings: Settings) -> tuple[bytes, ...]:
    return tuple(secret.get_secret_value().encode() for secret in settings.webhook_secrets)


def _private_keys(settings: Settings) -> tuple[object, ...]:
    """What the apps' keys are made of; secrets compare by their value."""
    return settings.github_private_key, settings.downstream_private_key
