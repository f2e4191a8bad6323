"""The upstream repository: pull requests, pushes, comments, the merge queue, and the checks a reviewer sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relay.simulator import acts, api_checks, payloads
from relay.simulator.acts import Act, Files
from relay.simulator.merging import MergeBox, merge_box
from relay.simulator.model import CheckRun, Comment, Json, Pull, RequiredCheck
from relay.simulator.site import Place, wait_until
from relay.simulator.webhooks import Delivery


class PullRequest:
    """One pull request, and what people do to it. Each act returns the deliveries it caused."""

    def __init__(self, upstream: Upstream, pull: Pull) -> None:
        self._upstream = upstream
        self.pull = pull
        self.deliveries: list[Delivery] = []

    @property
    def number(self) -> int:
        """Its number."""
        return self.pull.number

    @property
    def head_sha(self) -> str:
        """Its head of now."""
        return self.pull.head_sha

    @property
    def html_url(self) -> str:
        """Its page."""
        return f"{self._upstream.world.url}/{self._upstream.name}/pull/{self.pull.number}"

    @property
    def delivery(self) -> Delivery:
        """The newest ``pull_request`` delivery. Raises IndexError when none was sent."""
        return [item for item in self.deliveries if item.event == "pull_request"][-1]

    def push(
        self, *, files: Files = ("change.py",), message: str = "More", author: str | None = None, sha: str | None = None
    ) -> list[Delivery]:
        """Push one more commit."""

        def move() -> list[Delivery]:
            up, world = self._upstream, self._upstream.world
            who = author or self.pull.author.login
            commit = acts.add_commit(world, up.repository, self.pull.head_sha, files, message, who, sha)
            return acts.synchronize(world, up.repository, self.pull, commit.sha, up.person(who))

        return self._did(move)

    def force_push(self, to_sha: str) -> list[Delivery]:
        """Force the head to a commit that exists, such as an earlier head."""
        up = self._upstream
        return self._did(lambda: acts.synchronize(up.world, up.repository, self.pull, to_sha, self.pull.author))

    def label(self, name: str, by: str = "triager") -> list[Delivery]:
        """Add a label."""
        return self._label(name, by, on=True)

    def unlabel(self, name: str, by: str = "triager") -> list[Delivery]:
        """Remove a label."""
        return self._label(name, by, on=False)

    def _label(self, name: str, by: str, *, on: bool) -> list[Delivery]:
        up = self._upstream
        return self._did(lambda: acts.label_pull(up.world, up.repository, self.pull, name, up.person(by), on=on))

    def close(self, *, merged: bool = False, by: str | None = None, keep_merge_sha: bool = False) -> list[Delivery]:
        """Close it; ``merged`` merges it into its base, which is a push too."""
        up = self._upstream
        who = by or self.pull.author.login
        return self._did(
            lambda: acts.close_pull(
                up.world, up.repository, self.pull, up.person(who), merged=merged, keep_merge_sha=keep_merge_sha
            )
        )

    def reopen(self) -> list[Delivery]:
        """Reopen it."""
        up = self._upstream
        return self._did(lambda: acts.reopen_pull(up.world, up.repository, self.pull, self.pull.author))

    def edit_base(self, base: str) -> list[Delivery]:
        """Point it at another base branch, which must exist."""
        return self._edit(base=base, title=None)

    def edit_title(self, title: str) -> list[Delivery]:
        """Change its title."""
        return self._edit(base=None, title=title)

    def _edit(self, *, base: str | None, title: str | None) -> list[Delivery]:
        up = self._upstream
        return self._did(
            lambda: acts.edit_pull(up.world, up.repository, self.pull, self.pull.author, base=base, title=title)
        )

    def ready_for_review(self) -> list[Delivery]:
        """Take it out of draft."""
        return self._draft(on=False)

    def convert_to_draft(self) -> list[Delivery]:
        """Make it a draft."""
        return self._draft(on=True)

    def _draft(self, *, on: bool) -> list[Delivery]:
        up = self._upstream

        def change() -> list[Delivery]:
            self.pull.draft = on
            action = "converted_to_draft" if on else "ready_for_review"
            return acts.pull_event(up.world, up.repository, self.pull, action, self.pull.author)

        return self._did(change)

    def _did(self, change: Act) -> list[Delivery]:
        deliveries = self._upstream.did(change)
        self.deliveries.extend(deliveries)
        return deliveries


@dataclass(frozen=True)
class MergeGroup:
    """A group in the merge queue."""

    head_sha: str
    head_ref: str
    base_sha: str
    base_ref: str
    deliveries: list[Delivery]


class Upstream(Place):
    """An upstream repository."""

    def open_pull_request(
        self,
        *,
        title: str = "Change something",
        body: str | None = "Why it is changed.",
        labels: Sequence[str] = (),
        author: str = "contributor",
        author_association: str = "CONTRIBUTOR",
        files: Files = ("change.py",),
        fork: bool = True,
        base: str = "main",
        head_ref: str | None = None,
        head_sha: str | None = None,
        draft: bool = False,
    ) -> PullRequest:
        """Open a pull request with one commit; ``head_sha`` names it, or reuses one that exists."""
        opened: list[Pull] = []

        def act() -> list[Delivery]:
            pull, deliveries = acts.open_pull(
                self.world,
                self.repository,
                title=title,
                body=body,
                labels=labels,
                author=author,
                author_association=author_association,
                files=files,
                fork=fork,
                base=base,
                head_ref=head_ref,
                draft=draft,
                head_sha=head_sha,
            )
            opened.append(pull)
            return deliveries

        deliveries = self.did(act)
        made = PullRequest(self, opened[0])
        made.deliveries.extend(deliveries)
        return made

    def pull_request(self, number: int) -> PullRequest:
        """The pull request of that number. Raises KeyError."""
        return PullRequest(self, self.repository.pulls[number])

    def push(
        self,
        ref: str = "refs/heads/main",
        *,
        message: str = "Work",
        files: Files = ("work.py",),
        author: str = "committer",
        sha: str | None = None,
        commits: int = 1,
    ) -> list[Delivery]:
        """Push commits to a branch, made from the default branch where it is new; a known ``sha`` only moves it."""
        return self.did(
            lambda: acts.push(
                self.world, self.repository, ref, files=files, message=message, author=author, sha=sha, commits=commits
            )
        )

    def push_tag(self, tag: str, sha: str | None = None, author: str = "committer") -> list[Delivery]:
        """Push one tag, by default on the newest commit."""
        return self.push_tags([tag], sha, author)

    def push_tags(self, tags: Sequence[str], sha: str | None = None, author: str = "committer") -> list[Delivery]:
        """Push tags in one go; GitHub sends no events for more than three."""
        return self.did(lambda: acts.push_tags(self.world, self.repository, tags, sha or self.head, author))

    def delete_ref(self, ref: str, author: str = "committer") -> list[Delivery]:
        """Delete a branch or tag by its full ref."""
        return self.did(lambda: acts.delete_ref(self.world, self.repository, ref, author))

    def comment(self, pr: PullRequest, user: str, body: str) -> list[Delivery]:
        """Comment on a pull request."""
        return self.did(lambda: acts.add_comment(self.world, self.repository, pr.pull, self.person(user), body)[1])

    def comments(self, pr: PullRequest) -> list[Comment]:
        """The comments on a pull request, oldest first."""
        return [item for item in list(self.repository.comments.values()) if item.number == pr.number]

    def add_to_merge_queue(
        self, pr: PullRequest, by: str = "maintainer", *, on: MergeGroup | None = None
    ) -> MergeGroup:
        """Queue a pull request, behind another group where one is given: branch, push and ``checks_requested``."""
        made: list[Json] = []
        under = None if on is None else on.head_sha

        def act() -> list[Delivery]:
            group, deliveries = acts.queue(self.world, self.repository, pr.pull, self.person(by), under)
            made.append(group)
            return deliveries

        deliveries = self.did(act)
        group = made[0]
        return MergeGroup(group["head_sha"], group["head_ref"], group["base_sha"], group["base_ref"], deliveries)

    def destroy_merge_group(
        self, group: MergeGroup, reason: str = "dequeued", by: str = "maintainer"
    ) -> list[Delivery]:
        """End a merge group: ``merged``, ``invalidated`` or ``dequeued``."""
        whole = self.repository.merge_groups[group.head_sha]
        return self.did(lambda: acts.leave_queue(self.world, self.repository, whole, reason, self.person(by)))

    def checks(self, head_sha: str) -> dict[str, CheckRun]:
        """The checks of a commit by name, as GitHub shows them: the newest of a name."""
        return {run.name: run for run in self.all_checks(head_sha)}

    def all_checks(self, head_sha: str) -> list[CheckRun]:
        """Every check run of a commit, oldest first, those hidden behind newer ones included."""
        return [run for run in list(self.repository.check_runs.values()) if run.head_sha == head_sha]

    def check_runs(self, head_sha: str, name: str) -> list[CheckRun]:
        """Every check run of that name on a commit, oldest first, each with its ``writes``."""
        return [run for run in self.all_checks(head_sha) if run.name == name]

    def wait_for_check(
        self, head_sha: str, name: str, *, conclusion: str | None = None, timeout: float = 10.0
    ) -> CheckRun:
        """Block until the check is there, with that conclusion where one is given. Raises TimeoutError."""

        def there() -> bool:
            found = self.checks(head_sha).get(name)
            return found is not None and (conclusion is None or found.conclusion == conclusion)

        wait_until(there, timeout, what=f"check {name} ({conclusion or 'any state'}) on {head_sha[:7]}")
        return self.checks(head_sha)[name]

    def require(self, context: str, integration_id: int | None = None) -> None:
        """Add a required check to the ruleset; ``integration_id`` ties it to an app."""
        self.repository.required.append(RequiredCheck(context, integration_id))

    def required_status(self, at: PullRequest | MergeGroup | str) -> MergeBox:
        """The merge box of a pull request, a merge group or a head, computed from the ruleset."""
        return merge_box(self.repository, at if isinstance(at, str) else at.head_sha)

    def rerequest_check(self, head_sha: str, name: str, user: str) -> list[Delivery]:
        """Press "Re-run" at one check."""
        run = self.checks(head_sha)[name]
        return self.did(lambda: api_checks.emit(self.world, self.repository, run, "rerequested", sender=user))

    def press_action(self, head_sha: str, name: str, identifier: str, user: str) -> list[Delivery]:
        """Press a check's button."""
        run = self.checks(head_sha)[name]
        extra = {"requested_action": {"identifier": identifier}}
        return self.did(
            lambda: api_checks.emit(self.world, self.repository, run, "requested_action", extra, sender=user)
        )

    def rerequest_suite(self, head_sha: str, user: str) -> list[Delivery]:
        """Press "Re-run all checks": one event per suite."""

        def act() -> list[Delivery]:
            deliveries = []
            for suite in list(self.repository.suites.values()):
                if suite.head_sha == head_sha:
                    shown = payloads.check_suite(self.world, self.repository, suite)
                    payload = {"action": "rerequested", "check_suite": shown}
                    deliveries += self.world.webhooks.emit(
                        "check_suite", payload, self.repository, self.person(user), only=suite.app
                    )
            return deliveries

        return self.did(act)
