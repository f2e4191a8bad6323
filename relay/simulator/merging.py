"""Whether a head may be merged, as a ruleset with required status checks decides it.

https://docs.github.com/en/repositories/configuring-branches-and-merges-in-your-repository/managing-rulesets/available-rules-for-rulesets#require-status-checks-to-pass-before-merging
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relay.simulator.model import CheckRun, Repository, RequiredCheck

#: "Required status checks must have a successful, skipped, or neutral status".
#: https://docs.github.com/en/pull-requests/collaborating-with-pull-requests/collaborating-on-repositories-with-code-quality-features/about-status-checks
SATISFIES = frozenset({"success", "skipped", "neutral"})


@dataclass(frozen=True)
class MergeBox:
    """What stands above the merge button.

    ``contexts`` gives each required check's state: ``expected`` (never came), ``pending``, or its conclusion.
    """

    mergeable: bool
    contexts: Mapping[str, str]


def merge_box(repository: Repository, head_sha: str) -> MergeBox:
    """The state of every required check on a head, matched by exact name and, where set, by app."""
    runs = list(repository.check_runs.values())
    contexts = {required.context: _state(runs, head_sha, required) for required in repository.required}
    return MergeBox(all(state in SATISFIES for state in contexts.values()), contexts)


def _state(runs: list[CheckRun], head_sha: str, required: RequiredCheck) -> str:
    found = [
        run
        for run in runs
        if run.head_sha == head_sha and run.name == required.context and required.integration_id in {None, run.app.id}
    ]
    return (found[-1].conclusion or "pending") if found else "expected"
