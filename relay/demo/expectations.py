"""What has to be true at the end, each asked of what the simulated GitHub saw: its checks, its runs, its log."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from levels.powers import POWERS, Show
from relay.demo.results import forwarded, kept, ran
from relay.demo.scene import (
    ACTORS,
    ANSWERED,
    FAILING,
    INT4,
    LABELLED,
    MAINTAINER,
    REASON,
    RED,
    SILENT,
    SUITE,
    VERSIONED,
    VERSIONS,
)
from relay.demo.stage import Opened, Stage
from relay.simulator import CheckRun
from relay.texts.words import GATE_NAME

_MENTION = re.compile(r"@(\w+)")
_RECORDED = tuple(actor.name for actor in ACTORS if POWERS[actor.level].recorded)
_NEVER_SHOWN = tuple(actor.name for actor in ACTORS if POWERS[actor.level].check is Show.NEVER)


@dataclass(frozen=True, slots=True)
class Expectation:
    """One sentence about the demo, what it asks for, and what was seen."""

    says: str
    wanted: object
    seen: object

    @property
    def held(self) -> bool:
        """Whether what was seen is what was wanted."""
        return bool(self.wanted == self.seen)


def expectations(stage: Stage) -> list[Expectation]:
    """All of them, as things stand now."""
    return [
        *_deliveries(stage),
        *_dispatches(stage),
        *_reports(stage),
        *(_checks(stage, one) for one in stage.opened),
        *_words(stage),
        *_override(stage),
        *_comments(stage),
        *_merging(stage),
    ]


def _deliveries(stage: Stage) -> list[Expectation]:
    asked = [delivery for one in stage.opened for delivery in one.pr.deliveries if delivery.event == "pull_request"]
    return [
        Expectation(
            "Every pull_request webhook was answered 202",
            [202] * len(stage.opened),
            [delivery.response.status for delivery in asked if delivery.action == "opened"],
        )
    ]


def _dispatches(stage: Stage) -> list[Expectation]:
    told = Counter(
        (request.body["client_payload"]["payload"]["number"], name)
        for name, backend in stage.backends.items()
        for request in backend.dispatches
    )
    wanted = Counter((one.pr.number, name) for one in stage.opened for name in one.proposal.told)
    started = Counter(
        (run.client_payload["payload"]["number"], name)
        for name, backend in stage.backends.items()
        for run in backend.runs
    )
    return [
        Expectation("Each backend was told once of each change that its entry asks for, and of no other", wanted, told),
        Expectation(
            "Each of these started one run, but at the backend without a workflow",
            Counter({key: count for key, count in wanted.items() if key[1] != SILENT}),
            started,
        ),
    ]


def _reports(stage: Stage) -> list[Expectation]:
    steps = [
        outcome
        for name in _RECORDED
        for run in stage.backends[name].runs
        for job in run.jobs
        for outcome in job.reports
    ]
    finished = sorted(
        (name, run.delivery_id, job.name) for name in _RECORDED for run in stage.backends[name].runs for job in run.jobs
    )
    jobs = len(finished)
    taken = sum(1 for step in steps if step.exit_code == 0 and "reported: recorded" in step.output)
    return [
        Expectation("Each job's two reports, sent by the action's own report.py, were taken", 2 * jobs, taken),
        Expectation("Each finished report reached the HUD exactly once", finished, forwarded(stage)),
        Expectation(
            "The result recorded for each combination is what its run came to",
            ran(stage),
            {result.combination: result.outcome for result in kept(stage)},
        ),
    ]


def _checks(stage: Stage, one: Opened) -> Expectation:
    shown = {name: check.conclusion or check.status for name, check in stage.up.checks(one.pr.head_sha).items()}
    said = ", ".join(f"{name} {conclusion}" for name, conclusion in one.proposal.checks.items())
    return Expectation(f"#{one.pr.number} shows these checks and no others: {said}", dict(one.proposal.checks), shown)


def _words(stage: Stage) -> list[Expectation]:
    red = _shown(stage, RED, FAILING)
    versioned = _shown(stage, RED, VERSIONED)
    silent_pull = next(one.pr.number for one in stage.opened if SILENT in one.proposal.told)
    gate = stage.up.checks(_head(stage, silent_pull)).get(GATE_NAME)
    hidden = {
        name
        for one in stage.opened
        for name in stage.up.checks(one.pr.head_sha)
        if name.removeprefix("crcr/") in _NEVER_SHOWN
    }
    unlabelled = [
        one.pr.number
        for one in stage.opened
        if not one.proposal.labels and f"crcr/{LABELLED}" in stage.up.checks(one.pr.head_sha)
    ]
    return [
        Expectation("L1 and L2 never show on a pull request", set(), hidden),
        Expectation("L3 shows nowhere but under its label", [], unlabelled),
        Expectation(
            "The failing backend's check names the test that failed", True, "test_half_to_even" in _everything(red)
        ),
        Expectation(
            "A check has a row for each backend version with its suite version",
            [True] * len(VERSIONS),
            [
                any(f"`{version}`" in line and f"`{SUITE}`" in line for line in _everything(versioned).splitlines())
                for version in VERSIONS
            ],
        ),
        Expectation("The gate that stepped down says who did not answer", True, SILENT in _everything(gate)),
    ]


def _override(stage: Stage) -> list[Expectation]:
    gate = stage.up.checks(_head(stage, ANSWERED)).get(GATE_NAME)
    # Whether it waited first, and how often, is a matter of who is quicker; how it concluded is not.
    concluded = [
        str(write["conclusion"])
        for run in stage.up.check_runs(_head(stage, ANSWERED), GATE_NAME)
        for write in run.writes
        if write.get("conclusion")
    ]
    return [
        Expectation(
            f"The gate of #{ANSWERED} blocked, and then stepped down as a maintainer answered for the backend",
            ["failure", "neutral"],
            list(dict.fromkeys(concluded)),
        ),
        Expectation(
            "The overridden gate says who decided so, for which backend, and why",
            [True, True, True],
            [text in _everything(gate) for text in (MAINTAINER, FAILING, REASON)],
        ),
    ]


def _comments(stage: Stage) -> list[Expectation]:
    ours = [comment for one in stage.opened for comment in stage.up.comments(one.pr) if comment.app_id is not None]
    called = [(comment.number, name) for comment in ours for name in _MENTION.findall(comment.body)]
    answers = [comment.number for comment in ours if "/crcr override" in comment.body and MAINTAINER in comment.body]
    return [
        Expectation(
            "A failing backend's on-call was called once for each pull request, where its check shows",
            [(RED, "erin"), (INT4, "carol"), (ANSWERED, "erin")],
            sorted(called),
        ),
        Expectation(
            "The command got one answer, and beside these nothing was written",
            ([ANSWERED], len(called) + 1),
            (answers, len(ours)),
        ),
    ]


def _merging(stage: Stage) -> list[Expectation]:
    return [
        Expectation(
            "The required check lets every pull request be merged but the one that failed and nobody answered for",
            {one.pr.number: one.proposal.may_merge for one in stage.opened},
            {one.pr.number: stage.up.required_status(one.pr).mergeable for one in stage.opened},
        )
    ]


def _head(stage: Stage, number: int) -> str:
    return next(one.pr.head_sha for one in stage.opened if one.pr.number == number)


def _shown(stage: Stage, number: int, backend: str) -> CheckRun | None:
    return stage.up.checks(_head(stage, number)).get(f"crcr/{backend}")


def _everything(check: CheckRun | None) -> str:
    return "" if check is None else f"{check.title}\n{check.summary}\n{check.text}"
