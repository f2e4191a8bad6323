"""Does one effect: loads what it needs, asks GitHub or the HUD, and says what to note.

Each kind has one method. Effects that need only a glance at the store before they go out are loaded together, since
fifty dispatches of one webhook are claimed together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Self

import structlog
from sqlalchemy import Connection
from structlog.contextvars import bind_contextvars

from allowlist.model import RepoName
from relay.capability import CapabilityKeys
from relay.clock import Now
from relay.deciding.effects import Kind
from relay.deciding.payload import ChangeFacts, RelayBlock, TooLargeError, client_payload, with_labels
from relay.github.errors import GitHubError, IdentityChanged, Limited, RetryLater, Unauthenticated
from relay.github.port import Address, GitHub, Located
from relay.hud import ForwardFacts, Hud, HudRefusedError, HudRetryError
from relay.store import dispatching
from relay.store.cancelling import want_late_cancelled
from relay.store.checks import CheckTerms
from relay.store.dispatching import ToSend
from relay.store.doubts import MAYBE_DELIVERED, note_earlier
from relay.store.engine import Store
from relay.store.forwarding import load_forwards
from relay.store.holding import hold_one
from relay.store.intake import PathsAnswer, apply_paths
from relay.store.outbox import Claimed
from relay.store.reports import confirm, nightly_subject
from relay.store.repositories import note_not_seen, note_seen
from relay.tracing import trace_id
from relay.work.arrivals import Arrivals, MaybeDeliveredError
from relay.work.cancel import RunCanceller
from relay.work.changed_files import ChangedFiles
from relay.work.commands import CommandRunner
from relay.work.comments import CommentReconciler
from relay.work.observe import Observer
from relay.work.outbox import Again, GiveUp, Job, Later, Note, Rest, Verdict
from relay.work.reconcile import Reconciler
from relay.work.rerun import Rerunner
from relay.work.schedule import UNSURE
from relay.work.verdicts import NotYetError, SharedNote

log = structlog.get_logger(__name__)

#: How long the list of changed files is asked for, at growing intervals. GitHub fails for good on some diffs, and a
#: test that comes after its deadline is none.
PATHS_PATIENCE = timedelta(minutes=20)

#: Failures that say something of GitHub, the account or the way there, and nothing of what was asked.
UNAVAILABLE = frozenset({"github_unavailable", "network", "timeout", "bad_answer"})


@dataclass(frozen=True, slots=True)
class Sites:
    """Where people and backends reach this service."""

    public_url: str

    @property
    def callback(self) -> str:
        """Where a backend reports to."""
        return f"{self.public_url}/github/callback"

    def change(self, change_id: int) -> str:
        """The page of one change."""
        return f"{self.public_url}/changes/{change_id}"


class GitHubPerformer:
    """Performs every effect the relay plans. Implements ``relay.work.outbox.Performer``."""

    def __init__(
        self,
        *,
        store: Store,
        github: GitHub,
        hud: Hud | None,
        upstream: RepoName,
        keys: CapabilityKeys,
        sites: Sites,
        terms: CheckTerms,
        reconciler: Reconciler,
        commands: CommandRunner,
        comments: CommentReconciler,
        rerunner: Rerunner,
        canceller: RunCanceller,
        observer: Observer,
        arrivals: Arrivals,
        changed_files: ChangedFiles,
        now: Now,
        scale: float = 1.0,
    ) -> None:
        self._store = store
        self._github = github
        self._hud = hud
        self._upstream = upstream
        self._keys = keys
        self._sites = sites
        self._terms = terms
        self._reconciler = reconciler
        self._commands = commands
        self._comments = comments
        self._rerunner = rerunner
        self._canceller = canceller
        self._observer = observer
        self._arrivals = arrivals
        self._changed = changed_files
        self._now = now
        self._scale = scale
        self._paths_patience = PATHS_PATIENCE * scale

    async def begin(self, effects: Sequence[Claimed]) -> list[tuple[Claimed, Job]]:
        """One job for each effect; what dispatches and forwards need is loaded together."""
        ids = [effect.subject_id for effect in effects if effect.kind is Kind.DISPATCH]
        reports = [effect.subject_id for effect in effects if effect.kind is Kind.FORWARD_HUD]
        loaded: dict[int, ToSend] = {}
        forwards: dict[int, ForwardFacts] = {}
        if ids:
            loaded = await self._store.read(lambda conn: dispatching.load_to_send(conn, ids))
        if reports and self._hud is not None:
            forwards = await self._store.read(lambda conn: load_forwards(conn, reports))
        jobs: dict[Kind, Callable[[Claimed], Awaitable[Note | None]]] = {
            Kind.DECIDE_PATHS: self._decide_paths,
            Kind.RECONCILE_CHECK: self._reconcile,
            Kind.PIN_BACKEND: self._pin,
            Kind.CONFIRM_COMMIT: self._confirm,
            Kind.RUN_COMMAND: self._commands.run,
            Kind.RERUN: self._rerunner.rerun,
            Kind.CANCEL_RUNS: self._canceller.cancel,
            Kind.RECONCILE_COMMENT: self._reconcile_comment,
            Kind.OBSERVE: self._observe,
        }

        def job(effect: Claimed) -> Job:
            if effect.kind is Kind.DISPATCH:
                return partial(self._dispatch, effect, loaded.get(effect.subject_id))
            if effect.kind is Kind.FORWARD_HUD:
                return partial(self._forward, forwards.get(effect.subject_id))
            return partial(jobs[effect.kind], effect)

        return [(effect, job(effect)) for effect in effects]

    def judge(self, error: Exception) -> Verdict | None:
        """What a failure means for the effect that met it."""
        if isinstance(error, Limited):
            return Rest(error.reason, error.detail, error.retry_at, named=error.named)
        if isinstance(error, NotYetError):
            return Later(error.reason, str(error), error.at)
        if isinstance(error, RetryLater):
            down = error.reason in UNAVAILABLE
            return Again(error.reason, error.detail, error.retry_at, down=down, unsure=error.ambiguous)
        if isinstance(error, Unauthenticated):
            # It is our key or our clock: what is given up for that would not come back once it is mended. To go on
            # asking with bad credentials has GitHub refuse good ones too for a while.
            # https://docs.github.com/rest/authentication/authenticating-to-the-rest-api#failed-login-limit
            return Again(error.reason, error.detail, down=True)
        if isinstance(error, HudRetryError):
            return Again("hud_unavailable", str(error), error.retry_at, down=True)
        if isinstance(error, HudRefusedError):
            return GiveUp(error.reason, str(error))
        if isinstance(error, TooLargeError):
            return GiveUp("payload_too_large", str(error))
        if isinstance(error, MaybeDeliveredError):
            return GiveUp(MAYBE_DELIVERED, str(error))
        if isinstance(error, GitHubError):
            return GiveUp(error.reason, error.detail, refused=True)
        return None

    def put_back(self, effect: Claimed) -> Note | None:
        """A dispatch whose head was replaced while it was tried makes way for the newer one."""
        if effect.kind in {Kind.DISPATCH, Kind.DECIDE_PATHS}:
            return lambda conn, now: dispatching.drop_if_overtaken(conn, effect.subject_id, now)
        return None

    def gave_up(self, effect: Claimed, reason: str, detail: str) -> Note | None:
        """A dead letter is told where people look: on the dispatch, its checks and the backend's page."""
        if effect.kind in {Kind.DISPATCH, Kind.DECIDE_PATHS}:

            def undelivered(conn: Connection, now: datetime) -> None:
                sent = dispatching.load_to_send(conn, [effect.subject_id]).get(effect.subject_id)
                if sent is not None:
                    dispatching.note_undelivered(conn, sent, reason, detail, self._terms, now)

            return undelivered
        if effect.kind is Kind.RUN_COMMAND:
            return self._commands.gave_up(effect, detail)
        if effect.kind is Kind.RERUN:
            return self._rerunner.gave_up(effect, detail)
        if effect.kind is Kind.CANCEL_RUNS:
            return self._canceller.gave_up(effect, detail)
        if effect.kind is Kind.OBSERVE:
            return self._observer.gave_up(effect.subject_id, detail)
        if effect.kind is Kind.PIN_BACKEND:
            repo = RepoName.parse(effect.subject)
            return lambda conn, now: note_not_seen(conn, repo, reason, detail, now)
        return None

    async def _dispatch(self, effect: Claimed, sent: ToSend | None) -> Note | None:
        if sent is None or sent.state != "planned":
            return None  # Superseded, filtered or sent between the plan and now; the row says which.
        _tell_log(sent)
        if effect.attempts > 1 and await self._arrivals.arrived(effect, sent):
            return _Taken(sent, None, effect)
        if sent.overtaken:
            return lambda conn, now: dispatching.note_overtaken(conn, sent, now)
        if sent.paused_until is not None and sent.paused_until > self._now():
            reason = sent.pause_reason or ""
            return lambda conn, now: hold_one(conn, sent.id, reason, self._terms, now)
        body = self._body(sent)
        located = await self._github.dispatch(sent.address, sent.event_type, body)
        log.info("dispatched", dispatch=sent.id, reason=sent.reason)
        return _Taken(sent, located)

    def _body(self, sent: ToSend) -> bytes:
        payload = sent.payload
        if sent.reason not in {"wanted", "pending_paths"}:
            payload = with_labels(payload, sent.labels)
        block = RelayBlock(
            token=self._keys.issue(sent.id),
            origin_delivery=sent.origin_delivery,
            callback_url=self._sites.callback,
            dashboard_url=self._sites.change(sent.change_id),
            change=ChangeFacts(
                kind=sent.kind,
                number=sent.number,
                head_sha=sent.head_sha,
                base_ref=sent.base_ref,
                base_sha=sent.base_sha,
                merge_sha=sent.merge_sha,
                landed_sha=sent.landed_sha,
                labels=sent.labels,
                reason=sent.reason,
            ),
            versions=sent.terms.versions,
            deadline=sent.give_up_at or sent.created_at + sent.terms.queue + sent.terms.run,
        )
        return client_payload(sent.event_type, sent.delivery_id, payload, block).body

    async def _decide_paths(self, effect: Claimed) -> Note | None:
        sent = (await self._store.read(lambda conn: dispatching.load_to_send(conn, [effect.subject_id]))).get(
            effect.subject_id
        )
        if sent is None or sent.state != "pending_paths":
            return None
        _tell_log(sent)
        at = await self._store.read(lambda conn: dispatching.address_of(conn, self._upstream))
        answer = await self._answer(effect, at, sent)
        return lambda conn, now: apply_paths(conn, sent.id, answer, terms=self._terms, now=now)

    async def _answer(self, effect: Claimed, at: Address, sent: ToSend) -> PathsAnswer:
        """The changed files, or why they cannot be known. A backend is rather told in vain than not at all."""
        try:
            return await self._changed.of(at, sent)
        except Limited:
            raise
        except RetryLater as error:
            now, age = self._now(), self._now() - effect.created_at
            left = self._paths_patience - age
            if left > timedelta():
                # That one diff cannot be had, for so many backends, says nothing of the account: its gates go on.
                wait = min(max(age, UNSURE * self._scale), left)
                again = max(now + wait, error.retry_at or now)
                raise NotYetError(error.detail, reason="files_unavailable", at=again) from error
            return PathsAnswer((), complete=False, doubt=f"The changed files are not known: {error.detail}")
        except GitHubError as error:
            return PathsAnswer((), complete=False, doubt=f"The changed files are not known: {error.detail}")

    async def _reconcile(self, effect: Claimed) -> Note | None:
        await self._reconciler.reconcile(effect.subject_id)
        return None

    async def _observe(self, effect: Claimed) -> Note | None:
        return await self._observer.observe(effect.subject_id)

    async def _reconcile_comment(self, effect: Claimed) -> Note | None:
        await self._comments.reconcile(effect.subject_id)
        return None

    async def _forward(self, facts: ForwardFacts | None) -> Note | None:
        # Nothing to do where the HUD was switched off since the report came, or the report is gone.
        if self._hud is not None and facts is not None:
            await self._hud.forward(facts)
        return None

    async def _pin(self, effect: Claimed) -> Note | None:
        repo = RepoName.parse(effect.subject)
        at = await self._store.read(lambda conn: dispatching.address_of(conn, repo))
        # One that is known is looked at because something happened to it.
        located = await self._github.locate(at, fresh=at.repository_id is not None)
        if at.repository_id is not None and located.repository_id != at.repository_id:
            raise IdentityChanged(
                f"{repo} is now repository {located.repository_id}, pinned is {at.repository_id}",
                expected_id=at.repository_id,
                found_id=located.repository_id,
            )

        def note(conn: Connection, now: datetime) -> None:
            dispatching.pin(conn, repo, located, now)
            note_seen(conn, repo, located, now)

        return note

    async def _confirm(self, effect: Claimed) -> Note | None:
        head_sha = effect.subject
        at = await self._store.read(lambda conn: dispatching.address_of(conn, self._upstream))
        verified = await self._github.contains_commit(at, head_sha, await self._branches(effect))
        return lambda conn, now: confirm(conn, effect.subject_id, verified, now)

    async def _branches(self, effect: Claimed) -> tuple[str, ...]:
        return await self._store.read(lambda conn: nightly_subject(conn, effect.subject_id))


@dataclass(frozen=True, slots=True)
class _Taken(SharedNote):
    """GitHub has it. Its pull request may have ended while it was being sent."""

    sent: ToSend
    located: Located | None
    found: Claimed | None = None  # The try that found it there, and sent nothing.

    @classmethod
    def write_all(cls, conn: Connection, notes: Sequence[Self], now: datetime) -> None:
        """Fifty dispatches of one webhook end together, and are noted in a few statements."""
        dispatching.note_sent(conn, [(note.sent, note.located) for note in notes], now)
        want_late_cancelled(conn, [note.sent for note in notes], now)
        for note in notes:
            if note.found is not None:
                note_earlier(conn, note.found)


def _tell_log(sent: ToSend) -> None:
    """Every line that this effect's task logs from now on, whoever writes it, says what it is about."""
    bind_contextvars(
        delivery=sent.origin_delivery,
        trace=trace_id(sent.origin_delivery),
        head=sent.head_sha,
        backend=str(sent.address.repo),
    )
