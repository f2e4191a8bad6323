"""Who takes part in the demo, and what happens: six backends over all levels, and six pull requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from allowlist.model import Level
from relay.simulator import JobPlan, Listener, Reports

UPSTREAM = "upstream/tensors"
ALLOWLIST_PATH = ".github/allowlist.yml"
SUITE = "2026.11"
VERSIONS = ("2.9", "2.10")
LABEL = "ciflow/crcr/npu"

LISTENING = "acorn/listening"
SLOW = "birch/slow-sim"
LABELLED = "cedar/npu"
VERSIONED = "dogwood/xpu"
FAILING = "elm/gpu"
SILENT = "fir/silent"

#: The pull request on which elm/gpu fails, the one on which cedar/npu does, and the one on which somebody answers for
#: elm/gpu after it has failed.
RED = 2
INT4 = 4
ANSWERED = 6

#: Who may override, by the role at upstream, and what is written.
MAINTAINER = "margaret"
REASON = "main fails alike since this morning, erin is on it"
OVERRIDE = f"/crcr override {FAILING} {REASON}"

ALLOWLIST = f"""\
L1:
  - {LISTENING}
L2:
  - {SLOW}: [bob]
L3:
  npu:
    {LABELLED}: [carol]
L4:
  - {VERSIONED}: {{oncalls: [dave], versions: ["2.9", "2.10"], paths: ["**", "!docs/**"]}}
  - {FAILING}: {{oncalls: [erin], paths: ["**", "!docs/**"]}}
  - {SILENT}: {{oncalls: [frank], paths: ["kernels/**"], timeouts: {{queue: 4s, run: 20s}}}}
"""

_ROUNDING = (
    ("ops.TestMatmul", "test_half_to_even", "AssertionError: 0.5 rounded to 1.0, expected 0.0"),
    ("ops.TestMatmul", "test_half_to_even_batched", "AssertionError: 3 of 64 elements differ"),
)
_INT4 = (("quant.TestInt4", "test_pack", "RuntimeError: int4 is not implemented for npu"),)


def _number(client_payload: Mapping[str, Any]) -> int:
    """The pull request that a dispatch is about."""
    return int(client_payload["payload"]["number"])


def _on_gpu(client_payload: Mapping[str, Any]) -> tuple[JobPlan, ...]:
    red = _number(client_payload) in {RED, ANSWERED}
    return (
        JobPlan(
            name="test",
            backend_version="12.4",
            suite_version=SUITE,
            duration=1.0,
            passed=118 if red else 120,
            conclusion="failure" if red else "success",
            failed_tests=_ROUNDING if red else (),
        ),
    )


def _on_npu(client_payload: Mapping[str, Any]) -> tuple[JobPlan, ...]:
    red = _number(client_payload) == INT4
    return (
        JobPlan(
            name="test",
            backend_version="8.1",
            suite_version=SUITE,
            duration=0.8,
            passed=63 if red else 64,
            conclusion="failure" if red else "success",
            failed_tests=_INT4 if red else (),
        ),
    )


@dataclass(frozen=True, slots=True)
class Actor:
    """One backend: where it stands and what its workflow does. ``listener`` None: nobody has added a workflow."""

    name: str
    level: Level
    role: str
    listener: Listener | None


ACTORS = (
    Actor(LISTENING, Level.L1, "only listens", Listener(jobs=(JobPlan(name="mirror", reports=Reports.SILENT),))),
    Actor(
        SLOW,
        Level.L2,
        "is slow",
        Listener(jobs=(JobPlan(name="simulate", backend_version="0.7", suite_version=SUITE, duration=5.0, passed=40),)),
    ),
    Actor(LABELLED, Level.L3, "shows where labelled", Listener(jobs=_on_npu)),
    Actor(
        VERSIONED,
        Level.L4,
        "tests two versions",
        Listener(
            jobs=tuple(
                JobPlan(
                    name=f"test ({version})",
                    backend_version=version,
                    suite_version=SUITE,
                    duration=duration,
                    passed=96,
                    skipped=4,
                )
                for version, duration in zip(VERSIONS, (0.5, 1.5), strict=True)
            ),
            expected_jobs=len(VERSIONS),
        ),
    ),
    Actor(FAILING, Level.L4, f"fails on #{RED} and #{ANSWERED}", Listener(jobs=_on_gpu)),
    Actor(SILENT, Level.L4, "never answers", None),
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """One pull request, and what is to come of it.

    ``told`` are the backends whose entries ask for it, ``checks`` the conclusion of every check that it ends with.
    ``commands`` are what the maintainer writes once its gate blocks.
    """

    title: str
    author: str
    files: tuple[str, ...]
    told: frozenset[str]
    checks: Mapping[str, str]
    labels: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def may_merge(self) -> bool:
        """Whether the required check lets it through: GitHub takes success and neutral."""
        return self.checks["crcr/gate"] in {"success", "neutral"}


_ALWAYS = frozenset({LISTENING, SLOW, LABELLED})
_CODE = _ALWAYS | {VERSIONED, FAILING}


def _checks(gate: str, **others: str) -> Mapping[str, str]:
    names = {"versioned": VERSIONED, "failing": FAILING, "silent": SILENT, "labelled": LABELLED}
    return {"crcr/gate": gate} | {f"crcr/{names[key]}": conclusion for key, conclusion in others.items()}


#: In the order in which they are opened, so the first is pull request 1.
PROPOSALS = (
    Proposal(
        "Speed up addmm for tall matrices",
        "ada",
        ("ops/addmm.py",),
        _CODE,
        _checks("success", versioned="success", failing="success"),
    ),
    Proposal(
        "Round half to even in matmul",
        "grace",
        ("ops/matmul.py",),
        _CODE,
        _checks("failure", versioned="success", failing="failure"),
    ),
    Proposal(
        "Register kernels lazily",
        "linus",
        ("kernels/registry.py",),
        _CODE | {SILENT},
        _checks("neutral", versioned="success", failing="success", silent="neutral"),
    ),
    Proposal(
        "Add int4 weights",
        "barbara",
        ("ops/quant.py",),
        _CODE,
        _checks("success", versioned="success", failing="success", labelled="failure"),
        labels=(LABEL,),
    ),
    Proposal("Explain broadcasting", "ken", ("docs/broadcasting.md",), _ALWAYS, _checks("success")),
    Proposal(
        "Mend the nightly build",
        "edsger",
        ("tools/build.py",),
        _CODE,
        _checks("neutral", versioned="success", failing="failure"),
        commands=(OVERRIDE,),
    ),
)
