"""Carries out the steps of a scenario for one client."""

from __future__ import annotations

import time
import urllib.parse
from typing import Any, Dict, List, Optional, Tuple

from column import Column, Environment, OtherClient, Result
from daemons import until
from proxy import Faults

# Steps that are made once for all clients.
GLOBAL = ("kill", "start_daemon")
# Fields of a step that are for the suite, not for the client.
_OURS = ("do", "start", "step", "expect", "error", "may_fail", "fence_above", "fence_of", "before", "at", "at_least_ms", "to", "token", "ca", "cert")
_CLIENT_STEPS = ("open", "acquire", "try", "release", "state", "lost", "work", "observe", "jump", "hold_as", "detached", "release_as")


def as_list(value: Any) -> List[Any]:
    return value if isinstance(value, list) else [value]


class Play:
    """A scenario with one client."""

    def __init__(self, scenario: Dict[str, Any], column: Column, environment: Environment) -> None:
        self._environment = environment
        self._column = column
        unique = f"{int(time.time() * 1000):x}-{column.name}"
        self._lock = f"{scenario.get('lock', scenario['name'].replace(' ', '-').replace(':', ''))}-{unique}"
        self._runner = column.start()
        self._others: Dict[str, OtherClient] = {}
        self._started: Dict[str, Tuple[int, Result]] = {}
        self._fences: Dict[str, int] = {}
        self._times: Dict[str, float] = {}
        for proxy in column.proxies(None):
            proxy.set(Faults())

    def end(self) -> None:
        """Cleans up after the scenario."""
        self._runner.end()
        for proxy in self._column.proxies(None):
            proxy.set(Faults())
            proxy.cut()
        for other in self._others.values():
            other.release()

    def step(self, step: Result) -> None:
        """Carries out one step; raises AssertionError if the client does not do what it must."""
        verb = step["do"]
        if verb in _CLIENT_STEPS:
            self._client_step(step)
        else:
            getattr(self, f"_do_{verb}")(step)

    def _do_until_acquired(self, step: Result) -> None:
        """Repeats `try` until it acquires the lock. A try waits only for a moment for the permission of another member."""

        def acquired() -> bool:
            _, result = self._runner.result(self._runner.send({**command, "do": "try"}))
            found.append(result)
            return "error" in result or bool(result["ok"]["acquired"])

        found: List[Result] = []
        command = self._command(step)
        until("a free lock is acquired by a try", acquired)
        self._check({**step, "do": "try"}, {**command, "do": "try"}, (0.0, found[-1]))

    def _command(self, step: Result) -> Result:
        """The command for the runner."""
        return {"client": "c", "hold": "h", "lock": self._lock, **{key: value for key, value in step.items() if key not in _OURS}}

    def _client_step(self, step: Result) -> None:
        command = {**self._command(step), "do": step["do"]}
        if step["do"] == "open":
            command.update(self._column.address(step.get("to", "cluster")), **self._column.credentials(step))
        began = time.monotonic()
        number = self._runner.send(command)
        if "start" in step:
            self._started[step["start"]] = (number, command)
            return
        self._check(step, command, self._runner.result(number), began)

    def _check(self, step: Result, command: Result, arrived: Tuple[float, Result], began: Optional[float] = None) -> None:
        at, result = arrived
        if began is not None and (at - began) * 1000 < step.get("at_least_ms", 0):
            raise AssertionError(f"{step['do']} took {(at - began) * 1000:.0f} ms")
        allowed = as_list(step.get("error", [])) + as_list(step.get("may_fail", []))
        if "error" in result:
            if result["error"] not in allowed:
                raise AssertionError(f"{command['do']}: {result['error']}: {result['message']}")
            return
        if "error" in step:
            raise AssertionError(f"{command['do']} succeeded: {result['ok']}")
        ok = result["ok"]
        if "fence" in ok and ok["fence"] is not None and command["do"] in ("acquire", "try", "hold_as") and "fence_of" not in step:
            self._fences[command["hold"]] = int(ok["fence"])
        _compare(step.get("expect", {}), ok)
        if "fence_above" in step and int(ok["fence"]) <= self._fences[step["fence_above"]]:
            raise AssertionError(f"the fence {ok['fence']} is not above {self._fences[step['fence_above']]}")
        if "fence_of" in step and int(ok["fence"]) != self._fences[step["fence_of"]]:
            raise AssertionError(f"the fence {ok['fence']} is not {self._fences[step['fence_of']]}")
        if "before" in step and at >= self._times[step["before"]]:
            raise AssertionError(f"it came {at - self._times[step['before']]:.3f} s after another client was granted the lock")

    def _do_finish(self, step: Result) -> None:
        number, command = self._started.pop(step["step"])
        self._check(step, command, self._runner.result(number))

    def _do_cancel(self, step: Result) -> None:
        self._runner.result(self._runner.send({"do": "cancel", "request": self._started[step["step"]][0]}))

    def _do_until(self, step: Result) -> None:
        def enough() -> bool:
            _, result = self._runner.result(self._runner.send({"do": "state", "hold": step.get("hold", "h")}))
            _compare(step.get("expect", {"lost": False}), result["ok"])
            return bool(result["ok"][step["field"]] >= step["at_least"])

        until(f"{step['field']} is at least {step['at_least']}", enough)

    def _do_sample(self, step: Result) -> None:
        """Looks at a field for a while. It is about time, so it cannot wait for a condition."""
        start = time.monotonic()
        while time.monotonic() < start + step["after_s"] + step["for_s"]:
            _, result = self._runner.result(self._runner.send({"do": "state", "hold": step.get("hold", "h")}))
            _compare(step.get("expect", {}), result["ok"])
            value = result["ok"][step["field"]]
            if time.monotonic() > start + step["after_s"] and value > step["at_most"]:
                raise AssertionError(f"{step['field']} is {value}: at most {step['at_most']} is right")
            time.sleep(0.05)

    def _do_proxy(self, step: Result) -> None:
        given = dict(step["faults"])
        if "lose_answers_after" in given:
            given["lose_answers_after"] = given["lose_answers_after"].replace("$lock", self._lock).encode()
        for proxy in self._column.proxies(step.get("daemon")):
            proxy.set(Faults(**given))
            if step.get("cut"):
                proxy.cut()

    def _do_holders(self, step: Result) -> None:
        self._parties("holders", step)

    def _do_waiters(self, step: Result) -> None:
        self._parties("waiters", step)

    def _parties(self, which: str, step: Result) -> None:
        found: List[Any] = []

        def right() -> bool:
            lock = self._environment.cluster.lock(self._lock, 2)
            found[:] = [lock]
            if lock[which] is None or lock["name"] != self._lock:
                return False
            members = [party["member"] for party in lock[which]]
            there = "member" not in step or members == [step["member"]] * len(members)
            moved = "other_member" not in step or step["other_member"] not in members
            return len(members) == step["count"] and there and moved

        try:
            until("", right)
        except AssertionError:
            raise AssertionError(f"the lock should have {step}: {found}") from None
        if "fence_of" in step:
            fences = [party["fence"] for party in found[0]["holders"]]
            if fences != [self._fences[step["fence_of"]]]:
                raise AssertionError(f"the daemon shows the fences {fences}, the client has {self._fences[step['fence_of']]}")

    def _do_force_release(self, step: Result) -> None:
        path = f"/v1/locks/{urllib.parse.quote(self._lock, safe='')}/force-release"
        status, answer = self._environment.cluster.daemons[2].request("POST", path, {})
        if status != 200 or not answer["released"]:
            raise AssertionError(f"the forced release failed: {status} {answer}")

    def _do_other(self, step: Result) -> None:
        name = step.get("name", "other")
        other = self._others.setdefault(name, OtherClient(self._environment.cluster))
        if step["verb"] == "release":
            return other.release()
        error = other.acquire(self._lock, step.get("wait_ms", 0 if step["verb"] == "try" else 60_000))
        if "at" in step:
            self._times[step["at"]] = time.monotonic()
        if error != step.get("error"):
            raise AssertionError(f"the other client's {step['verb']} ended with {error}, not with {step.get('error')}")

    def _do_pause(self, step: Result) -> None:
        self._runner.pause()

    def _do_resume_and_state(self, step: Result) -> None:
        """Queues the command in the runner's input before the process continues, so that the process reads it early."""
        number = self._runner.send({"do": "state", "hold": step.get("hold", "h")})
        self._runner.resume()
        self._check(step, {"do": "state"}, self._runner.result(number))


def _compare(expected: Result, ok: Result) -> None:
    for field, value in expected.items():
        if ok.get(field) != (None if value == "none" else value):
            raise AssertionError(f"{field} is {ok.get(field)}, not {value}: {ok}")
