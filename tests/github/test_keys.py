"""A private key that is none is refused in words, not with a traceback that repeats it."""

from __future__ import annotations

import pickle
import traceback
from datetime import timedelta

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from relay.github.keys import AppKey, BadKey
from tests.github.stand_in import START, new_pem


def encrypted() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pw")).decode()


def elliptic() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def public(pem: str) -> str:
    key = load_pem_private_key(pem.encode(), None).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def damaged(pem: str) -> str:
    lines = pem.splitlines()
    return "\n".join(lines[:3] + lines[-1:])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (lambda _: "", "is empty"),
        (lambda _: "   \n", "is empty"),
        (lambda _: "hunter2", "no PEM text"),
        (lambda _: "/etc/crcr/key.pem", "no PEM text"),
        (public, "a certificate or public key"),
        (damaged, "damaged or cut short"),
        (lambda pem: pem.replace("M", "\ud800"), "damaged or cut short"),
        (lambda pem: "\x00" + pem.upper(), "damaged or cut short"),
        (lambda _: encrypted(), "is encrypted"),
        (lambda _: elliptic(), "not an RSA key"),
        (lambda _: new_pem(1024), "1024 bits"),
    ],
)
def test_a_key_that_is_none_says_what_is_wrong(pem: str, text, says: str) -> None:  # type: ignore[no-untyped-def]
    """The message names the fault and the fix, and no line of the key is in it or in its traceback."""
    given = text(pem)

    with pytest.raises(BadKey, match=says) as caught:
        AppKey.load(1, given)

    shown = "".join(traceback.format_exception(caught.value))
    assert not any(line in shown for line in given.split() if len(line) > 30)


@pytest.mark.parametrize("app_id", ["", " ", "1\n2", "a b", "é"])
def test_an_app_id_is_a_number_or_a_client_id(pem: str, app_id: str) -> None:
    """What cannot be one is refused before GitHub answers 401 without saying why."""
    with pytest.raises(BadKey, match="app id"):
        AppKey.load(app_id, pem)


@pytest.mark.parametrize(
    "change",
    [
        str,
        lambda pem: pem.replace("\n", "\\n"),
        lambda pem: pem.replace("\n", "\r\n"),
        lambda pem: pem.replace("\n", ""),
    ],
)
def test_a_key_from_an_environment_is_read(pem: str, change) -> None:  # type: ignore[no-untyped-def]
    """Environments carry line breaks in several ways; all of them are the same key."""
    key = AppKey.load("Iv1.abc", change(pem))

    claims = jwt.decode(
        key.jwt(START), public(pem), algorithms=["RS256"], options={"verify_exp": False, "verify_iat": False}
    )
    assert "Iv1.abc" == claims["iss"]


def test_a_jwt_is_signed_once_in_nine_minutes(pem: str) -> None:
    """Signing costs as much as a dispatch, so one signature serves until half a minute before its end."""
    key = AppKey.load(1, pem)
    first = key.jwt(START)

    assert first == key.jwt(START + timedelta(minutes=8))
    assert first != key.jwt(START + timedelta(minutes=8, seconds=31))


def test_a_clock_set_back_gets_a_new_jwt(pem: str) -> None:
    """A token issued in the future is refused by GitHub; after a correction of the clock a new one is due."""
    key = AppKey.load(1, pem)
    first = key.jwt(START)

    assert first != key.jwt(START - timedelta(hours=1))


def test_a_refused_jwt_is_forgotten(pem: str) -> None:
    """After a 401 the next call signs anew, with the clock as it is then."""
    key = AppKey.load(1, pem)
    first = key.jwt(START)
    key.forget_jwt()

    assert first != key.jwt(START + timedelta(seconds=1))


def test_a_key_is_not_pickled(pem: str) -> None:
    """A key that could travel would one day lie in a cache or a log."""
    with pytest.raises(TypeError):
        pickle.dumps(AppKey.load(1, pem))
