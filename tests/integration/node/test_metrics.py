"""A Prometheus scrapes a node, and says so when the node is gone.

usage: test_metrics.py MILLRACED MILLRACE SOURCE
in a network namespace of its own: needs root, prometheus, promtool
"""
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from own_node import NODE, own_network, skip, start_node, wait_for

METRICS, PROMETHEUS = "127.0.0.1:7790", "127.0.0.1:9090"
OPEN = "application/openmetrics-text; version=1.0.0"


def get(url: str, accept: str = "*/*") -> tuple[int, str, str]:
    request = urllib.request.Request(f"http://{url}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, "", error.read().decode()


def promtool(*arguments: str | Path, text: str | None = None) -> None:
    """It must find nothing, not even to remark."""
    result = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"promtool {arguments}: {result.stdout}{result.stderr}"
    assert result.stderr == "", result.stderr


def start_prometheus(source: Path, directory: Path) -> subprocess.Popen:
    """With the rules as they are shipped, but that it neither scrapes nor waits as long."""
    for name in ("recording.yml", "alerts.yml"):
        rules = (source / "configs/prometheus" / name).read_text(encoding="utf-8")
        (directory / name).write_text(re.sub(r"^ +for: .*\n", "", rules, flags=re.M), encoding="utf-8")
    config = (source / "configs/prometheus/prometheus.yml").read_text(encoding="utf-8")
    config = re.sub(r"^( +)- node1:7790(\n +- node.*)*$", rf"\1- {METRICS}", config, flags=re.M)
    config = re.sub(r"^( +)- hub1:7791$", r"\1[]", config, flags=re.M).replace("15s", "250ms")
    (directory / "prometheus.yml").write_text(config, encoding="utf-8")
    promtool("check", "config", directory / "prometheus.yml")
    with open(directory / "prometheus.log", "w", encoding="utf-8") as log:
        return subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address={PROMETHEUS}",
            ],
            stdout=log,
            stderr=log,
        )


def ask(path: str) -> dict:
    return json.loads(get(f"{PROMETHEUS}/api/v1/{path}")[2])["data"]


def value(query: str) -> float | None:
    result = ask(f"query?query={urllib.request.quote(query)}")["result"]
    return float(result[0]["value"][1]) if len(result) == 1 else None


def check_text(cores: int) -> None:
    status, kind, text = get(f"{METRICS}/metrics")
    assert status == 200 and kind == "text/plain; version=0.0.4; charset=utf-8", (status, kind)
    promtool("check", "metrics", text=text)
    assert text.count("\nmillrace_wire_rx_packets_total{") == cores
    assert re.search(r'\nmillrace_table_rows\{node="metrics\d+",table="emb"\} 0\n', text)
    assert re.search(
        r'\nmillrace_call_phase_seconds_count\{node="metrics\d+",op="create",phase="work"\} \d', text
    )
    status, kind, text = get(f"{METRICS}/metrics", OPEN)
    assert status == 200 and kind == f"{OPEN}; charset=utf-8" and text.endswith("\n# EOF\n"), (status, kind)
    assert "\n# UNIT millrace_wire_rx_bytes bytes\n" in text
    assert get(f"{METRICS}/healthz")[::2] == (200, "ok\n")
    assert get(f"{METRICS}/")[0] == 404


def check_prometheus(node: subprocess.Popen) -> None:
    wait_for("Prometheus", lambda: get(f"{PROMETHEUS}/-/ready")[0] == 200)
    wait_for("a scrape", lambda: value('up{job="millrace"}') == 1)
    wait_for("the node's state", lambda: value('millrace_node_state{state="serving"}') == 1)
    wait_for("a rule's value", lambda: value("node:millrace_calls_served:rate5m") is not None)
    target = next(t for t in ask("targets")["activeTargets"] if t["labels"]["job"] == "millrace")
    assert target["lastError"] == "" and target["health"] == "up", target
    metadata = ask("metadata?metric=millrace_wire_rx_bytes")  # by OpenMetrics, as it asks for that
    assert metadata["millrace_wire_rx_bytes"][0]["unit"] == "bytes", metadata
    assert [a for a in ask("alerts")["alerts"] if a["labels"]["alertname"] == "MillraceNodeSilent"] == []
    for group in ask("rules")["groups"]:
        assert [rule for rule in group["rules"] if rule["health"] == "err"] == []
    node.kill()
    node.wait()
    wait_for(
        "an alert",
        lambda: [
            a["state"] for a in ask("alerts")["alerts"] if a["labels"]["alertname"] == "MillraceNodeSilent"
        ]
        == ["firing"],
    )


def main() -> None:
    millraced, millrace, source = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        skip("there is no prometheus (Debian: prometheus)")
    own_network()
    started: list[subprocess.Popen] = []
    with tempfile.TemporaryDirectory(prefix="millrace-metrics-") as name:
        directory = Path(name)
        try:
            for rules in ("recording.yml", "alerts.yml"):
                promtool("check", "rules", source / "configs/prometheus" / rules)
            promtool("test", "rules", source / "configs/prometheus/alerts_test.yml")
            started.append(start_node(millraced, directory, metrics__listen=METRICS))
            wait_for("the node", lambda: get(f"{METRICS}/healthz")[0] == 200)
            subprocess.run(
                [millrace, "ctl", "create", "--server", NODE, "table", "emb", "--dim", "8"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            check_text(cores=2)
            started.append(start_prometheus(source, directory))
            check_prometheus(started[0])
        except BaseException:
            for log in sorted(directory.glob("*.log")):
                print(f"== {log.name}\n{log.read_text(encoding='utf-8')[-4000:]}")
            raise
        finally:
            for process in started:
                process.send_signal(signal.SIGKILL)
                process.wait()


if __name__ == "__main__":
    main()
