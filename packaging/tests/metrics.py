"""Compares the alert rules and the dashboard with the metrics of a running cluster of three daemons.

    metrics.py LOCKKEEPER

Every name and label in a query must be in a scrape. If Debian's `prometheus` is there, it scrapes the daemons with the
example configuration, evaluates the rules, and every panel of the dashboard must show data.
"""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.parse

import yaml
from cluster import request, wait_for

HERE = pathlib.Path(__file__).resolve().parent.parent
# Variables of the dashboard, as Grafana would replace them.
VARIABLES = {"$__rate_interval": "1m", "$job": "lockkeeper", "$instance": ".*"}


def free_port_triple():
    """The first of three ports that are free at the moment."""
    while True:
        sockets = [socket.socket() for _ in range(3)]
        try:
            sockets[0].bind(("127.0.0.1", 0))
            port = sockets[0].getsockname()[1]
            for place in (1, 2):
                sockets[place].bind(("127.0.0.1", port + place))
            return port
        except OSError:
            continue
        finally:
            for opened in sockets:
                opened.close()


def queries():
    """All queries of the rules and of the dashboard, with the place of each."""
    rules = yaml.safe_load((HERE / "prometheus/rules.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield f"alert {rule['alert']}", rule["expr"]
    dashboard = json.loads((HERE / "grafana/lockkeeper.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"panel {panel['title']}", target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            selector = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"]["query"])
            yield f"variable {variable['name']}", selector.group(1)
    for annotation in dashboard["annotations"]["list"]:
        yield f"annotation {annotation['name']}", annotation["expr"]


def replaced(query):
    for variable, value in VARIABLES.items():
        query = query.replace(variable, value)
    return query


def served(scrapes):
    """The labels of each metric that a scrape has."""
    metrics = {}
    for line in "\n".join(scrapes).splitlines():
        sample = re.match(r"(\w+)(?:\{(.*)\})? ", line)
        if sample and not line.startswith("#"):
            metrics.setdefault(sample[1], {"job", "instance"}).update(re.findall(r'(\w+)="', sample[2] or ""))
    return metrics


def compare(metrics):
    """Names and labels in queries that no daemon serves."""
    wrong = []
    for place, query in queries():
        names = re.findall(r"\blockkeeper_\w+", re.sub(r'"[^"]*"', '""', query))
        if not names and "up{" not in query:
            wrong.append(f"{place}: no metric of lockkeeper in {query}")
        for name in names:
            if name not in metrics:
                wrong.append(f"{place}: no daemon serves {name}")
        labels = {"job", "instance"}.union(*(metrics.get(name, ()) for name in names))
        used = re.findall(r"(?:by|on) \(([^)]*)\)", query) + re.findall(r"[{,] *(\w+) *=", query)
        for label in re.findall(r"\w+", " ".join(used)):
            if label not in labels:
                wrong.append(f"{place}: no label {label} at {', '.join(names)}")
    return wrong


def traffic(binary, url, ports, token):
    """Events of each kind that has a metric: grants through all members, a busy lock, a refused token."""
    for _ in range(2):
        for port in ports:
            on = f"lockkeeper://127.0.0.1:{port + 1}?ca={url}"
            subprocess.run([binary, "run", "checks/run", "--on", on, "--", "true"], check=True, env={"LOCKKEEPER_TOKEN": token})
    http = [f"https://127.0.0.1:{port + 2}/v1/locks/checks%2Fhttp/" for port in ports]
    status, text = request(http[0] + "acquire", token, {"wait_ms": 20000})
    assert status == 200, text
    assert request(http[1] + "acquire", token, {"wait_ms": 1})[0] == 409
    assert request(http[0] + "release", token, {"hold": json.loads(text)["hold"]})[0] == 200
    assert request(http[0] + "acquire", "lk_wrong", {})[0] == 401


def check_by_prometheus(folder, cluster, ports, token, more_traffic):
    config = yaml.safe_load((HERE / "prometheus/scrape.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(HERE / "prometheus/rules.yml")]
    job = config["scrape_configs"][0]
    (folder / "lockkeeper.token").write_text(token)
    job["tls_config"]["ca_file"] = str(cluster / "authority.pem")
    job["authorization"]["credentials_file"] = str(folder / "lockkeeper.token")
    job["static_configs"][0]["targets"] = [f"127.0.0.1:{port + 2}" for port in ports]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port_triple()
    server = subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
         f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"])
    api = f"http://127.0.0.1:{port}/api/v1/"

    def ask(path):
        status, text = request(api + path)
        return json.loads(text)["data"] if status == 200 else None

    def value(query):
        answer = ask("query?query=" + urllib.parse.quote(query))
        return answer and answer["result"]

    try:
        wait_for("Prometheus scrapes all daemons", lambda: value('sum(up{job="lockkeeper"}) == 3'))
        shown = [(place, replaced(query)) for place, query in queries() if place.startswith("panel ")]

        def empty():
            more_traffic()
            return [place for place, query in shown if not value(query)]

        wait_for("every panel has data", lambda: not empty())
        rules = wait_for("the rules are evaluated", lambda: ask("rules"))["groups"][0]["rules"]
        wait_for("all rules are evaluated", lambda: all(rule["health"] == "ok" for rule in ask("rules")["groups"][0]["rules"]))
        firing = value('ALERTS{alertstate="firing"}')
        assert not firing, firing
        print(f"Prometheus: {len(shown)} queries of the dashboard show data, {len(rules)} alerts are evaluated, none fires")
    finally:
        server.terminate()
        server.wait()


def main(binary):
    folder = pathlib.Path(tempfile.mkdtemp())
    ports = [free_port_triple() for _ in range(3)]
    cluster = folder / "cluster"
    members = ",".join(f"127.0.0.1:{port}" for port in ports)
    made = subprocess.run([binary, "cluster", "init", "--members", members, "--out", cluster], check=True, capture_output=True, text=True)
    token = re.search(r"LOCKKEEPER_TOKEN=(\S+)", made.stdout)[1]
    log = (folder / "log").open("w")
    daemons = [subprocess.Popen([binary, "up", "--config", cluster / f"member-{number}/lockkeeper.toml"], stdout=log, stderr=log)
               for number in (1, 2, 3)]
    try:
        bases = [f"https://127.0.0.1:{port + 2}" for port in ports]
        wait_for(f"three daemons are ready (log: {folder}/log)", lambda: all(request(f"{base}/readyz")[0] == 200 for base in bases))

        def more_traffic():
            traffic(binary, cluster / "authority.pem", ports, token)

        more_traffic()
        wrong = compare(served([request(f"{base}/metrics", token)[1] for base in bases]))
        if wrong:
            sys.exit("FAILED: " + "\n".join(wrong))
        print(f"metrics: {len(list(queries()))} queries name only metrics and labels that three daemons serve")
        if shutil.which("prometheus"):
            check_by_prometheus(folder, cluster, ports, token, more_traffic)
        else:
            print("SKIPPED: Prometheus itself (Debian: prometheus)")
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            daemon.wait()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1])
