"""A person answers for a backend: by comment or by the command, for one commit, in everybody's sight."""

from __future__ import annotations

import urllib.request

from typer.testing import CliRunner

from relay.cli import app
from relay.simulator import JobPlan, Listener, Mode, Reports
from tests.stories.asking import CHECK, GATE, answered, failed, say
from tests.stories.world import World

SILENT = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)


def test_an_override_lets_the_merge_go_on_with_a_neutral_gate_that_says_who_and_why(world: World) -> None:
    """The gate never turns green by it, and its first lines name the person and the reason."""
    _, pr = failed(world)

    say(world, pr, "writer", "/crcr override org/backend the failure is on the base too")
    gate = world.up.wait_for_check(pr.head_sha, GATE, conclusion="neutral")
    (told,) = answered(world, pr)
    world.idle()
    own = world.up.checks(pr.head_sha)[CHECK]

    assert "Overridden: org/backend by writer" == gate.title
    assert "the failure is on the base too" in (gate.summary or "").split("| Backend |")[0]
    assert world.up.required_status(pr).mergeable
    assert "failure" == own.conclusion
    assert "**Overridden**: `writer` answers for it" in (own.summary or "")
    assert "A new push ends it." in told


def test_the_page_shows_an_override_and_its_reason_as_text(world: World) -> None:
    """The page of a change says what its gate says, and a reason is text whatever was written."""
    _, pr = failed(world)

    say(world, pr, "writer", "/crcr override backend <b>known</b> & fixed soon")
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="neutral")
    with urllib.request.urlopen(f"{world.url}/changes/1", timeout=10) as answer:
        page = answer.read().decode()

    assert "<strong>Overridden by writer</strong>" in page
    assert "&lt;b&gt;known&lt;/b&gt; &amp; fixed soon" in page
    assert "/crcr override backend &lt;b&gt;known" in page
    assert "Not held back: somebody answers for it" in page


def test_a_backend_that_is_still_awaited_can_be_overridden(world: World) -> None:
    """A fix that cannot wait for the slowest backend need not."""
    backend = world.backend("org/backend", "L4", SILENT)
    world.up.set_role("writer", "write")
    world.start(**world.given)
    world.up.require(GATE)
    pr = world.up.open_pull_request()
    backend.wait_for_runs()
    world.idle()

    say(world, pr, "writer", "/crcr override backend main is broken, this is the fix")
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="neutral")
    mergeable = world.up.required_status(pr).mergeable
    backend.callback(backend.runs[0], "completed", "success", "test")
    later = world.up.wait_for_check(pr.head_sha, GATE, conclusion="success")

    assert mergeable
    assert "org/backend passed" == later.title


def test_a_new_push_ends_an_override(each_world: World) -> None:
    """Responsibility was taken for one commit, and nobody has looked at the next one."""
    world = each_world
    _, pr = failed(world)
    say(world, pr, "writer", "/crcr override backend known")
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="neutral")

    pr.push()
    gate = world.up.wait_for_check(pr.head_sha, GATE, conclusion="failure")

    assert "verridden" not in (gate.title or "") + (gate.summary or "")


def test_nobody_overrides_their_own_change_but_an_admin(world: World) -> None:
    """Two people stand behind an override; an admin could change the ruleset anyway."""
    _, pr = failed(world)
    world.up.set_role("contributor", "maintain")

    say(world, pr, "contributor", "/crcr override backend trust me")
    (refused,) = answered(world, pr)
    say(world, pr, "triager", "/crcr override backend trust me")
    refused_too = answered(world, pr, 2)[1]
    blocked = world.up.checks(pr.head_sha)[GATE].conclusion
    world.up.set_role("contributor", "admin")
    say(world, pr, "contributor", "/crcr override backend trust me")

    assert "needs the role admin" in refused
    assert "needs the role write" in refused_too
    assert "failure" == blocked
    assert "neutral" == world.up.wait_for_check(pr.head_sha, GATE, conclusion="neutral").conclusion


def test_one_override_leaves_the_other_blockers_alone(world: World) -> None:
    """An override is about one backend; the worst of the others still decides."""
    world.backend("org/other", "L4", Listener(jobs=(JobPlan(name="t", conclusion="failure"),), mode=Mode.DIRECT))
    _, pr = failed(world)
    world.up.wait_for_check(pr.head_sha, "crcr/org/other", conclusion="failure")

    say(world, pr, "writer", "/crcr override backend known")
    answered(world, pr)
    world.idle()
    gate = world.up.checks(pr.head_sha)[GATE]

    assert "failure" == gate.conclusion
    assert "org/other" in (gate.title or "")


def test_a_merge_group_inherits_the_override_of_its_pull_request(world: World) -> None:
    """The queue tests the same change again; a decision that was taken for it is not asked for twice."""
    _, pr = failed(world, events=["pull_request", "merge_group"])
    say(world, pr, "writer", "/crcr override backend known on the base")
    world.up.wait_for_check(pr.head_sha, GATE, conclusion="neutral")

    group = world.up.add_to_merge_queue(pr)
    gate = world.up.wait_for_check(group.head_sha, GATE, conclusion="neutral")

    assert "Overridden: org/backend by writer" == gate.title
    assert world.up.required_status(group).mergeable


def test_the_command_line_overrides_alike_and_its_act_is_on_record(world: World) -> None:
    """Where comments do not work, an admin at the service's own console can."""
    _, pr = failed(world)
    ran = CliRunner().invoke(
        app,
        ["override", str(pr.number), "org/backend", "--reason", "GitHub is down", "--who", "the admin"],
        env=console(world),
    )
    again = CliRunner().invoke(app, ["override", "4711", "org/backend", "--reason", "x"], env=console(world))
    unknown = CliRunner().invoke(app, ["override", str(pr.number), "org/nobody", "--reason", "x"], env=console(world))
    gate = world.up.wait_for_check(pr.head_sha, GATE, conclusion="neutral")

    assert 0 == ran.exit_code, ran.output
    assert "Overridden: org/backend by the admin" == gate.title
    assert (2, 2) == (again.exit_code, unknown.exit_code)
    assert "nothing is known of pull request 4711" in again.output
    assert "org/nobody` was not told of this commit" in unknown.output


def console(world: World) -> dict[str, str]:
    """The environment of somebody at the service's own console."""
    return {
        "CRCR_UPSTREAM": "pytorch/pytorch",
        "CRCR_GITHUB_APP_ID": str(world.app.id),
        "CRCR_GITHUB_PRIVATE_KEY": world.app.private_key_pem,
        "CRCR_WEBHOOK_SECRETS": world.app.webhook_secret,
        "CRCR_PUBLIC_URL": world.url,
        "CRCR_ALLOWLIST": str(world.allowlist),
        "CRCR_DATABASE_URL": world.database_url,
    }
