#!/usr/bin/env python3
"""Runs the commands and the programs of docs/clients.md as they are written there, each language in a new folder.

    clients/conformance/documented.py --binary target/debug/lockkeeper --clone FOLDER

Only the address is replaced by that of a daemon that is started for this. The clone may be a copy: packages are built in it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, Tuple

from daemons import Daemon, free_ports, until

ADDRESS = "http://127.0.0.1:7422"


def blocks(document: str) -> List[Tuple[str, List[Tuple[str, str]]]]:
    """The code blocks of each section that has some with a file name: what follows the three backquotes, and the text."""
    sections = []
    for section in re.split(r"^## ", document, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        found = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
        if any(" " in kind for kind, _ in found):
            sections.append((title, found))
    return sections


def start(binary: str, folder: Path) -> Daemon:
    """Starts a daemon."""
    port = free_ports(3)
    listen = f'members = "none"\nclients = "127.0.0.1:{port + 1}"\nhttp = "127.0.0.1:{port + 2}"\n'
    members = f'[members]\n1 = "127.0.0.1:{port}"\n'
    (folder / "lockkeeper.toml").write_text(f'cluster = "documented"\nmember = 1\ndata = "data"\n\n{members}\n[listen]\n{listen}')
    daemon = Daemon(binary, folder, port)
    daemon.start()
    until("the daemon grants locks", daemon.serves)
    return daemon


def run(section: List[Tuple[str, str]], folder: Path, address: str, clone: str) -> None:
    """Carries out the blocks of a section in their order."""
    environment = {**os.environ, "LOCKKEEPER": clone, "GOFLAGS": "-mod=mod", "GOPROXY": "off", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    for kind, text in section:
        if " " in kind:
            (folder / kind.split(" ", 1)[1]).write_text(text.replace(ADDRESS, address))
        elif kind == "sh":
            done = subprocess.run(["sh", "-eu", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
            print(done.stdout + done.stderr, end="", flush=True)
            if done.returncode != 0:
                sys.exit(f"this failed with {done.returncode}:\n{text}")
            if "nightly" in text and "mod init" not in text or "go run" in text:
                assert "the lock is mine, with fence" in done.stdout, "the program has not acquired the lock"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--binary", required=True, help="the binary lockkeeper")
    parser.add_argument("--clone", required=True, help="the folder that holds `clients`, perhaps a copy")
    parser.add_argument("--using", help="a command that is run with LOCKKEEPER_URL set, too")
    arguments = parser.parse_args()
    document = (Path(__file__).parents[2] / "docs" / "clients.md").read_text()
    with tempfile.TemporaryDirectory(prefix="lockkeeper-documented-") as made:
        daemon = start(arguments.binary, Path(made))
        address = f"http://127.0.0.1:{daemon.http}"
        try:
            sections = blocks(document)
            assert [title for title, _ in sections] == ["Python", "Node", "Go"], "docs/clients.md has other sections"
            for title, section in sections:
                print(f"-- {title}", flush=True)
                folder = Path(made) / title
                folder.mkdir()
                run(section, folder, address, arguments.clone)
            if arguments.using:
                subprocess.run(["sh", "-c", arguments.using], check=True, env={**os.environ, "LOCKKEEPER_URL": address}, timeout=120)
        finally:
            daemon.kill()


if __name__ == "__main__":
    main()
