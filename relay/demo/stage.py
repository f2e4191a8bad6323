"""The simulated GitHub and the real relay, on free ports, with a database in a folder of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from allowlist.model import RepoName
from relay.app import Relay, build
from relay.clock import Now
from relay.demo.scene import (
    ACTORS,
    ALLOWLIST,
    ALLOWLIST_PATH,
    FAILING,
    MAINTAINER,
    PROPOSALS,
    UPSTREAM,
    Actor,
    Proposal,
)
from relay.serving import listening_socket, serving
from relay.settings import load_settings
from relay.simulator import Backend, PullRequest, Simulator, Upstream
from relay.texts.words import GATE_NAME, backend_check_name

# Connections that come while the relay is being built wait in the socket's backlog.
_BACKLOG = 512
_FAILING = RepoName.parse(FAILING)


@dataclass(frozen=True, slots=True)
class Opened:
    """A proposal and the pull request that it became."""

    proposal: Proposal
    pr: PullRequest


class Stage:
    """Everything that runs. What the demo claims is read from ``sim``; the relay is only asked for its own tables."""

    def __init__(self, sim: Simulator, up: Upstream, backends: dict[str, Backend], relay: Relay, url: str) -> None:
        self.sim = sim
        self.up = up
        self.backends = backends
        self.relay = relay
        self.url = url
        self.opened: list[Opened] = []

    def open_pull_requests(self) -> Iterator[Opened]:
        """Open one after the other; each is there when its webhook has been answered."""
        for proposal in PROPOSALS:
            pr = self.up.open_pull_request(
                title=proposal.title, author=proposal.author, files=proposal.files, labels=proposal.labels
            )
            self.opened.append(Opened(proposal, pr))
            yield self.opened[-1]

    def blocked(self) -> bool:
        """Whether the reason is to be seen, and the gate blocks, wherever somebody is going to write a command."""
        looked = [self.up.checks(one.pr.head_sha) for one in self.opened if one.proposal.commands]
        found = [checks.get(name) for checks in looked for name in (GATE_NAME, backend_check_name(_FAILING))]
        return all(check is not None and check.conclusion == "failure" for check in found)

    def write_commands(self) -> None:
        """Let the maintainer write the commands, as comments."""
        for one in self.opened:
            for command in one.proposal.commands:
                self.up.comment(one.pr, MAINTAINER, command)


@contextlib.contextmanager
def stage(folder: Path, now: Now) -> Iterator[Stage]:
    """Set it up, and take it down when the block ends. ``folder`` takes the database."""
    with Simulator(now=now) as sim, listening_socket() as (listening, port):
        listening.listen(_BACKLOG)
        url = f"http://127.0.0.1:{port}"
        app = sim.create_app()
        up = sim.create_upstream(UPSTREAM, files={ALLOWLIST_PATH: ALLOWLIST, "README.md": "# Tensors\n"})
        up.require(GATE_NAME, app.id)
        up.set_role(MAINTAINER, "write")
        backends = {actor.name: _backend(sim, actor) for actor in ACTORS}
        settings = load_settings(
            {},
            upstream=UPSTREAM,
            github_api_url=sim.url,
            github_app_id=app.id,
            github_private_key=app.private_key_pem,
            webhook_secrets=(app.webhook_secret,),
            allowlist=f"{UPSTREAM}:{ALLOWLIST_PATH}@main",
            database_url=f"sqlite:///{folder / 'relay.db'}",
            public_url=url,
            oidc_issuers=({"issuer": sim.oidc.issuer, "jwks_url": sim.oidc.jwks_url},),
            hud_api_url=sim.hud_url,
            hud_key=sim.hud.key,
            # What takes minutes in earnest should not keep anybody waiting here.
            allowlist_seconds=2.0,
            check_interval_seconds=0.5,
            sweep_seconds=0.25,
            retry_scale=0.02,
        )
        relay = build(settings, now=now)
        with serving(relay, listening):
            # Only now: GitHub tells of installations by webhooks, and waits for their answers.
            sim.webhook_url = f"{url}/github/webhook"
            yield Stage(sim, up, backends, relay, url)


def _backend(sim: Simulator, actor: Actor) -> Backend:
    return sim.create_backend(actor.name, listener=actor.listener)
