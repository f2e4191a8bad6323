"""Only GitHub can have sent what its secret signs."""

from __future__ import annotations

import pytest

from relay.edge.signature import is_signed, sign

# GitHub's own example.
# https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries#testing-the-webhook-payload-validation
SECRET, BODY = b"It's a Secret to Everybody", b"Hello, World!"
SIGNATURE = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"


def test_github_s_example_fits() -> None:
    """We compute what GitHub computes."""
    assert SIGNATURE == sign(SECRET, BODY)
    assert is_signed(BODY, SIGNATURE, [SECRET])


@pytest.mark.parametrize("secrets", [[SECRET, b"new"], [b"new", SECRET]])
def test_secrets_rotate_with_overlap(secrets: list[bytes]) -> None:
    """Old and new are valid together, in whatever order they are set."""
    assert is_signed(BODY, SIGNATURE, secrets)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "sha256=",
        SIGNATURE.removeprefix("sha256="),
        SIGNATURE.replace("sha256", "sha1"),
        SIGNATURE.upper(),
        SIGNATURE[:-1],
        SIGNATURE + "0",
        "sha256=" + "é" * 64,
        "sha256=" + "0" * 64,
    ],
)
def test_anything_else_does_not(header: str | None) -> None:
    """No header, half a header, another algorithm: all the same answer."""
    assert not is_signed(BODY, header, [SECRET])


def test_no_secret_signs_nothing() -> None:
    """A service without secrets trusts nobody, rather than everybody."""
    assert not is_signed(BODY, sign(b"", BODY), [])
    assert not is_signed(BODY + b" ", SIGNATURE, [SECRET])
