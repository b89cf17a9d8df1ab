"""The rules for Prometheus and the dashboard for Grafana name only metrics that a node has, and work."""
import json
import os
import re
import subprocess
from pathlib import Path

SOURCE, BUILD = Path(os.environ["MILLRACE_SOURCE"]), Path(os.environ["MILLRACE_BUILD"])
PROMETHEUS = SOURCE / "configs/prometheus"
OTHERS = {"process_start_time_seconds", "millrace_build_info"}  # of every process
METRIC = re.compile(r"\b(?:millrace|process)_\w+")


def exported() -> set[str]:
    """What the page of metrics lists, with what samples of a histogram are called."""
    page = subprocess.run(
        [BUILD / "ps/millraced", "--print-counters"], check=True, capture_output=True, text=True
    ).stdout
    names = set(re.findall(r"\| `(millrace_\w+)` \|", page))
    for name in re.findall(r"\| `(millrace_\w+)` \| histogram", page):
        names |= {f"{name}_{ending}" for ending in ("bucket", "sum", "count")}
    assert len(names) > 150
    return names | OTHERS


def expressions() -> list[str]:
    """Of the rules and of the dashboard."""
    rules = "".join(
        (PROMETHEUS / name).read_text(encoding="utf-8") for name in ("alerts.yml", "recording.yml")
    )
    found = re.findall(r"^ +expr: (?:\|\n((?:(?: {10,}.*)?\n)+)|(.*)\n)", rules, re.MULTILINE)
    assert len(found) == rules.count(" expr: ") > 20
    dashboard = json.loads((SOURCE / "configs/grafana/millrace.json").read_text(encoding="utf-8"))
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(targets) > 40
    variables = [v["definition"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
    return [block or line for block, line in found] + targets + variables


def test_every_metric_that_is_asked_for_is_exported():
    known = exported()
    for expression in expressions():
        names = METRIC.findall(expression)
        assert names or expression.startswith("up{"), expression
        assert set(names) <= known, expression


def test_every_alert_has_a_test_and_says_what_to_do():
    rules = (PROMETHEUS / "alerts.yml").read_text(encoding="utf-8")
    alerts = re.findall(r"- alert: (\w+)", rules)
    tests = (PROMETHEUS / "alerts_test.yml").read_text(encoding="utf-8")
    fire = set(re.findall(r"alertname: (\w+)\n +exp_alerts:", tests))
    silent = set(re.findall(r"alertname: (\w+)\n(?! +exp_alerts:)", tests))
    assert len(alerts) == len(set(alerts)) and set(alerts) == fire
    assert set(alerts) == silent
    for part in ("severity: ", "summary: ", "description: "):
        assert rules.count(part) - (part == "severity: ") == len(alerts)  # the file's head names it once


def test_panels_have_titles_and_do_not_overlap():
    panels = json.loads((SOURCE / "configs/grafana/millrace.json").read_text(encoding="utf-8"))["panels"]
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert panel["title"] and at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)
