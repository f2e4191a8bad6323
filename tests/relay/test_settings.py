"""Settings: every fault is named by its variable, none shows a secret, and files work where secrets are meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from allowlist.model import RepoName
from relay.settings import SECRET_FIELDS, Settings, SettingsError, load_settings

SECRET = "a secret of sixteen characters"
GOOD = {
    "CRCR_UPSTREAM": "PyTorch/PyTorch",
    "CRCR_GITHUB_APP_ID": "7",
    "CRCR_GITHUB_PRIVATE_KEY": SECRET,
    "CRCR_WEBHOOK_SECRETS": "first-secret, second-secret",
}


def fault(**changed: str) -> str:
    """What is said about settings that differ from good ones by this."""
    with pytest.raises(SettingsError) as told:
        load_settings({**GOOD, **{f"CRCR_{name}": value for name, value in changed.items()}})
    return str(told.value)


def test_the_smallest_settings_are_enough() -> None:
    """Four variables start a relay; everything else has the documented default."""
    settings = load_settings(GOOD)

    assert RepoName("pytorch", "pytorch") == settings.upstream
    assert [key.get_secret_value() for key in settings.webhook_secrets] == ["first-secret", "second-secret"]
    assert (
        settings.database_url,
        settings.oidc_audience,
        settings.retention_days,
    ) == ("sqlite:///crcr.db", "pytorch-cross-repo-ci-relay", 90)


def test_every_missing_setting_is_told_at_once() -> None:
    """An admin mends all of them in one go."""
    with pytest.raises(SettingsError) as told:
        load_settings({})

    assert {f"{name}: must be set" for name in GOOD} == set(str(told.value).splitlines())


@pytest.mark.parametrize(
    ("changed", "variable", "words"),
    [
        ({"UPSTREAM": "pytorch"}, "CRCR_UPSTREAM", "owner/name"),
        ({"GITHUB_APP_ID": "zero"}, "CRCR_GITHUB_APP_ID", "integer"),
        ({"GITHUB_API_URL": "ftp://host"}, "CRCR_GITHUB_API_URL", "http(s)"),
        ({"GITHUB_API_URL": "http://github.example"}, "CRCR_GITHUB_API_URL", "loopback"),
        ({"PUBLIC_URL": "https://user:pw@host"}, "CRCR_PUBLIC_URL", "user info"),
        ({"WEBHOOK_SECRETS": " , "}, "CRCR_WEBHOOK_SECRETS", "at least 1"),
        ({"PUBLIC_URL": "https://host:99999"}, "CRCR_PUBLIC_URL", "ort"),
        ({"PUBLIC_URL": "https://host/?a=b"}, "CRCR_PUBLIC_URL", "query"),
        ({"PUBLIC_URL": "https://ho st"}, "CRCR_PUBLIC_URL", "white space"),
        ({"LABEL_PREFIX": "ciflow/\n"}, "CRCR_LABEL_PREFIX", "pattern"),
        ({"OIDC_ISSUERS": "[]"}, "CRCR_OIDC_ISSUERS", "at least 1"),
        ({"OIDC_ISSUERS": "[" * 100_000}, "CRCR_OIDC_ISSUERS", "JSON"),
        ({"OIDC_ISSUERS": "not json"}, "CRCR_OIDC_ISSUERS", "JSON"),
        ({"OIDC_ISSUERS": '[{"issuer": "https://a"}]'}, "CRCR_OIDC_ISSUERS[0][jwks_url]", "must be set"),
        ({"BUILDKITE_PIPELINES": '{"only-one-part": "o/r"}'}, "CRCR_BUILDKITE_PIPELINES", "pipeline uuid"),
        ({"OUTCOMES": '{"silent": "passes"}'}, "CRCR_OUTCOMES", "green only by a result"),
        ({"OUTCOMES": '{"sucess": "passes"}'}, "CRCR_OUTCOMES", "sucess"),
        ({"OUTCOMES": '{"skipped": "block"}'}, "CRCR_OUTCOMES[skipped]", "'blocks'"),
        ({"DOWNSTREAM_APP_ID": "8"}, "settings", "go together"),
        ({"HUD_API_URL": "https://hud.example"}, "settings", "HUD_KEY"),
        ({"CHECKS": "both"}, "CRCR_CHECKS", "backend"),
        ({"RETENTION_DAYS": "0"}, "CRCR_RETENTION_DAYS", "greater than or equal to 1"),
        ({"RETENTION_DAYS": "999999999999"}, "CRCR_RETENTION_DAYS", "less than or equal to 36500"),
        ({"CHECK_INTERVAL_SECONDS": "inf"}, "CRCR_CHECK_INTERVAL_SECONDS", "less than or equal to 3600"),
        ({"SWEEP_SECONDS": "nan"}, "CRCR_SWEEP_SECONDS", "less than or equal to 3600"),
    ],
)
def test_a_wrong_value_names_its_variable_and_the_rule(changed: dict[str, str], variable: str, words: str) -> None:
    """Nobody should have to read code to start the service."""
    said = fault(**changed)

    assert said.startswith(variable)
    assert words in said


def test_a_secret_can_come_as_a_file(tmp_path: Path) -> None:
    """Environments are listed by many tools; files with the right mode are not."""
    path = tmp_path / "secret"
    path.write_text("from-a-file\n")

    settings = load_settings(
        {**{key: value for key, value in GOOD.items() if "WEBHOOK" not in key}, "CRCR_WEBHOOK_SECRETS_FILE": str(path)}
    )

    assert [key.get_secret_value() for key in settings.webhook_secrets] == ["from-a-file"]


def test_a_secret_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """The path is shown, since it is no secret, and what is wrong with it."""
    said = fault(HUD_KEY_FILE=str(tmp_path / "none"))

    assert said.startswith("CRCR_HUD_KEY_FILE: cannot read")


def test_no_fault_and_no_repr_shows_a_secret() -> None:
    """Start-up messages and tracebacks are pasted into issues."""
    said = fault(GITHUB_APP_ID="x", BUILDKITE_PIPELINES=SECRET, OUTCOMES=SECRET)

    assert SECRET not in said
    assert SECRET not in repr(load_settings(GOOD))


def test_secret_fields_are_fields() -> None:
    """A renamed setting must not lose its file form."""
    assert set() == set(SECRET_FIELDS) - set(Settings.model_fields)


def test_buildkite_pipelines_take_a_name_or_a_mapping() -> None:
    """Both forms of DESIGN, compared without case as the claims are."""
    settings = load_settings(
        {
            **GOOD,
            "CRCR_BUILDKITE_PIPELINES": json.dumps(
                {"AA/bb": "Org/Repo", "cc/dd": {"repo": "o/r", "required_claims": {"x": "y"}}}
            ),
        }
    )

    assert {
        key: (str(pipeline.repo), pipeline.required_claims) for key, pipeline in settings.buildkite_pipelines.items()
    } == {"aa/bb": ("org/repo", {}), "cc/dd": ("o/r", {"x": "y"})}


def test_every_setting_does_something() -> None:
    """A setting that is read and changes nothing is a promise nobody keeps."""
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for path in Path(__file__).parents[2].joinpath("relay").rglob("*.py")
        if path.name != "settings.py"
    )

    assert [] == [name for name in Settings.model_fields if f"settings.{name}" not in code]
