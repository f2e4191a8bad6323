"""Every sentence that a human reads in a check, in one place."""

from __future__ import annotations

from allowlist.model import RepoName

#: The one check that a ruleset requires.
GATE_NAME = "crcr/gate"


def backend_check_name(repo: RepoName) -> str:
    """The name of a backend's check."""
    return f"crcr/{repo}"


def job_check_name(repo: RepoName, workflow: str, job: str) -> str:
    """Production's name for one job's check."""
    return f"crcr/{repo}/{workflow}/{job}"
