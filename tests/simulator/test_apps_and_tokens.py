"""Who may call: app JWTs, installation tokens, their narrowing and their end."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from relay.simulator import PERMISSIONS, App, Simulator
from relay.simulator.keys import private_pem
from tests.simulator.scene import Caller, Clock


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": 1}, "must be a numeric value representing the future"),
        ({"exp": None}, "Missing 'Expiration time'"),
        ({"iat": 4_000_000_000}, "'Issued at' claim"),
        ({"iat": None}, "'Issued at' claim"),
        ({"iss": "77"}, "'Issuer' claim"),
        ({"iss": None}, "'Issuer' claim"),
    ],
)
def test_a_jwt_with_a_wrong_claim_is_refused(caller: Caller, claims: dict[str, Any], words: str) -> None:
    """Each claim of an app's JWT has its own rule and its own words."""
    answer = caller.as_app("GET", "/app", token=caller.jwt(**claims))

    assert (401, True) == (answer.status_code, words in answer.json()["message"])


def test_a_jwt_may_live_ten_minutes_and_no_longer(caller: Caller, clock: Clock) -> None:
    """Ten minutes are the most, counted from now."""
    now = int(clock.now().timestamp())

    assert 200 == caller.as_app("GET", "/app", token=caller.jwt(exp=now + 600)).status_code
    answer = caller.as_app("GET", "/app", token=caller.jwt(exp=now + 660))
    assert (401, "'Expiration time' claim ('exp') is too far in the future") == (
        answer.status_code,
        answer.json()["message"],
    )


def test_a_verified_jwt_still_expires(caller: Caller, clock: Clock) -> None:
    """The cache of verified tokens saves the signature check, never the expiry."""
    token = caller.jwt()
    assert 200 == caller.as_app("GET", "/app", token=token).status_code

    clock.forward(minutes=10)

    assert 401 == caller.as_app("GET", "/app", token=token).status_code


def test_a_jwt_of_another_key_or_algorithm_is_refused(caller: Caller) -> None:
    """Only RS256 with the app's own key counts."""
    other = private_pem(generate_private_key(public_exponent=65537, key_size=2048))

    assert 401 == caller.as_app("GET", "/app", token=caller.jwt(key=other)).status_code
    assert 401 == caller.as_app("GET", "/app", token=caller.jwt(key="k" * 64, algorithm="HS256")).status_code
    assert 401 == caller.as_app("GET", "/app", token="a.b.c").status_code


def test_each_kind_of_caller_keeps_to_its_own_endpoints(sim: Simulator, caller: Caller) -> None:
    """A JWT opens no repository, and an installation token is no app."""
    up = sim.create_upstream("pytorch/pytorch")
    token = caller.mint(up.installation.id)

    assert 401 == caller.as_app("GET", "/repos/pytorch/pytorch").status_code
    assert 401 == caller.call(token, "GET", "/app").status_code
    assert 401 == caller.call(None, "POST", "/repos/pytorch/pytorch/dispatches", json={}).status_code


def test_an_installation_is_found_only_where_the_app_is_installed(sim: Simulator, caller: Caller) -> None:
    """Where it is not, GitHub says 404, and a JWT of another app finds nothing either."""
    up = sim.create_upstream("pytorch/pytorch")
    sim.create_backend("org/npu", installed=False)

    found = caller.as_app("GET", "/repos/PyTorch/pytorch/installation")
    assert (200, up.installation.id) == (found.status_code, found.json()["id"])
    assert 404 == caller.as_app("GET", "/repos/org/npu/installation").status_code
    assert 404 == caller.as_app("GET", "/repos/org/unknown/installation").status_code


def test_a_token_can_be_narrowed_and_the_answer_names_the_repository(sim: Simulator, caller: Caller) -> None:
    """A narrowed mint answers with the repositories' ids: that is what the relay pins."""
    one = sim.create_backend("org/one")
    two = sim.create_backend("org/two")
    assert one.installation.id == two.installation.id

    path = f"/app/installations/{one.installation.id}/access_tokens"
    answer = caller.as_app("POST", path, json={"repositories": ["ONE"], "permissions": {"contents": "write"}})

    assert 201 == answer.status_code
    assert [(one.id, "org/one", one.repository.owner.id)] == [
        (item["id"], item["full_name"], item["owner"]["id"]) for item in answer.json()["repositories"]
    ]
    token = answer.json()["token"]
    assert 204 == caller.call(token, "POST", "/repos/org/one/dispatches", json={"event_type": "push"}).status_code
    assert 404 == caller.call(token, "POST", "/repos/org/two/dispatches", json={"event_type": "push"}).status_code
    refused = caller.call(token, "GET", "/repos/org/one/actions/runs")
    assert (403, "Resource not accessible by integration") == (refused.status_code, refused.json()["message"])
    by_id = caller.as_app("POST", path, json={"repository_ids": [two.id]})
    assert ["org/two"] == [item["full_name"] for item in by_id.json()["repositories"]]
    assert "repositories" not in caller.as_app("POST", path, json={}).json()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"repositories": ["elsewhere"]}, "does not exist or is not accessible"),
        ({"repositories": ["org/one"]}, "does not exist or is not accessible"),
        ({"repository_ids": [1]}, "does not exist or is not accessible"),
        ({"repository_ids": "1"}, "must be arrays"),
        ({"permissions": {"administration": "write"}}, "not granted to this installation"),
        ({"permissions": {"contents": "root"}}, "not granted to this installation"),
        ({"permissions": []}, "must be an object"),
    ],
)
def test_a_mint_for_more_than_was_granted_is_refused(
    sim: Simulator, caller: Caller, body: dict[str, Any], words: str
) -> None:
    """A token never holds more than its installation."""
    one = sim.create_backend("org/one")

    answer = caller.as_app("POST", f"/app/installations/{one.installation.id}/access_tokens", json=body)

    assert (422, True) == (answer.status_code, words in answer.json()["message"])


def test_a_token_ends_after_an_hour_and_with_its_installation(sim: Simulator, caller: Caller, clock: Clock) -> None:
    """401 for what is expired or removed, 403 while the installation is suspended."""
    one, two = sim.create_backend("one/npu"), sim.create_backend("two/npu")
    short, gone = caller.mint(one.installation.id), caller.mint(two.installation.id)
    assert 200 == caller.call(short, "GET", "/repos/one/npu").status_code

    two.suspend()
    assert 403 == caller.call(gone, "GET", "/repos/two/npu").status_code
    two.suspend(on=False)
    two.uninstall()
    assert 401 == caller.call(gone, "GET", "/repos/two/npu").status_code
    assert 200 == caller.call(short, "GET", "/repos/one/npu").status_code
    clock.forward(minutes=60)

    assert 401 == caller.call(short, "GET", "/repos/one/npu").status_code
    assert 401 == caller.call("ghs_unknown", "GET", "/repos/one/npu").status_code


def test_a_permission_that_is_missing_is_403_and_write_includes_read(sim: Simulator, caller: Caller) -> None:
    """Every endpoint names the permission it needs; what is withdrawn ends also for tokens that exist."""
    be = sim.create_backend("org/npu", permissions={"contents": "write"})
    token = caller.mint(be.installation.id)

    assert 200 == caller.call(token, "GET", "/repos/org/npu/contents/README.md").status_code
    refused = caller.call(token, "GET", "/repos/org/npu/actions/runs")
    assert (403, "actions=read") == (refused.status_code, refused.headers["x-accepted-github-permissions"])

    be.grant({"contents": "read"})

    dispatch = caller.call(token, "POST", "/repos/org/npu/dispatches", json={"event_type": "push"})
    assert (403, []) == (dispatch.status_code, be.dispatches)


def test_two_apps_do_not_see_each_other(sim: Simulator, app: App, caller: Caller) -> None:
    """An installation of one app is nothing to another."""
    other = sim.create_app(4343, {"contents": "write"})
    be = sim.create_backend("org/npu", app=other)

    assert 404 == caller.as_app("POST", f"/app/installations/{be.installation.id}/access_tokens").status_code
    assert [] == caller.as_app("GET", "/app/installations").json()
    assert other.private_key_pem != app.private_key_pem
    assert dict(PERMISSIONS) == app.permissions


def test_a_request_without_a_user_agent_is_refused(sim: Simulator, caller: Caller) -> None:
    """GitHub answers no anonymous software."""
    sim.create_upstream("pytorch/pytorch")

    answer = caller.call(None, "GET", "/repos/pytorch/pytorch", headers={"user-agent": ""})

    assert (403, True) == (answer.status_code, "User-Agent" in answer.json()["message"])


def test_a_private_repository_shows_itself_to_nobody_without_a_token(sim: Simulator, caller: Caller) -> None:
    """Public data may be read without a token; private data answers 404."""
    sim.create_upstream("pytorch/pytorch")
    sim.create_backend("org/secret", private=True)

    assert 200 == caller.call(None, "GET", "/repos/pytorch/pytorch").status_code
    assert 404 == caller.call(None, "GET", "/repos/org/secret").status_code


def test_a_token_names_at_most_500_repositories(sim: Simulator, caller: Caller) -> None:
    """The 501st is one too many."""
    first = sim.create_backend("org/r0")
    ids = [first.id, *(sim.create_backend(f"org/r{number}").id for number in range(1, 501))]
    path = f"/app/installations/{first.installation.id}/access_tokens"

    assert 201 == caller.as_app("POST", path, json={"repository_ids": ids[:500]}).status_code
    answer = caller.as_app("POST", path, json={"repository_ids": ids})
    assert (422, True) == (answer.status_code, "at most 500" in answer.json()["message"])


def test_a_suspended_or_unknown_installation_mints_nothing(sim: Simulator, caller: Caller) -> None:
    """403 and 404."""
    be = sim.create_backend("org/npu")
    be.suspend()

    assert 403 == caller.as_app("POST", f"/app/installations/{be.installation.id}/access_tokens").status_code
    assert 404 == caller.as_app("POST", "/app/installations/1/access_tokens").status_code
    assert 404 == caller.as_app("GET", "/app/installations/x").status_code


def test_an_app_lists_its_installations_and_a_token_its_repositories(sim: Simulator, caller: Caller) -> None:
    """What is needed to find out where the app is."""
    be = sim.create_backend("org/npu")
    sim.create_backend("org/gpu")
    narrow = caller.mint(be.installation.id, repository_ids=[be.id])

    listed = caller.as_app("GET", "/app/installations").json()
    assert [(be.installation.id, "org", "write")] == [
        (item["id"], item["account"]["login"], item["permissions"]["contents"]) for item in listed
    ]
    assert "org" == caller.as_app("GET", f"/app/installations/{be.installation.id}").json()["account"]["login"]
    assert (4242, 1) == (
        caller.as_app("GET", "/app").json()["id"],
        caller.as_app("GET", "/app").json()["installations_count"],
    )
    shown = caller.call(narrow, "GET", "/installation/repositories").json()
    assert ["org/npu"] == [item["full_name"] for item in shown["repositories"]]


def test_a_token_can_be_given_back(sim: Simulator, caller: Caller) -> None:
    """From then on it is worth nothing."""
    token = caller.mint(sim.create_backend("org/npu").installation.id)

    assert 204 == caller.call(token, "DELETE", "/installation/token").status_code
    assert 401 == caller.call(token, "GET", "/repos/org/npu").status_code


def test_a_body_that_is_no_object_is_400(sim: Simulator, caller: Caller) -> None:
    """A list where an object belongs."""
    be = sim.create_backend("org/npu")

    answer = caller.as_app("POST", f"/app/installations/{be.installation.id}/access_tokens", json=["org/npu"])

    assert (400, "Body should be a JSON object") == (answer.status_code, answer.json()["message"])
