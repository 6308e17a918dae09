"""The asyncio client's runner for the conformance suite: commands in, results out, as JSON lines."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, Awaitable, Callable, Dict, Optional, Set

from lockkeeper import aio

from runner import detached_state, kind_of

_clients: Dict[str, aio.Client] = {}
_holds: Dict[str, aio.Hold] = {}
_tasks: Dict[int, asyncio.Task[None]] = {}
_cancelled: Set[int] = set()


def _write(message: Dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def _lock(command: Dict[str, Any]) -> aio.Lock:
    client = _clients[command["client"]]
    wait = command.get("wait_ms")
    options = {"wait": None if wait is None else wait / 1000, "ttl": command.get("ttl_ms", 30_000) / 1000}
    mode = command.get("mode", "exclusive")
    if mode == "leader":
        return client.election(command["lock"]).campaign(command["value"], **options)
    if mode == "permit":
        return client.permit(command["lock"], command["permits"], **options)
    return client.shared(command["lock"], **options) if mode == "shared" else client.lock(command["lock"], **options)


def _state(hold: aio.Hold) -> Dict[str, Any]:
    fence = None if hold.fence is None else str(hold.fence)
    return {"valid": hold.valid, "valid_for_ms": int(hold.valid_for * 1000), "lost": hold.lost.is_set(), "fence": fence}


async def do_open(command: Dict[str, Any]) -> Dict[str, Any]:
    tls = {name: command[name] for name in ("ca", "cert", "key") if command.get(name)}
    _clients[command["client"]] = aio.Client(command["urls"], token=command.get("token"), **tls)
    return {}


async def do_acquire(command: Dict[str, Any]) -> Dict[str, Any]:
    hold = await _lock(command).acquire()
    _holds[command["hold"]] = hold
    return _state(hold)


async def do_try(command: Dict[str, Any]) -> Dict[str, Any]:
    hold = await _lock(command).try_acquire()
    if hold is None:
        return {"acquired": False}
    _holds[command["hold"]] = hold
    return {"acquired": True, **_state(hold)}


async def do_cancel(command: Dict[str, Any]) -> Dict[str, Any]:
    _tasks[command["request"]].cancel()
    return {}


async def do_release(command: Dict[str, Any]) -> Dict[str, Any]:
    hold = _holds[command["hold"]]
    return {"held": await (hold.resign() if isinstance(hold, aio.Leadership) else hold.release())}


async def do_state(command: Dict[str, Any]) -> Dict[str, Any]:
    return _state(_holds[command["hold"]])


async def do_lost(command: Dict[str, Any]) -> Dict[str, Any]:
    hold = _holds[command["hold"]]
    await hold.lost.wait()
    return {"reason": hold.reason, **_state(hold)}


async def do_work(command: Dict[str, Any]) -> Dict[str, Any]:
    """Works under the lock, without a look at the hold: its loss cancels the work."""
    async with _lock(command):
        _write({"id": command["id"], "event": "entered"})
        await asyncio.sleep(3600)
    return {}


async def do_observe(command: Dict[str, Any]) -> Dict[str, Any]:
    """Observes an election until its leader has the value; None: until there is no leader."""
    async for leader in _clients[command["client"]].election(command["lock"]).observe():
        value = None if leader is None else leader.value
        if value == command.get("value"):
            return {"value": value, "fence": None if leader is None else str(leader.fence)}
    return {}


async def do_hold_as(command: Dict[str, Any]) -> Dict[str, Any]:
    return detached_state(await _lock(command).hold_as(command["owner"], command["for_ms"] / 1000))


async def do_detached(command: Dict[str, Any]) -> Dict[str, Any]:
    return detached_state(await _clients[command["client"]].detached(command["lock"], command["owner"]))


async def do_release_as(command: Dict[str, Any]) -> Dict[str, Any]:
    return {"released": await _clients[command["client"]].release_as(command["lock"], command["owner"])}


async def do_jump(command: Dict[str, Any]) -> Dict[str, Any]:
    """Lets the clock that counts suspend jump, as after a suspend; others and timers do not count it. Returns the state just after it."""
    read = time.clock_gettime
    jump: float = command["seconds"]
    time.clock_gettime = lambda clock: read(clock) + (jump if clock == time.CLOCK_BOOTTIME else 0)
    return _state(_holds[command["hold"]])


async def _run(command: Dict[str, Any], do: Callable[[Dict[str, Any]], Awaitable[Dict[str, Any]]]) -> None:
    try:
        _write({"id": command["id"], "ok": await do(command)})
    except asyncio.CancelledError:
        _write({"id": command["id"], "error": "cancelled", "message": "the task was cancelled"})
    except Exception as error:
        _write({"id": command["id"], "error": kind_of(error), "message": str(error)})


async def main() -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while True:
        line = await reader.readline()
        if not line:
            return
        command = json.loads(line)
        do: Optional[Callable[[Dict[str, Any]], Awaitable[Dict[str, Any]]]] = globals()[f"do_{command['do']}"]
        assert do is not None
        _tasks[command["id"]] = asyncio.ensure_future(_run(command, do))


if __name__ == "__main__":
    asyncio.run(main())
