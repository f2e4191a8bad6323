"""How a process is asked for, and how one hears of it. Loads little, since ``bin/crcr`` starts with it each time."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence

#: Names the parent's socket to ``bin/crcr``.
VARIABLE = "STARTED_BY"


def ask(
    address: str,
    *,
    module: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: str | os.PathLike[str],
    files: tuple[int, int, int],
) -> socket.socket:
    """Ask the parent at this address for a child with these standard input, output and error.

    The socket that is returned has a line with the child's id and, once it has ended, one with its exit status.
    """
    asked = {
        "module": module,
        "arguments": list(arguments),
        "environment": dict(environment),
        "folder": os.fspath(folder),
    }
    about = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    about.connect(address)
    socket.send_fds(about, [b"."], files)
    about.sendall(json.dumps(asked).encode() + b"\n")
    return about
