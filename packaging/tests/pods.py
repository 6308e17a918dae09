"""Runs the Kubernetes manifests without Kubernetes: three pods of the container image, a restart of each, a new Secret.

    unshare --net --mount python3 pods.py LOCKKEEPER IMAGE_ROOT FOLDER

It needs root. IMAGE_ROOT is the root of a container of the image; FOLDER is empty, for the data. As a kubelet would, it
makes the Secret's files with the mode and group that the manifest names, mounts them beside a volume for data, replaces
$(POD_NAME), starts the image's program as the manifest's user, and asks its probes. Each pod has a network namespace.
/etc/hosts takes the place of the cluster's DNS, and capabilities, seccomp and resources are left out.
"""

import base64
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import yaml
from cluster import request, wait_for

HERE = pathlib.Path(__file__).resolve().parent.parent / "kubernetes"


def run(command):
    subprocess.run(shlex.split(command) if isinstance(command, str) else command, check=True)


class Pod:
    """One pod of the StatefulSet, with its number."""

    def __init__(self, ordinal, stateful_set, folder, root):
        self.name = f"{stateful_set['metadata']['name']}-{ordinal}"
        self.spec = stateful_set["spec"]["template"]["spec"]
        self.container = self.spec["containers"][0]
        self.address = f"10.74.20.{ordinal + 1}"
        self.volumes = {"secrets": folder / "secrets", "data": folder / f"data-{ordinal}"}
        self.log, self.root, self.process = folder / f"{self.name}.log", root, None
        # fsGroup: the volume belongs to the group.
        self.volumes["data"].mkdir()
        os.chown(self.volumes["data"], 0, self.spec["securityContext"]["fsGroup"])
        self.volumes["data"].chmod(0o2775)
        run(f"ip netns add {self.name}")
        run(f"ip link add v{ordinal} type veth peer name eth0 netns {self.name}")
        run(f"ip link set v{ordinal} master pods up")
        run(f"ip -n {self.name} address add {self.address}/24 dev eth0")
        run(f"ip -n {self.name} link set eth0 up")
        run(f"ip -n {self.name} link set lo up")

    def start(self):
        user = self.spec["securityContext"]
        args = [arg.replace("$(POD_NAME)", self.name) for arg in self.container["args"]]
        # With the mounts below it: devices, and libraries.
        script = [f"mount --rbind {self.root} {self.root}"]
        for mount in self.container["volumeMounts"]:
            script.append(f"mount --bind {self.volumes[mount['name']]} {self.root}{mount['mountPath']}")
        script += [f"mount -o remount,bind,ro {self.root}",
                   f"exec chroot --userspec={user['runAsUser']}:{user['fsGroup']} {self.root} /usr/bin/lockkeeper {shlex.join(args)}"]
        with self.log.open("a") as log:
            command = ["ip", "netns", "exec", self.name, "unshare", "--mount", "sh", "-ec", "\n".join(script)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def probe(self, kind):
        """Whether a probe of the manifest succeeds."""
        get = self.container[f"{kind}Probe"]["httpGet"]
        port = next(port["containerPort"] for port in self.container["ports"] if port["name"] == get["port"])
        return request(f"{get['scheme'].lower()}://{self.address}:{port}{get['path']}")[0] == 200

    def wait_until_ready(self):
        def ready():
            if self.process.poll() is not None:
                sys.exit(f"FAILED: {self.name} ended with {self.process.returncode}: {self.log.read_text()}")
            return self.probe("readiness") and self.probe("liveness")

        wait_for(f"{self.name} is ready (log: {self.log})", ready)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(self.spec["terminationGracePeriodSeconds"])
        assert code == 0, f"{self.name} ended with {code}: {self.log}"

    def expiry(self):
        text = request(f"https://{self.address}:7422/metrics")[1]
        return re.search(r'certificate_expiry_timestamp_seconds\{used_for="clients"\} (\d+)', text)[1]


def write_secret(cluster, volume, folder, number):
    """Writes the Secret's files as a kubelet does: in a new folder, to which a link is then moved."""
    text = subprocess.run([HERE / "make-secret", cluster], check=True, capture_output=True, text=True).stdout
    (folder / "secret.yaml").write_text(text)
    version = folder / f"secrets/..{number}"
    version.mkdir(parents=True)
    for name, value in yaml.safe_load(text)["data"].items():
        path = version / name
        path.write_bytes(base64.b64decode(value))
        os.chown(path, 0, 7420)
        path.chmod(volume["secret"]["defaultMode"])
        if number == 1:
            (folder / "secrets" / name).symlink_to(f"..data/{name}")
    (folder / "secrets/..new").symlink_to(f"..{number}")
    os.replace(folder / "secrets/..new", folder / "secrets/..data")


def prepare(root, folder, pods, binary):
    """The network of the node, names of the pods, and what a container runtime adds to an image."""
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"10.74.20.{place + 1} {pod}\n" for place, pod in enumerate(pods)))
    os.makedirs("/run/netns", exist_ok=True)
    for command in ("mount -t tmpfs none /run/netns", f"mount --bind {folder}/hosts /etc/hosts", "ip link set lo up",
                    "ip link add pods type bridge", "ip address add 10.74.20.254/24 dev pods", "ip link set pods up"):
        run(command)
    for mount in ("etc/lockkeeper", "var/lib/lockkeeper", "dev"):
        (root / mount).mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "hosts", root / "etc/hosts")
    run(f"mount --bind /dev {root}/dev")
    static = subprocess.run(["ldd", binary], capture_output=True, text=True)
    if "=>" in static.stdout:
        # The test's binary is not static: the image gets the libraries of this machine.
        for library in ("lib", "lib64", "usr/lib"):
            (root / library).mkdir(parents=True, exist_ok=True)
            run(f"mount --bind /{library} {root}/{library}")


def main(binary, root, folder):
    manifests = {item["kind"]: item for item in yaml.safe_load_all((HERE / "lockkeeper.yaml").read_text())}
    stateful_set, service = manifests["StatefulSet"], manifests["Service"]
    meta = stateful_set["metadata"]
    domain = f"{service['metadata']['name']}.{meta['namespace']}.svc"
    names = [f"{meta['name']}-{place}.{domain}" for place in range(stateful_set["spec"]["replicas"])]
    prepare(root, folder, names, binary)
    cluster, ca = folder / "cluster", folder / "cluster/authority.pem"
    made = subprocess.run([binary, "cluster", "init", "--out", cluster, "--members", ",".join(f"{name}:7420" for name in names)],
                          check=True, capture_output=True, text=True).stdout
    environment = {"LOCKKEEPER_TOKEN": re.search(r"LOCKKEEPER_TOKEN=(\S+)", made)[1], "PATH": os.environ["PATH"],
                   "LOCKKEEPER_URL": "lockkeeper://" + ",".join(f"{name}:7421" for name in names) + f"?ca={ca}"}
    volume = stateful_set["spec"]["template"]["spec"]["volumes"][0]
    write_secret(cluster, volume, folder, 1)
    pods = [Pod(place, stateful_set, folder, root) for place in range(len(names))]
    try:
        for pod in pods:
            pod.start()
        for pod in pods:
            pod.wait_until_ready()
        print(f"pods: {len(pods)} containers found a cluster, and both probes of each succeed")
        held = f'echo held; while [ ! -e {folder}/release ]; do sleep 0.1; done'
        holder = subprocess.Popen([binary, "run", "deploy", "--", "sh", "-c", held], env=environment, stdout=subprocess.PIPE, text=True)
        assert holder.stdout.readline() == "held\n"
        for pod in reversed(pods):
            pod.terminate()
            pod.start()
            pod.wait_until_ready()
        assert holder.poll() is None, "the hold did not survive the restart of the pods"
        (folder / "release").touch()
        assert holder.wait() == 0
        print("pods: each was restarted in turn, and a client kept its hold")
        before = pods[0].expiry()
        subprocess.run([binary, "cluster", "renew", "1", "--out", cluster, "--days", "700"], check=True, stdout=subprocess.DEVNULL)
        write_secret(cluster, volume, folder, 2)
        wait_for("a running daemon takes the renewed certificate from the Secret", lambda: pods[0].expiry() != before)
        print("pods: a renewed certificate in the Secret is in use without a restart")
    finally:
        for pod in pods:
            if pod.process and pod.process.poll() is None:
                pod.process.kill()
                pod.process.wait()


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
