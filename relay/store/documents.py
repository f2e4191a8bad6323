"""Texts the service keeps by name, the backends' pins that an allowlist makes due, and the audit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update

from relay.store.outbox import on_conflict_do_nothing
from relay.store.tables import AllowlistVersion, Audit, Document

_document = Document.__table__  # type: ignore[attr-defined]  # SQLModel adds it, its types do not know.
_version = AllowlistVersion.__table__  # type: ignore[attr-defined]
_audit = Audit.__table__  # type: ignore[attr-defined]

ALLOWLIST = "allowlist"
CAPABILITY_KEY = "capability_key"
#: Stands from when the settings named keys of their own, and the one that is kept here signed no more.
CAPABILITY_KEY_LEFT = "capability_key_left"


@dataclass(frozen=True, slots=True)
class Kept:
    """A kept text: when it last changed, and when we last looked whether it had."""

    body: str
    etag: str | None
    digest: str
    updated_at: datetime
    checked_at: datetime
    note: str


def load(conn: Connection, key: str) -> Kept | None:
    """The text of this name, or None."""
    row = conn.execute(select(_document).where(_document.c.key == key)).first()
    if row is None:
        return None
    return Kept(row.body, row.etag, row.digest, row.updated_at, row.checked_at, row.note)


def digest_of(conn: Connection, key: str) -> str | None:
    """The digest of the text of this name, or None; for whoever looks often and seldom needs the text."""
    found: str | None = conn.execute(select(_document.c.digest).where(_document.c.key == key)).scalar()
    return found


def keep(conn: Connection, key: str, body: str, *, etag: str | None, digest: str, now: datetime) -> None:
    """Keep this text under the name, in place of what was there. An allowlist is kept by its digest besides.

    What was decided by it can then be decided again (``relay.deciding.grounds``) for as long as that is kept.
    """
    values = {"body": body, "etag": etag, "digest": digest, "updated_at": now, "checked_at": now, "note": ""}
    conn.execute(on_conflict_do_nothing(conn, _document), {"key": key, **values})
    conn.execute(update(_document).where(_document.c.key == key).values(**values))
    if key == ALLOWLIST and digest:
        conn.execute(on_conflict_do_nothing(conn, _version), {"digest": digest, "body": body, "kept_at": now})
        conn.execute(update(_version).where(_version.c.digest == digest).values(kept_at=now))


def allowlist_version(conn: Connection, digest: str) -> str | None:
    """The allowlist's text of this digest, or None where it was never in force or is forgotten."""
    found: str | None = conn.execute(select(_version.c.body).where(_version.c.digest == digest)).scalar()
    return found


def keep_first(conn: Connection, key: str, body: str, now: datetime) -> str:
    """Keep this text unless one is there already, and say which one stands: all replicas then agree."""
    conn.execute(
        on_conflict_do_nothing(conn, _document),
        {"key": key, "body": body, "digest": "", "updated_at": now, "checked_at": now, "note": ""},
    )
    return str(conn.execute(select(_document.c.body).where(_document.c.key == key)).scalar_one())


def forget(conn: Connection, key: str) -> None:
    """Keep nothing under this name any more."""
    conn.execute(delete(_document).where(_document.c.key == key))


def note_checked(conn: Connection, key: str, now: datetime, note: str = "") -> None:
    """We looked and it had not changed, or what was there could not be used (``note`` says why)."""
    values = {"note": note} if note else {"note": "", "checked_at": now}
    conn.execute(update(_document).where(_document.c.key == key).values(**values))


def audit(
    conn: Connection,
    *,
    at: datetime,
    who: str,
    what: str,
    subject: str = "",
    why: str = "",
    before: str = "",
    after: str = "",
) -> None:
    """Write down who changed what, and why."""
    conn.execute(
        insert(_audit),
        {"at": at, "who": who, "what": what, "subject": subject, "why": why, "before": before, "after": after},
    )
