"""What stands in for systemd, Docker and some of root's commands where the operators' guide is followed.

``tools.py NAME WORD...`` does with our files what the command of that name would do with them on the machine that
MACHINE describes, and refuses what it does not know, as the command refuses a word that is misspelt. It is started for
each line of the guide, so it loads little.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.started.asking import VARIABLE, ask  # Found by the path that was set just now.

MACHINE: dict[str, Any] = json.loads(Path(os.environ["MACHINE"]).read_text())
SERVICE: dict[str, str] = MACHINE["environment"]
RUN = Path(MACHINE["run"])
STOPS_WITHIN = 60.0


def refuse(why: str) -> NoReturn:
    """End as a command does that was asked for what it cannot do."""
    sys.exit(f"{sys.argv[1]}: {why}")


def options(
    words: Sequence[str], flags: Sequence[str] = (), valued: Sequence[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """The options at the beginning, with their values, and what follows them."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word in flags:
            found[word] = ""
        elif name in valued:
            found[name] = value if equals else rest.pop(0)
        else:
            refuse(f"no option {word}")
    return found, rest


def variables(path: str) -> dict[str, str]:
    """What a file of NAME=VALUE holds."""
    lines = [line.partition("=") for line in Path(path).read_text().splitlines() if line and line[0] != "#"]
    return {name: value.strip("'") for name, _, value in lines}


def noted(name: str) -> list[str]:
    """What was noted under this name."""
    path = RUN / name
    return path.read_text().split() if path.exists() else []


def note(name: str, what: str) -> None:
    """Remember it for the commands after this one."""
    (RUN / name).write_text("\n".join([*noted(name), what]))


# --- Processes -------------------------------------------------------------------------------------------------------


def begin(name: str, words: Sequence[str], environment: Mapping[str, str], *, serves: bool) -> None:
    """Start a process of ours and note which it is. One that does not serve is run to its end, which must be good."""
    log = RUN / f"{name}.log"
    with Path(os.devnull).open("rb") as nothing, log.open("ab") as output:
        about = ask(
            SERVICE[VARIABLE],
            module="relay",
            arguments=words,
            environment={**SERVICE, **environment},
            folder="/",
            files=(nothing.fileno(), output.fileno(), output.fileno()),
        )
    lines = about.makefile("rb")
    pid = int(lines.readline())
    if serves:
        (RUN / f"{name}.pid").write_text(str(pid))
    elif int(lines.readline()):
        refuse(f"{name} failed: {log.read_text()}")


def end(names: Iterable[str]) -> None:
    """Tell these to stop and wait until they have. Those that do not run are left alone."""
    told: dict[str, int] = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            told[name] = int((RUN / f"{name}.pid").read_text())
            (RUN / f"{name}.pid").unlink()
            os.kill(told[name], signal.SIGTERM)
    until = time.monotonic() + STOPS_WITHIN
    for name, pid in told.items():
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < until:
                os.kill(pid, 0)
                time.sleep(0.02)
            os.kill(pid, signal.SIGKILL)
            refuse(f"{name} did not stop")


def become(program: str, words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Go on as this command of ours, in a folder in which it can write nothing by a mere name."""
    os.chdir("/")
    os.execve(program, [program, *words], {**SERVICE, **environment})  # noqa: S606


# --- systemd ---------------------------------------------------------------------------------------------------------


def systemctl(words: Sequence[str]) -> None:
    """Units as their installed files say."""
    if list(words) == ["daemon-reload"]:
        return
    verb, *rest = words
    if verb == "enable":
        given, rest = options(rest, flags=["--now"])
        if not given:
            refuse("enable starts nothing without --now")
    elif verb not in {"start", "restart", "stop"}:
        refuse(f"no verb {verb}")
    units = {name: unit(name) for name in rest}
    if verb in {"restart", "stop"}:
        end(units)
    for name, keys in units.items():
        if verb != "stop":
            program, *command = keys["ExecStart"].split()
            if not os.access(program, os.X_OK):
                refuse(f"{program} is no program")
            begin(name, command, variables(keys["EnvironmentFile"]), serves=keys["Type"] != "oneshot")


def unit(name: str) -> dict[str, str]:
    """The keys of an installed unit."""
    template, at, instance = name.removesuffix(".service").partition("@")
    path = Path(MACHINE["units"]) / f"{template}{at}.service"
    if not path.exists():
        refuse(f"no unit {path.name}")
    lines = [line.partition("=") for line in path.read_text().splitlines() if line and line[0] not in "#["]
    keys = {key: value.replace("%i", instance) for key, _, value in lines}
    known(keys["User"])
    return keys


def systemd_run(words: Sequence[str]) -> None:
    """One command as a unit would run it."""
    flags = ["--quiet", "--pipe", "--wait", "--collect"]
    given, command = options(words, flags=flags, valued=["--uid", "--property"])
    if set(flags) - set(given):
        refuse("its output or its status would be lost")
    known(given["--uid"])
    become(command[0], command[1:], variables(given["--property"].removeprefix("EnvironmentFile=")))


# --- Docker ----------------------------------------------------------------------------------------------------------


def docker(words: Sequence[str]) -> None:
    """Compose's verbs, for the services that run our image."""
    if list(words[:3]) != ["compose", "-f", "examples/compose.yaml"]:
        refuse("not the file that is there")
    verb, *rest = words[3:]
    services: dict[str, dict[str, Any]] = MACHINE["services"]
    tag = variables("examples/.env")["CRCR_TAG"]
    if verb == "build":
        _of(services, rest)
        note("images", tag)
        return
    if tag not in noted("images"):
        refuse(f"no image crcr:{tag}")
    if verb == "run":
        _run(services, rest)
        return
    given, names = options(rest, flags=["--detach", "--no-deps"] if verb == "up" else [])
    if (verb, bool(given)) not in {("up", True), ("start", False), ("stop", False)}:
        refuse(f"{verb} would not come back, or is not known")
    chosen = _of(services, names or list(services))
    end(chosen if verb != "start" else ())
    for name, service in chosen.items():
        if verb != "stop":
            begin(name, service["command"][1:], variables(service["env_file"]), serves=service["serves"])


def _of(services: Mapping[str, dict[str, Any]], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    for name in names:
        if name not in services:
            refuse(f"no service {name}")
    return {name: services[name] for name in names}


def _run(services: Mapping[str, dict[str, Any]], words: Sequence[str]) -> None:
    """One command in a container of its own, of which only what is mounted can be written to."""
    given, (name, *command) = options(words, flags=["--rm", "--no-deps"], valued=["--volume"])
    service = _of(services, [name])[name]
    mounted = Path(given.get("--volume", "/nowhere").rpartition(":")[2])
    for word in command:
        if word.startswith("/") and not Path(word).is_relative_to(mounted):
            refuse(f"{word} is not there")
    if "--rm" not in given or command[:1] not in ([], ["crcr"]):
        refuse("no such command, or its container would stay")
    become(MACHINE["crcr"], command[1:] or service["command"][1:], variables(service["env_file"]))


# --- Root's ----------------------------------------------------------------------------------------------------------


def known(owner: str) -> None:
    """Refuse an owner that nobody has made; a number needs no making."""
    if not owner.isdigit() and owner not in noted("users"):
        refuse(f"no user {owner}")


def useradd(words: Sequence[str]) -> None:
    """Make a user."""
    _, (name,) = options(words, flags=["--system", "--user-group", "--no-create-home"], valued=["--shell"])
    note("users", name)


def runuser(words: Sequence[str]) -> None:
    """PostgreSQL's own commands. The database of the tests is there already."""
    if list(words[:3]) != ["-u", "postgres", "--"] or words[3] not in {"createuser", "createdb"}:
        refuse("not known")


def install(words: Sequence[str]) -> None:
    """The real one, which can give nothing away unless root calls it."""
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word in {"-o", "-g"}:
            known(left.pop(0))
        else:
            rest.append(word)
    _real("install", rest)


def curl(words: Sequence[str]) -> None:
    """The real one. Where it would try again each second, it is called once that is worth it, to lose no seconds."""
    import urllib.request  # Here alone: it is what takes the longest to load.

    until = time.monotonic() + STOPS_WITHIN
    while "--retry" in words and time.monotonic() < until:
        # An answer other than 2xx is an OSError as well.
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{words[-1]}", timeout=5):
            break
        time.sleep(0.05)
    _real("curl", words)


def git(words: Sequence[str]) -> None:
    """Which commit is checked out."""
    if list(words) != ["rev-parse", "HEAD"]:
        refuse("not known")
    sys.stdout.write(f"{1:040x}\n")


def python3(words: Sequence[str]) -> None:
    """The real one, but for new environments, whose pip is ``pip`` below."""
    if list(words[:2]) != ["-m", "venv"]:
        os.execve(sys.executable, [sys.executable, *words], SERVICE)  # noqa: S606
    folder = Path(words[2]) / "bin"
    folder.mkdir(parents=True)
    _write_program(folder / "pip", f'exec "{sys.executable}" -IS "{__file__}" pip "{folder}" "$@"')


def pip(words: Sequence[str]) -> None:
    """What it installs is there already. First what is locked, then ours, from the commit that is checked out."""
    folder, verb, *rest = words
    for flag, lock in itertools.pairwise(rest):
        if flag == "-r" and not (Path(MACHINE["root"]) / lock).exists():
            refuse(f"no file {lock}")
    flags = ["--quiet", "--require-hashes", "--no-deps", "--no-build-isolation"]
    given, what = options(rest, flags=flags, valued=["-r"])
    if verb == "install" and {"--require-hashes", "-r"} <= set(given) and not what:
        note("locked", folder)
    elif verb == "install" and folder in noted("locked") and what == [f"git+file://{Path.cwd()}@{1:040x}"]:
        _write_program(Path(folder) / "crcr", f'exec "{MACHINE["crcr"]}" "$@"')
    else:
        refuse("this would fetch what is not locked")


def _real(name: str, words: Sequence[str]) -> NoReturn:
    program = shutil.which(name, path=SERVICE["PATH"]) or refuse("not there")
    os.execve(program, [name, *words], SERVICE)  # noqa: S606


def _write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


TOOLS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "crcr": lambda _: refuse("nobody has said as whom, and with which settings"),
    "curl": curl,
    "docker": docker,
    "git": git,
    "install": install,
    "pip": pip,
    "python3": python3,
    "runuser": runuser,
    "systemctl": systemctl,
    "systemd-run": systemd_run,
    "useradd": useradd,
}

if __name__ == "__main__":
    TOOLS[sys.argv[1]](sys.argv[2:])
