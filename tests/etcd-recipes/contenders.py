"""Contenders: programs that use a lock through one client library each, or etcdctl."""

import os
import queue
import re
import signal
import subprocess
import tempfile
import threading

from servers import LONG_S

HERE = os.path.dirname(os.path.abspath(__file__))


# All contenders, to end them after the test.
STARTED = []


class Contender:
    """A program that reads commands and reports what happened, one line each."""

    def __init__(self, command):
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.process = subprocess.Popen(command, text=True, **pipes)
        STARTED.append(self)
        self.said, self.other = queue.Queue(), []
        threading.Thread(target=self.listen, daemon=True).start()
        self.lease = int(self.expect("ready")[0])

    def listen(self):
        for line in self.process.stdout:
            self.said.put(line.split() or [""])
        self.said.put(["ended"])

    def send(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def next(self, kinds, seconds):
        """The next line of one of these kinds; `None` after some seconds without."""
        while True:
            try:
                said = self.said.get(timeout=seconds)
            except queue.Empty:
                return None
            if said[0] in kinds:
                return said
            self.other.append(" ".join(said))
            if said[0] == "ended":
                raise AssertionError(f"the contender ended: {self.other[-5:]}")

    def expect(self, *kinds):
        said = self.next(kinds, LONG_S)
        assert said is not None, f"no {' or '.join(kinds)} after {LONG_S} s; it said {self.other[-5:]}"
        return said[1:] if len(kinds) == 1 else said

    def lock(self, name):
        self.send("lock", name)

    def held(self):
        """Waits for the grant, and returns the fence."""
        said = self.expect("held")
        if len(said) > 1:
            self.lease = int(said[1])
        return int(said[0])

    def not_held(self):
        said = self.next({"held"}, 0.5)
        assert said is None, f"two holders: {said}"

    def cancel(self):
        self.send("cancel")
        self.expect("failed")

    def unlock(self):
        self.send("unlock")
        self.expect("released")

    def revoke(self):
        self.send("revoke")
        self.expect("revoked")

    def kill(self):
        self.process.kill()
        self.process.wait()


class Etcdctl(Contender):
    """`etcdctl lock` and `etcdctl elect`: a process for each lock."""

    def __init__(self, ttl, endpoints):
        self.base = ["etcdctl", "--endpoints", ",".join(endpoints)]
        self.environment = dict(os.environ, ETCDCTL_API="3")
        self.ttl, self.process, self.lease = ttl, None, 0

    def start(self, *command):
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        # In a process group, so that the command under the lock ends with it.
        started = dict(text=True, env=self.environment, start_new_session=True)
        self.process = subprocess.Popen([*self.base, *command], **started, **pipes)
        STARTED.append(self)
        self.said, self.other = queue.Queue(), []
        threading.Thread(target=self.listen, daemon=True).start()

    def lock(self, name):
        # etcdctl does not pass its standard input on.
        self.folder = tempfile.TemporaryDirectory()
        self.pipe = f"{self.folder.name}/release"
        os.mkfifo(self.pipe)
        inside = f"echo held $ETCD_LOCK_REV $ETCD_LOCK_KEY; read line <{self.pipe}; true"
        self.start("lock", f"--ttl={self.ttl}", name, "--", "sh", "-c", inside)

    def held(self):
        revision, key = self.expect("held")
        self.lease = int(key.rsplit("/", 1)[1], 16)
        return int(revision)

    def cancel(self):
        self.process.send_signal(signal.SIGINT)
        self.expect("ended")
        self.process.wait()

    def unlock(self):
        with open(self.pipe, "w") as pipe:
            pipe.write("\n")
        self.expect("ended")
        assert self.process.wait() == 0, f"etcdctl: {self.other}"

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def revoke(self):
        command = [*self.base, "lease", "revoke", f"{self.lease:x}"]
        subprocess.run(command, check=True, capture_output=True, env=self.environment, timeout=LONG_S)

    def campaign(self, name, value):
        self.start("elect", name, value)
        self.value = value

    def leads(self):
        self.expect(self.value)

    def observe(self, name):
        self.start("elect", "-l", name)

    def observes(self, value):
        self.expect(value)

    def resign(self):
        self.cancel()


class WithElections(Contender):
    """A contender that takes part in elections, too."""

    def campaign(self, name, value):
        self.send("campaign", name, value)

    def leads(self):
        return self.held()

    def proclaim(self, value):
        self.send("proclaim", value)
        self.expect("proclaimed")

    def observe(self, name):
        self.send("observe", name)

    def observes(self, value):
        while self.expect("leader") != [value]:
            pass

    def resign(self):
        self.send("resign")
        self.expect("released")


class Client:
    """A client library, and what it can do."""

    def __init__(self, name, can, start, several=True):
        self.name, self.can, self.start_at, self.several = name, can, start, several

    def start(self, endpoints, ttl=60):
        """Starts a contender. A client of one endpoint uses the first one."""
        return self.start_at(ttl, endpoints if self.several else endpoints[:1])


def clients(tools):
    """All clients; `tools` has their programs."""
    python = lambda package: lambda ttl, at: Contender(
        [f"{tools}/{package}/bin/python", f"{HERE}/contender.py", package, str(ttl), *at]
    )
    go = lambda ttl, at: WithElections([f"{tools}/contender-go", str(ttl), *at])
    node = lambda ttl, at: WithElections(["node", f"{HERE}/contender.mjs", f"{tools}/node", str(ttl), *at])
    return [
        Client("etcdctl", {"cancel", "elect"}, Etcdctl),
        Client("go", {"cancel", "elect", "proclaim"}, go),
        Client("python-etcd3", {"try"}, python("etcd3"), several=False),
        Client("aetcd", {"try", "cancel"}, python("aetcd"), several=False),
        Client("node", {"try", "cancel", "elect", "proclaim"}, node),
    ]


def safe(name):
    """A lock's name from the name of a case."""
    return re.sub("[^a-z0-9]+", "-", name)
