"""The servers of the conformance test: etcd, and three daemons of lockkeeper. All of them on loopback."""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request

# Far longer than any step takes, so that only a hang fails.
LONG_S = 90


def free_ports(count):
    """Ports that nothing uses at present."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def until(what, condition):
    """Waits until a condition holds, and returns its value."""
    end = time.monotonic() + LONG_S
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError(f"{what}: not after {LONG_S} s")


class Etcd:
    """One server of etcd."""

    name = "etcd"

    def __init__(self, folder):
        port, peers = free_ports(2)
        self.endpoints = [f"127.0.0.1:{port}"]
        listen = f"http://127.0.0.1:{port}"
        options = ["--data-dir", f"{folder}/etcd", "--listen-client-urls", listen]
        options += ["--advertise-client-urls", listen, "--listen-peer-urls", f"http://127.0.0.1:{peers}"]
        log = open(f"{folder}/etcd.log", "wb")
        self.processes = [subprocess.Popen(["etcd", *options], stdout=log, stderr=log)]
        until("etcd serves", self.serves)

    def serves(self):
        command = ["etcdctl", "--endpoints", self.endpoints[0], "endpoint", "health"]
        return subprocess.run(command, capture_output=True, env=dict(os.environ, ETCDCTL_API="3")).returncode == 0

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


class Lockkeeper:
    """Three daemons in processes of their own."""

    name = "lockkeeper"

    def __init__(self, folder, program):
        self.program, self.processes = program, []
        ports = free_ports(9)
        self.clients = [f"127.0.0.1:{port}" for port in ports[3:6]]
        self.endpoints = [f"127.0.0.1:{port}" for port in ports[6:9]]
        first = f"127.0.0.1:{ports[0]}"
        for member in range(3):
            data = f"{folder}/member-{member + 1}"
            options = ["--listen", f"127.0.0.1:{ports[member]}", "--data", data]
            options += ["--clients", self.clients[member], "--http", self.endpoints[member]]
            begin = ["up"]
            if member > 0:
                token = f"{folder}/member-1/join-token"
                begin = ["join", first, "--member", str(member + 1), "--join-token", token]
            log = open(f"{folder}/member-{member + 1}.log", "wb")
            self.processes.append(subprocess.Popen([program, *begin, *options], stdout=log, stderr=log))
            until(f"member {member + 1} is in the view", lambda: self.in_view(member))

    def http(self, path, body=None, member=0):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.endpoints[member]}{path}", data)
        request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=LONG_S) as reply:
                return json.load(reply)
        except (urllib.error.URLError, ConnectionError):
            return None

    def in_view(self, member):
        members = self.http("/v1/members", member=member)
        return members is not None and self.ready(member)

    def ready(self, member):
        try:
            with urllib.request.urlopen(f"http://{self.endpoints[member]}/readyz", timeout=LONG_S) as reply:
                return reply.status == 200
        except (urllib.error.URLError, ConnectionError):
            return False

    def kill(self, member):
        """Ends a member as in a crash."""
        self.processes[member].kill()
        self.processes[member].wait()

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
