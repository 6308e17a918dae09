"""Measures what a cluster of three daemons on this machine needs: processor time, memory and disk, idle and with holds.

    sizing.py LOCKKEEPER [HOLDS]

LOCKKEEPER should be a release build. HOLDS (default: 10000) sessions of HTTP are made, a third at each member, each with
one hold. The members use TLS and tokens, as `lockkeeper cluster init` configures them.
"""

import http.client
import json
import os
import pathlib
import re
import ssl
import subprocess
import sys
import tempfile
import time

from cluster import request, wait_for
from metrics import free_port_triple


def rss_mib(process):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024


def cpu_s(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def disk_mib(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20


def report(what, daemons, cluster, seconds=10):
    before = [cpu_s(daemon) for daemon in daemons]
    time.sleep(seconds)
    used = [(cpu_s(daemon) - start) / seconds * 100 for daemon, start in zip(daemons, before)]
    memory = [rss_mib(daemon) for daemon in daemons]
    disk = [disk_mib(cluster / f"member-{number}/data") for number in (1, 2, 3)]
    audit = [disk_mib(cluster / f"member-{number}") - size for number, size in zip((1, 2, 3), disk)]
    show = lambda values: "  ".join(f"{value:7.1f}" for value in values)
    print(f"{what:34} core %: {show(used)}   MiB of memory: {show(memory)}   MiB of data: {show(disk)}   MiB of audit log: {show(audit)}")


def hold(ports, token, count):
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    connections = [http.client.HTTPSConnection("127.0.0.1", port + 2, context=unverified) for port in ports]
    body = json.dumps({"wait_ms": 10000, "ttl_ms": 600000, "owner": "sizing"})
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    for number in range(count):
        connection = connections[number % len(connections)]
        connection.request("POST", f"/v1/locks/sizing%2F{number}/acquire", body, headers)
        reply = connection.getresponse()
        text = reply.read()
        assert reply.status == 200, text


def main(binary, count):
    with tempfile.TemporaryDirectory() as folder:
        cluster, ports = pathlib.Path(folder) / "cluster", [free_port_triple() for _ in range(3)]
        members = ",".join(f"127.0.0.1:{port}" for port in ports)
        made = subprocess.run([binary, "cluster", "init", "--members", members, "--out", cluster], check=True, capture_output=True, text=True)
        token = re.search(r"LOCKKEEPER_TOKEN=(\S+)", made.stdout)[1]
        daemons = [subprocess.Popen([binary, "up", "--config", cluster / f"member-{number}/lockkeeper.toml"],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for number in (1, 2, 3)]
        try:
            wait_for("three daemons", lambda: all(request(f"https://127.0.0.1:{port + 2}/readyz")[0] == 200 for port in ports))
            report("idle", daemons, cluster)
            began = time.monotonic()
            hold(ports, token, count)
            print(f"{count} acquires over HTTPS, one after the other: {time.monotonic() - began:.1f} s")
            report(f"{count} sessions with a hold each", daemons, cluster)
        finally:
            for daemon in daemons:
                daemon.kill()
                daemon.wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10000)
