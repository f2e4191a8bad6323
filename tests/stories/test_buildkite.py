"""Backends that build at Buildkite: an admin maps the pipeline, and the capability binds the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relay.simulator import Backend, JobPlan, Listener, Mode, PullRequest, Reports, Run
from tests.stories.world import World

BY_HAND = Listener(jobs=(JobPlan(name="test", reports=Reports.SILENT),), mode=Mode.DIRECT)
SAMPLES = Path(__file__).parents[1] / "edge" / "data"
ORGANIZATION = "0190aaaa-1111-4222-8333-444455556666"
PIPELINE = "0190bbbb-1111-4222-8333-444455556666"
OTHER = "0190cccc-1111-4222-8333-444455556666"
BUILD = "0190dddd-1111-4222-8333-444455556666"
CALLBACK = "/github/callback"


def opened(world: World, level: str = "L4", mapped: Any = "Org/Backend") -> Backend:
    """A relay that trusts both issuers, with one pipeline mapped to the backend."""
    backend = world.backend("org/backend", level, BY_HAND, legacy=True)
    oidc = world.sim.oidc
    world.start(
        oidc_issuers=(
            {"issuer": oidc.issuer, "jwks_url": oidc.jwks_url},
            {"issuer": oidc.buildkite_issuer, "jwks_url": oidc.buildkite_jwks_url},
        ),
        buildkite_pipelines={
            f"{ORGANIZATION}/{PIPELINE}": mapped if isinstance(mapped, str) else {"repo": "org/backend", **mapped}
        },
        hud_api_url=world.sim.hud_url,
        hud_key=world.sim.hud.key,
    )
    world.idle()
    return backend


def asked(world: World, backend: Backend) -> tuple[PullRequest, Run]:
    """One pull request, and the run at GitHub that passes it on to Buildkite."""
    pr = world.up.open_pull_request()
    (run,) = backend.wait_for_runs()
    world.idle()
    return pr, run


def token(world: World, **claims: Any) -> str:
    """A token of the mapped pipeline's agent; ``claims`` replace its own, None removes one."""
    ids = {"organization_id": ORGANIZATION, "pipeline_id": PIPELINE}
    return world.sim.mint_buildkite(**{**ids, **claims})


def body(run: Run, conclusion: str = "success", *, job: str = ":pytest: test", drop: str = "") -> dict[str, Any]:
    """What the build's last step sends: run ids are Buildkite's own."""
    workflow = {"status": "completed", "conclusion": conclusion, "run_id": BUILD, "job_name": job}
    return {**{name: value for name, value in run.client_payload.items() if name != drop}, "workflow": workflow}


def test_a_build_at_buildkite_decides_the_gate(each_world: World) -> None:
    """The payload is passed on with its capability, and the pipeline's ids say whose result it is."""
    world = each_world
    pr, run = asked(world, opened(world))

    answer = world.call_back(token(world), body(run, "failure"))
    world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="failure")

    assert (200, "recorded", False) == (answer.status, answer.json["status"], answer.json["replayed"])
    shown = world.up.wait_for_check(pr.head_sha, "crcr/org/backend", conclusion="failure")
    assert "test" in f"{shown.summary} {shown.text}"
    (leg,) = world.change(run)["backends"][0]["combinations"][0]["legs"]
    assert (BUILD, ":pytest: test", True) == (leg["run_id"], leg["job_name"], leg["deciding"])


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"pipeline_id": OTHER}, "pipeline_not_mapped"),
        ({"organization_id": OTHER}, "pipeline_not_mapped"),
        ({"pipeline_id": None}, "claims_missing"),
        ({"organization_id": None}, "claims_missing"),
    ],
    ids=["another pipeline", "another organization", "no pipeline", "no organization"],
)
def test_only_the_mapped_pipeline_may_report(world: World, claims: dict[str, Any], code: str) -> None:
    """Anybody can have a pipeline of that name: without the mapped ids a token says nothing, whatever else it holds."""
    pr, run = asked(world, opened(world))

    refused = world.call_back(token(world, **claims), body(run))
    world.idle()

    assert (403, code) == (refused.status, refused.json["code"])
    assert world.up.checks(pr.head_sha)["crcr/gate"].conclusion is None
    assert [] == world.sim.hud.rows


def test_a_required_claim_is_required(world: World) -> None:
    """An admin may ask for more than the ids, such as the branch whose steps hold the pen."""
    pr, run = asked(world, opened(world, mapped={"required_claims": {"build_branch": "main"}}))

    refused = world.call_back(token(world, build_branch="somebody/branch"), body(run))
    taken = world.call_back(token(world), body(run))

    assert (403, "required_claim") == (refused.status, refused.json["code"])
    assert 200 == taken.status
    assert "success" == world.up.wait_for_check(pr.head_sha, "crcr/gate", conclusion="success").conclusion


def test_without_its_capability_a_build_is_bound_to_nothing(world: World) -> None:
    """GitHub's word ties a run to our dispatch where no capability does; Buildkite cannot give it, `legacy` or not."""
    pr, run = asked(world, opened(world))

    refused = world.call_back(token(world), body(run, drop="relay"))
    world.idle()

    assert (403, "capability_required") == (refused.status, refused.json["code"])
    assert world.up.checks(pr.head_sha)["crcr/gate"].conclusion is None


def test_a_token_of_one_issuer_with_the_other_s_claims_is_worth_nothing(world: World) -> None:
    """A key speaks for its own issuer alone: Buildkite's cannot name a GitHub repository."""
    pr, run = asked(world, opened(world))
    oidc = world.sim.oidc

    forged = token(world, iss=oidc.issuer, repository="org/backend", repository_id="1")
    refused = world.call_back(forged, body(run))

    assert 401 == refused.status
    assert "Bearer" in str(refused.headers)
    assert world.up.checks(pr.head_sha)["crcr/gate"].conclusion is None


def test_production_s_own_night_from_buildkite_is_taken_as_it_is(world: World) -> None:
    """Its sample, unchanged: a job's emoji and UUIDs are only text here."""
    opened(world, "L2")
    sample = json.loads((SAMPLES / "callback_nightly_buildkite_production.json").read_text())

    answer = world.call_back(token(world), sample, "/github/callback/")
    world.idle()

    assert 200 == answer.status
    (row,) = world.sim.hud.rows
    assert sample == row.body["untrusted"]["callback_payload"]
    assert "org/backend" == row.body["trusted"]["verified_repo"]
    (night,) = world.get("/api/v1/changes?kind=self_reported")["items"]
    assert sample["payload"]["head_sha"] == night["head_sha"]
