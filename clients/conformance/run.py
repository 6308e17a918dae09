#!/usr/bin/env python3
"""The conformance suite for clients: every scenario with every client, against the same daemons with the same faults.

    clients/conformance/run.py --binary target/debug/lockkeeper --client 'python=python3 clients/python/conformance/runner.py'

All clients play a scenario at the same time, each with a lock and proxies of its own; a daemon is killed for all of them.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import shlex
import sys
import tempfile
import time
import tomllib
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from column import Column, Environment
from daemons import Cluster, SecureDaemon
from proxy import Loop
from steps import GLOBAL, Play

Failure = Optional[str]


def _attempt(action: Callable[[], None]) -> Failure:
    try:
        action()
    except AssertionError as failure:
        return str(failure)
    except Exception as failure:  # noqa: BLE001 - a broken runner fails its scenario, not the suite
        return f"{type(failure).__name__}: {failure}"
    return None


class Suite:
    """The scenarios, the clients, and the results so far."""

    def __init__(self, environment: Environment, columns: List[Column]) -> None:
        self._environment = environment
        self._columns = columns
        self._pool = concurrent.futures.ThreadPoolExecutor(len(columns))

    def play(self, scenario: Dict[str, Any]) -> Dict[str, str]:
        """Plays a scenario with all clients. Returns the failures by client."""
        self._environment.cluster.wait()
        playing = [column for column in self._columns if column.name not in scenario.get("not_for", {})]
        plays = {column.name: Play(scenario, column, self._environment) for column in playing}
        failures: Dict[str, str] = {}
        for step in scenario["steps"]:
            if step["do"] in GLOBAL:
                daemon = self._environment.cluster.daemons[step["daemon"]]
                daemon.kill() if step["do"] == "kill" else daemon.start()
                continue
            remaining = {name: play for name, play in plays.items() if name not in failures}
            futures = {name: self._pool.submit(_attempt, partial(play.step, step)) for name, play in remaining.items()}
            for name, future in futures.items():
                failure = future.result()
                if failure is not None:
                    failures[name] = failure
        for play in plays.values():
            _attempt(play.end)
        return failures


def table(scenarios: List[Dict[str, Any]], columns: List[Column], results: Dict[str, Dict[str, str]]) -> str:
    """Scenario × client."""
    width = max(len(scenario["name"]) for scenario in scenarios) + 2
    lines = [" " * width + "".join(f"{column.name:<10}" for column in columns)]
    for scenario in scenarios:
        cells = []
        for column in columns:
            if column.name in scenario.get("not_for", {}):
                cells.append("–")
            else:
                cells.append("FAILS" if column.name in results[scenario["name"]] else "passes")
        lines.append(f"{scenario['name']:<{width}}" + "".join(f"{cell:<10}" for cell in cells))
    for scenario in scenarios:
        for column, reason in scenario.get("not_for", {}).items():
            lines.append(f"– {scenario['name']}, {column}: {reason}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--binary", required=True, help="the binary lockkeeper")
    parser.add_argument("--client", action="append", required=True, metavar="NAME=COMMAND", help="a client and its runner")
    parser.add_argument("--only", action="append", metavar="SCENARIO", help="play these scenarios only")
    arguments = parser.parse_args()
    everything = tomllib.loads((Path(__file__).parent / "scenarios.toml").read_text())["scenario"]
    scenarios = [one for one in everything if arguments.only is None or one["name"] in arguments.only]
    with tempfile.TemporaryDirectory(prefix="lockkeeper-clients-") as made:
        sys.exit(0 if run(arguments, scenarios, Path(made)) else 1)


def run(arguments: argparse.Namespace, scenarios: List[Dict[str, Any]], folder: Path) -> bool:
    """Runs the scenarios, and prints the table. Returns whether every client passes every scenario."""
    began = time.monotonic()
    cluster, secure = Cluster(arguments.binary, folder), SecureDaemon(arguments.binary, folder)
    results: Dict[str, Dict[str, str]] = {}
    log = open(folder / "runners", "ab")
    try:
        cluster.start()
        secure.wait()
        environment = Environment(cluster, secure, Loop())
        named = [client.split("=", 1) for client in arguments.client]
        columns = [Column(name, shlex.split(command), environment, log) for name, command in named]
        suite = Suite(environment, columns)
        for scenario in scenarios:
            start = time.monotonic()
            results[scenario["name"]] = suite.play(scenario)
            print(f"{scenario['name']}: {time.monotonic() - start:.1f} s", flush=True)
            for name, failure in results[scenario["name"]].items():
                print(f"    {name} FAILS: {failure}", flush=True)
    finally:
        cluster.stop()
        secure.daemon.kill()
    print()
    print(table(scenarios, columns, results))
    failed = sum(len(failures) for failures in results.values())
    if failed:
        print("\nThe runners' errors:\n" + (folder / "runners").read_text(errors="replace")[-4000:])
        for daemon in [*cluster.daemons, secure.daemon]:
            print("\nThe log of a daemon:\n" + daemon.log())
    # At the very end, so that the tail of a log shows them.
    print(f"\n{len(scenarios)} scenarios, {len(columns)} clients, {failed} failures, {time.monotonic() - began:.0f} s")
    for scenario in scenarios:
        for name, failure in results.get(scenario["name"], {}).items():
            print(f"FAILS: {scenario['name']}, {name}: {failure}")
    return failed == 0


if __name__ == "__main__":
    main()
