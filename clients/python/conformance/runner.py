"""The blocking client's runner for the conformance suite: commands in, results out, as JSON lines."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any, Callable, Dict, Optional

import lockkeeper

_clients: Dict[str, lockkeeper.Client] = {}
_holds: Dict[str, lockkeeper.Hold] = {}
_cancels: Dict[int, lockkeeper.Cancel] = {}
_output = threading.Lock()


def _write(message: Dict[str, Any]) -> None:
    with _output:
        print(json.dumps(message), flush=True)


def kind_of(error: Exception) -> str:
    """The kind of an error, as the scenarios name it."""
    if isinstance(error, lockkeeper.Refused):
        return "refused"
    return error.error if isinstance(error, lockkeeper.Error) else type(error).__name__


def _lock(command: Dict[str, Any]) -> lockkeeper.Lock:
    client = _clients[command["client"]]
    wait = command.get("wait_ms")
    options = {"wait": None if wait is None else wait / 1000, "ttl": command.get("ttl_ms", 30_000) / 1000}
    mode = command.get("mode", "exclusive")
    if mode == "leader":
        return client.election(command["lock"]).campaign(command["value"], **options)
    if mode == "permit":
        return client.permit(command["lock"], command["permits"], **options)
    return client.shared(command["lock"], **options) if mode == "shared" else client.lock(command["lock"], **options)


def _state(hold: lockkeeper.Hold) -> Dict[str, Any]:
    fence = None if hold.fence is None else str(hold.fence)
    return {"valid": hold.valid, "valid_for_ms": int(hold.valid_for * 1000), "lost": hold.lost.is_set(), "fence": fence}


def do_open(command: Dict[str, Any]) -> Dict[str, Any]:
    tls = {name: command[name] for name in ("ca", "cert", "key") if command.get(name)}
    _clients[command["client"]] = lockkeeper.Client(command["urls"], token=command.get("token"), **tls)
    return {}


def do_acquire(command: Dict[str, Any]) -> Dict[str, Any]:
    cancel = _cancels.setdefault(command["id"], lockkeeper.Cancel())
    hold = _lock(command).acquire(cancel)
    _holds[command["hold"]] = hold
    return _state(hold)


def do_try(command: Dict[str, Any]) -> Dict[str, Any]:
    hold = _lock(command).try_acquire()
    if hold is None:
        return {"acquired": False}
    _holds[command["hold"]] = hold
    return {"acquired": True, **_state(hold)}


def do_cancel(command: Dict[str, Any]) -> Dict[str, Any]:
    _cancels.setdefault(command["request"], lockkeeper.Cancel()).cancel()
    return {}


def do_release(command: Dict[str, Any]) -> Dict[str, Any]:
    hold = _holds[command["hold"]]
    return {"held": hold.resign() if isinstance(hold, lockkeeper.Leadership) else hold.release()}


def do_state(command: Dict[str, Any]) -> Dict[str, Any]:
    return _state(_holds[command["hold"]])


def do_lost(command: Dict[str, Any]) -> Dict[str, Any]:
    hold = _holds[command["hold"]]
    hold.lost.wait()
    return {"reason": hold.reason, **_state(hold)}


def do_work(command: Dict[str, Any]) -> Dict[str, Any]:
    """Works under the lock until the hold is lost."""
    with _lock(command) as hold:
        _write({"id": command["id"], "event": "entered"})
        hold.lost.wait()
    return {}


def do_observe(command: Dict[str, Any]) -> Dict[str, Any]:
    """Observes an election until its leader has the value; None: until there is no leader."""
    for leader in _clients[command["client"]].election(command["lock"]).observe():
        value = None if leader is None else leader.value
        if value == command.get("value"):
            return {"value": value, "fence": None if leader is None else str(leader.fence)}
    return {}


def detached_state(hold: Optional[lockkeeper.DetachedHold]) -> Dict[str, Any]:
    """A detached hold as the scenarios see it."""
    if hold is None:
        return {"found": False}
    fence = None if hold.fence is None else str(hold.fence)
    return {"found": True, "owner": hold.owner, "fence": fence, "left_ms": int(hold.left * 1000)}


def do_hold_as(command: Dict[str, Any]) -> Dict[str, Any]:
    return detached_state(_lock(command).hold_as(command["owner"], command["for_ms"] / 1000))


def do_detached(command: Dict[str, Any]) -> Dict[str, Any]:
    return detached_state(_clients[command["client"]].detached(command["lock"], command["owner"]))


def do_release_as(command: Dict[str, Any]) -> Dict[str, Any]:
    return {"released": _clients[command["client"]].release_as(command["lock"], command["owner"])}


def do_jump(command: Dict[str, Any]) -> Dict[str, Any]:
    """Lets the clock that counts suspend jump, as after a suspend; others and timers do not count it. Returns the state just after it."""
    read = time.clock_gettime
    jump: float = command["seconds"]
    time.clock_gettime = lambda clock: read(clock) + (jump if clock == time.CLOCK_BOOTTIME else 0)
    return _state(_holds[command["hold"]])


def _run(command: Dict[str, Any], do: Callable[[Dict[str, Any]], Dict[str, Any]]) -> None:
    try:
        _write({"id": command["id"], "ok": do(command)})
    except Exception as error:
        _write({"id": command["id"], "error": kind_of(error), "message": str(error)})


def main() -> None:
    for line in sys.stdin:
        command = json.loads(line)
        do: Optional[Callable[[Dict[str, Any]], Dict[str, Any]]] = globals()[f"do_{command['do']}"]
        assert do is not None
        threading.Thread(target=_run, args=(command, do), daemon=True).start()


if __name__ == "__main__":
    main()
