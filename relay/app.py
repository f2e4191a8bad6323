"""The one place where objects are built: settings in, a running service out. Nobody imports this but the commands."""

from __future__ import annotations

import random
import ssl
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.metadata import version

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from relay.capability import CapabilityKeys
from relay.check_terms import terms_of
from relay.clock import Now, system_now
from relay.credentials import Credentials, capability_keys, load_apps
from relay.deciding.facts import Place
from relay.edge.keys import MOST_BYTES, KeyCache
from relay.edge.oidc import OidcVerifier
from relay.figures import Figures
from relay.github.client import GitHubClient
from relay.github.http import AsyncClient, OpenTransport, new_http_client, new_http_pool
from relay.github.keys import Apps, read_key
from relay.hud import HudClient, open_way
from relay.metrics import Metrics
from relay.perform import GitHubPerformer, Sites
from relay.rotation import NO_FILES, Rotation, SecretFiles
from relay.settings import Settings
from relay.store import schema
from relay.store.checks import CheckTerms
from relay.store.engine import Store, StoreDownError
from relay.store.notify import Line
from relay.traffic import Traffic
from relay.work.allowlist import DEMOTIONS_SECONDS, AllowlistKeeper, make_source
from relay.work.arrivals import Arrivals
from relay.work.cancel import RunCanceller
from relay.work.changed_files import ChangedFiles
from relay.work.commands import CommandRunner
from relay.work.comments import CommentReconciler
from relay.work.lookout import Lookout
from relay.work.observe import Observer
from relay.work.outbox import POLL_SECONDS, Worker
from relay.work.reconcile import Reconciler
from relay.work.rerun import Rerunner
from relay.work.sweep import Sweep


@dataclass(frozen=True, slots=True)
class Chance:
    """Randomness as an argument: ``share`` gives a number from 0 up to 1, ``guid`` a fresh delivery id."""

    share: Callable[[], float] = random.random
    guid: Callable[[], str] = lambda: str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class Relay:
    """The parts of one process, built and not yet running."""

    settings: Settings
    store: Store
    now: Now
    chance: Chance
    metrics: Metrics
    credentials: Credentials
    rotation: Rotation
    terms: CheckTerms
    github: GitHubClient
    http: AsyncClient
    verifier: OidcVerifier
    hud: HudClient | None
    keeper: AllowlistKeeper
    worker: Worker
    traffic: Traffic
    sweep: Sweep
    lookout: Lookout
    figures: Figures
    line: Line

    def close(self) -> None:
        """Let go of the database, for a relay that was built and never run."""
        self.store.close()


def build(
    settings: Settings,
    *,
    now: Now = system_now,
    chance: Chance | None = None,
    migrate: bool = True,
    open_store: Callable[[str], Store] = Store,
    transport: OpenTransport | None = None,
    secret_files: SecretFiles = NO_FILES,
    poll_seconds: float = POLL_SECONDS,
    trust: ssl.SSLContext | None = None,
    read: Callable[[str], RSAPrivateKey] = read_key,
) -> Relay:
    """Build every part. Brings the database to the newest schema first.

    ``open_store`` and ``transport`` stand between us and the outside, for whoever must see each commit and request.
    ``poll_seconds`` is how long the worker waits at most before it looks whether something has become due.
    ``trust`` replaces the usual certificate authorities, whose reading takes 27 ms for each kind of peer.
    ``read`` reads the apps' keys, which takes 37 ms for each, for whoever builds many relays with the same ones.
    Raises SettingsError for keys that are none, StoreDownError when the database cannot be reached.
    """
    chance = chance or Chance()
    apps = load_apps(settings, read)
    store = open_store(settings.database_url)
    try:
        if migrate:
            _migrate(store)
        keys = capability_keys(settings, store, now)
        return _assemble(settings, store, apps, keys, now, chance, transport, secret_files, poll_seconds, trust)
    except BaseException:
        store.close()
        raise


def _migrate(store: Store) -> None:
    try:
        schema.upgrade(store.write_engine)
    except Exception as error:
        raise StoreDownError(f"CRCR_DATABASE_URL: the database cannot be opened: {type(error).__name__}") from error


def _assemble(
    settings: Settings,
    store: Store,
    apps: Apps,
    keys: CapabilityKeys,
    now: Now,
    chance: Chance,
    transport: OpenTransport | None,
    secret_files: SecretFiles,
    poll_seconds: float,
    trust: ssl.SSLContext | None,
) -> Relay:
    metrics = Metrics()
    agent = f"cross-repo-ci-relay/{version('cross-repo-ci-relay')}"
    terms = terms_of(settings)
    github = GitHubClient(
        apps=apps,
        upstream=settings.upstream,
        http=new_http_pool(user_agent=agent, transport=transport, trust=trust),
        api_url=settings.github_api_url,
        now=now,
        observe=metrics.github,
    )
    # GitHub, the HUD and the issuers' keys have connections each, so that none waits behind another's.
    http = new_http_client(user_agent=agent, transport=None if transport is None else transport(), trust=trust)
    hud = _hud(settings, agent, now, transport, trust)
    credentials = Credentials(settings, apps, keys, hud)
    woken: list[Callable[[], None]] = []

    def wake() -> None:
        for wake_one in woken:
            wake_one()

    keeper = AllowlistKeeper(
        make_source(settings.allowlist, github, store),
        store,
        now=now,
        terms=terms,
        label_prefix=settings.label_prefix,
        seconds=settings.allowlist_seconds,
        demotions_seconds=min(DEMOTIONS_SECONDS, settings.allowlist_seconds),
        wake=wake,
    )
    sites = Sites(settings.public_url)
    place = Place(settings.public_url, settings.label_prefix, settings.outcomes)
    performer = GitHubPerformer(
        store=store,
        github=github,
        hud=hud,
        upstream=settings.upstream,
        keys=keys,
        sites=sites,
        terms=terms,
        reconciler=Reconciler(
            store=store,
            github=github,
            terms=terms,
            place=place,
            now=now,
            listed=keeper.known,
        ),
        commands=CommandRunner(
            store=store,
            github=github,
            terms=terms,
            place=place,
            listed=keeper.current,
            fresh_id=chance.guid,
        ),
        comments=CommentReconciler(store=store, github=github, terms=terms, now=now),
        rerunner=Rerunner(store=store, github=github, terms=terms, listed=keeper.current, fresh_id=chance.guid),
        canceller=RunCanceller(store=store, github=github),
        observer=Observer(store=store, github=github, terms=terms),
        arrivals=Arrivals(store=store, github=github, now=now, scale=settings.retry_scale),
        changed_files=ChangedFiles(github, now),
        now=now,
        scale=settings.retry_scale,
    )
    traffic = Traffic()
    worker = Worker(
        store,
        performer,
        now=now,
        random=chance.share,
        name=chance.guid(),
        observer=metrics,
        retry_scale=settings.retry_scale,
        poll_seconds=poll_seconds,
        traffic=traffic,
        witness=github.witness,
    )
    woken.append(worker.wake)
    return Relay(
        settings=settings,
        store=store,
        now=now,
        chance=chance,
        metrics=metrics,
        credentials=credentials,
        rotation=Rotation(secret_files, credentials.renew),
        terms=terms,
        github=github,
        http=http,
        verifier=OidcVerifier(
            issuers=settings.oidc_issuers,
            audience=settings.oidc_audience,
            pipelines=settings.buildkite_pipelines,
            keys=KeyCache(
                {anchor.issuer: anchor.jwks_url for anchor in settings.oidc_issuers},
                fetch=partial(_fetch, http),
                now=now,
            ),
            now=now,
        ),
        hud=hud,
        keeper=keeper,
        worker=worker,
        traffic=traffic,
        sweep=Sweep(
            store=store,
            terms=terms,
            now=now,
            wake=wake,
            seconds=settings.sweep_seconds,
            keep=timedelta(days=settings.retention_days),
        ),
        lookout=Lookout.of(
            settings,
            store=store,
            github=github,
            terms=terms,
            listed=keeper.known,
            now=now,
            wake=wake,
            fresh_id=chance.guid,
            counts=metrics,
        ),
        figures=Figures(
            store=store,
            keeper=keeper,
            metrics=metrics,
            upstream=settings.upstream,
            left=github.witness.requests_left,
            now=now,
        ),
        line=Line(),
    )


def _hud(
    settings: Settings, agent: str, now: Now, transport: OpenTransport | None, trust: ssl.SSLContext | None
) -> HudClient | None:
    if settings.hud_api_url is None or settings.hud_key is None:
        return None
    http = open_way(agent, transport, trust)
    return HudClient(http, url=settings.hud_api_url, key=settings.hud_key.get_secret_value(), now=now, agent=agent)


async def _fetch(http: AsyncClient, url: str) -> bytes:
    """What is at this URL and nowhere else: a redirect is a failure, and no more is read than a key set may hold."""
    body = bytearray()
    async with http.stream("GET", url) as answer:
        answer.raise_for_status()
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > MOST_BYTES:
                break
    return bytes(body)
