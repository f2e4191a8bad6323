"""Looks at everything the service needs before it is needed, and says how to mend what is missing.

Nothing is changed: the database is not migrated, no check is written and no backend is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from sqlalchemy import Connection

from allowlist.model import Allowlist, RepoName, Severity
from allowlist.parse import MAX_BYTES, UnreadableError, parse
from relay.clock import Now
from relay.github.client import GitHubClient
from relay.github.cold import ColdGitHub, InstallationFacts
from relay.github.errors import GitHubError, IdentityChanged, NotInstalled, RetryLater, Unauthenticated
from relay.github.http import new_http_client
from relay.github.keys import AppKey, Apps, BadKey
from relay.github.needs import DOWNSTREAM_NEEDS, DOWNSTREAM_OPTIONS, UPSTREAM_NEEDS, forgone, lacking
from relay.github.port import Address
from relay.settings import Settings
from relay.store import schema
from relay.store.dispatching import address_of
from relay.store.engine import Store, StoreDownError
from relay.store.presence import missing_file
from relay.work.allowlist import parse_source

#: The events that the service does something about, beside those that every app gets.
EVENTS = ("pull_request", "push")
#: Events that the relay can do without, and what is missing then. Those of checks come unasked to whoever may write
#: checks: https://docs.github.com/en/webhooks/webhook-events-and-payloads#check_run
MORE_EVENTS: Mapping[str, str] = {
    "issue_comment": "commands in comments go unheard",
    "merge_group": "a merge queue waits for its gate in vain",
}
#: The same of the backends' app, which may be another.
MORE_EVENTS_OF_BACKENDS: Mapping[str, str] = {
    "repository": "that a backend's repository is back shows by the next try, which may be an hour away",
}
#: A secret shorter than this can be guessed.
SHORTEST_SECRET = 16
#: GitHub counts concurrent requests; a few at a time are quick enough for a look.
_AT_ONCE = 4


class State(StrEnum):
    """How a part is. A doubt may be meant so; a fault keeps something from working."""

    WELL = "ok"
    DOUBT = "doubt"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """One part: how it is, what was found, and what to do about it (empty where there is nothing to do)."""

    part: str
    state: State
    found: str
    fix: str = ""


def well(part: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding(part, State.WELL, found)


def fault(part: str, found: str, fix: str) -> Finding:
    """Something does not work like this."""
    return Finding(part, State.FAULT, found, fix)


async def examine(settings: Settings, now: Now) -> list[Finding]:
    """Everything, in the order in which it is worth mending. Does not raise for what it finds."""
    findings = [*_secrets(settings), _public_url(settings)]
    database, addresses = await asyncio.to_thread(_database, settings.database_url)
    findings.append(database)
    apps, keys = _keys(settings)
    findings += keys
    if apps is None:
        return findings
    agent = f"cross-repo-ci-relay/{version('cross-repo-ci-relay')}"
    github = GitHubClient(
        apps=apps,
        upstream=settings.upstream,
        http=new_http_client(user_agent=agent),
        api_url=settings.github_api_url,
        now=now,
    )
    cold = ColdGitHub(tokens=github.tokens, api_url=settings.github_api_url, user_agent=agent, now=now)
    try:
        return findings + await _at_github(settings, apps, github, cold, addresses)
    finally:
        await github.aclose()


def _secrets(settings: Settings) -> list[Finding]:
    secrets = settings.webhook_secrets
    short = sum(1 for secret in secrets if len(secret.get_secret_value()) < SHORTEST_SECRET)
    if short:
        fix = f"Set a random one of {SHORTEST_SECRET} characters or more, here and on the app's page."
        return [Finding("webhook secret", State.DOUBT, f"{short} of {len(secrets)} can be guessed", fix)]
    return [well("webhook secret", f"{len(secrets)} set")]


def _public_url(settings: Settings) -> Finding:
    def loopback(url: str) -> bool:
        return urlsplit(url).hostname in {"127.0.0.1", "localhost", "::1"}

    if loopback(settings.public_url) and not loopback(settings.github_api_url):
        return Finding(
            "public URL",
            State.DOUBT,
            f"{settings.public_url} is this machine only",
            "Set CRCR_PUBLIC_URL to where backends and reviewers reach the service.",
        )
    return well("public URL", f"webhooks go to {settings.public_url}/github/webhook")


def _keys(settings: Settings) -> tuple[Apps | None, list[Finding]]:
    findings: list[Finding] = []

    def load(part: str, variable: str, app_id: int, pem: str) -> AppKey | None:
        try:
            key = AppKey.load(app_id, pem)
        except BadKey as error:
            findings.append(fault(part, f"CRCR_{variable}: {error}", "Make a new key on the app's page if it is lost."))
            return None
        findings.append(well(part, f"app {app_id}"))
        return key

    upstream = load(
        "private key",
        "GITHUB_PRIVATE_KEY",
        settings.github_app_id,
        settings.github_private_key.get_secret_value(),
    )
    downstream = upstream
    if settings.downstream_app_id is not None and settings.downstream_private_key is not None:
        downstream = load(
            "private key of the backends' app",
            "DOWNSTREAM_PRIVATE_KEY",
            settings.downstream_app_id,
            settings.downstream_private_key.get_secret_value(),
        )
    apps = None if upstream is None or downstream is None else Apps(upstream, downstream)
    return apps, findings


@dataclass(frozen=True, slots=True)
class _Addresses:
    """What the database knows of where repositories live. Without one, names are all there is."""

    url: str | None

    def of(self, repos: Iterable[RepoName]) -> list[Address]:
        """An address for each, with the pinned id where there is one."""
        wanted = list(repos)
        if self.url is None:
            return [Address(repo) for repo in wanted]
        store = Store(self.url)
        try:
            return store.read_now(lambda conn: [address_of(conn, repo) for repo in wanted])
        finally:
            store.close()


def _database(url: str) -> tuple[Finding, _Addresses]:
    part = "database"
    missing = missing_file(url)
    if missing is not None:
        folder = missing.absolute().parent
        if not folder.is_dir():
            return fault(part, f"the folder {folder} does not exist", "Make it, or change CRCR_DATABASE_URL."), (
                _Addresses(None)
            )
        return well(part, f"{missing} is made at the first start"), _Addresses(None)
    store = Store(url)

    def unit(conn: Connection) -> str | None:
        return schema.revision(conn)

    try:
        revision = store.read_now(unit)
    except StoreDownError as error:
        return fault(part, str(error), "Start the database, or correct CRCR_DATABASE_URL."), _Addresses(None)
    finally:
        store.close()
    if revision is None:
        return well(part, "empty; the first start makes the tables"), _Addresses(None)
    if not schema.serves(revision):
        found = f"schema {revision}, this version expects {schema.newest()}"
        return Finding(part, State.DOUBT, found, "Run `crcr db migrate`; `crcr serve` does so too."), _Addresses(None)
    return well(part, f"schema {revision}"), _Addresses(url)


async def _at_github(
    settings: Settings, apps: Apps, github: GitHubClient, cold: ColdGitHub, addresses: _Addresses
) -> list[Finding]:
    two = apps.downstream is not apps.upstream
    more = MORE_EVENTS if two else {**MORE_EVENTS, **MORE_EVENTS_OF_BACKENDS}
    findings = await _app(cold, "app", apps.upstream, _needs_of_upstream_app(apps), EVENTS, more)
    if two:
        findings += await _app(cold, "backends' app", apps.downstream, DOWNSTREAM_NEEDS, (), MORE_EVENTS_OF_BACKENDS)
    if any(finding.state is State.FAULT and finding.part in {"app", "backends' app"} for finding in findings):
        return findings
    try:
        on_upstream = await cold.installations(apps.upstream)
        on_backends = on_upstream if apps.downstream is apps.upstream else await cold.installations(apps.downstream)
    except GitHubError as error:
        return [*findings, _refused("installations", error)]
    findings += await _repository(
        cold, apps.upstream, Address(settings.upstream), on_upstream, UPSTREAM_NEEDS, runs=False
    )
    allowlist, listed = await _allowlist(settings, github)
    findings += listed
    if allowlist is None:
        return findings
    try:
        backends = await asyncio.to_thread(addresses.of, [entry.repo for entry in allowlist.entries])
    except StoreDownError as error:
        return [*findings, fault("backends", str(error), "Start the database, or correct CRCR_DATABASE_URL.")]
    turns = asyncio.Semaphore(_AT_ONCE)

    async def look(at: Address) -> list[Finding]:
        async with turns:
            return await _repository(cold, apps.downstream, at, on_backends, DOWNSTREAM_NEEDS, runs=True)

    for found in await asyncio.gather(*map(look, backends)):
        findings += found
    return findings


def _needs_of_upstream_app(apps: Apps) -> Mapping[str, str]:
    """One app for both sides must ask for what either needs."""
    if apps.downstream is not apps.upstream:
        return UPSTREAM_NEEDS
    return {**DOWNSTREAM_NEEDS, **UPSTREAM_NEEDS, "contents": DOWNSTREAM_NEEDS["contents"]}


async def _app(
    cold: ColdGitHub,
    part: str,
    key: AppKey,
    needs: Mapping[str, str],
    events: Iterable[str],
    more_events: Mapping[str, str],
) -> list[Finding]:
    try:
        facts = await cold.app(key)
    except GitHubError as error:
        return [_refused(part, error)]
    findings = []
    # Reading metadata comes with any other permission, so an app need not ask for it.
    # https://docs.github.com/en/apps/creating-github-apps/registering-a-github-app/choosing-permissions-for-a-github-app
    missing = lacking({"metadata": "read", **facts.permissions}, needs)
    if missing:
        found = f"{facts.slug} does not ask for {_listed(missing)}"
        findings.append(fault(f"{part} permissions", found, "Add them on the app's page under Permissions & events."))
    unheard = [event for event in events if event not in facts.events]
    if unheard:
        found = f"{facts.slug} does not hear of {', '.join(unheard)}"
        fix = "Subscribe to these events on the app's page under Permissions & events."
        findings.append(fault(f"{part} events", found, fix))
    for event, without in more_events.items():
        if event not in facts.events:
            found = f"{facts.slug} does not hear of {event}: {without}"
            fix = "Subscribe to it on the app's page under Permissions & events, if it is wanted."
            findings.append(Finding(f"{part} events", State.DOUBT, found, fix))
    return findings or [well(part, f"{facts.slug} asks for what it needs")]


async def _repository(
    cold: ColdGitHub,
    key: AppKey,
    at: Address,
    installations: Iterable[InstallationFacts],
    needs: Mapping[str, str],
    *,
    runs: bool,
) -> list[Finding]:
    part = str(at.repo)
    installation = next((one for one in installations if one.account.lower() == at.repo.owner), None)
    if installation is None:
        return [
            fault(part, "the app is not installed", f"Ask the owner of {at.repo.owner} to install it on {at.repo}.")
        ]
    if installation.suspended:
        fix = f"Ask the owner of {at.repo.owner} to lift the suspension under Settings, GitHub Apps."
        return [fault(part, "the installation is suspended", fix)]
    findings = []
    missing = lacking(installation.permissions, needs)
    if missing:
        fix = f"The owner of {at.repo.owner} has to accept the app's permissions under Settings, GitHub Apps."
        findings.append(fault(part, f"not granted: {_listed(missing)}", fix))
    try:
        facts = await cold.repository(key, at)
    except GitHubError as error:
        return [*findings, _refused(part, error)]
    if facts.archived:
        findings.append(fault(part, "it is archived", "Unarchive it, or take it off the allowlist."))
    if runs and facts.actions_enabled is False:
        fix = "Turn Actions on under Settings, Actions, General; a dispatch starts nothing without."
        findings.append(fault(part, "Actions are off", fix))
    if facts.full_name != at.repo:
        found = f"it is called {facts.full_name} now"
        findings.append(Finding(part, State.DOUBT, found, "Write the new name into the allowlist."))
    if findings:
        return findings
    asked = "" if not runs or facts.actions_enabled else "; whether Actions are on is not ours to see"
    for option in forgone(installation.permissions, DOWNSTREAM_OPTIONS) if runs else ():
        asked += f"; without {option.permission} {option.access}, {option.without}"
    return [well(part, f"installed, permissions granted{asked}")]


async def _allowlist(settings: Settings, github: GitHubClient) -> tuple[Allowlist | None, list[Finding]]:
    part = "allowlist"
    where = settings.allowlist
    try:
        text = await _allowlist_text(where, github)
        allowlist = parse(text, label_prefix=settings.label_prefix)
    except ValueError as error:
        return None, [fault(part, str(error), "Correct CRCR_ALLOWLIST.")]
    except OSError as error:
        found = f"cannot read {where}: {error.strerror or type(error).__name__}"
        return None, [fault(part, found, "Correct CRCR_ALLOWLIST, or make the file.")]
    except GitHubError as error:
        return None, [_refused(part, error, f"Correct CRCR_ALLOWLIST ({where}), or commit the file.")]
    except UnreadableError as error:
        return None, [fault(part, str(error), "`crcr allowlist check FILE` names every fault with its fix.")]
    errors = sum(1 for one in allowlist.faults if one.severity is Severity.ERROR)
    found = f"{where}: {len(allowlist.entries)} entries"
    if errors:
        found += f", {errors} out of force"
        return allowlist, [fault(part, found, "`crcr allowlist check FILE` names every fault with its fix.")]
    return allowlist, [well(part, found)]


async def _allowlist_text(where: str, github: GitHubClient) -> bytes:
    source = parse_source(where)
    if isinstance(source, Path):
        return await asyncio.to_thread(_start_of, source)
    repo, path, ref = source
    found = await github.read_file(Address(repo), path, ref, None)
    return b"" if found is None else found.text


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _refused(part: str, error: GitHubError, fix: str = "") -> Finding:
    if isinstance(error, Unauthenticated):
        fix = "CRCR_GITHUB_APP_ID and the private key must belong to the same app."
    elif isinstance(error, NotInstalled):
        fix = fix or "Install the app there, and select this repository."
    elif isinstance(error, IdentityChanged):
        fix = "Find out whether this is still the repository you mean before you list it anew."
    elif isinstance(error, RetryLater):
        fix = "Look at CRCR_GITHUB_API_URL, at the network, and at GitHub's status page."
    return fault(part, error.detail, fix or "Look at what GitHub said.")


def _listed(permissions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {access}" for name, access in sorted(permissions.items()))
