"""docs/python.md begins with a script and a change to it: both run, and say the same."""
import os
import re
import subprocess
import sys

from torch_programs import skip_without_torch

skip_without_torch()


def blocks(kind):
    with open(os.environ["MILLRACE_DOCS"] + "/python.md", encoding="utf-8") as page:
        return re.findall(rf"^```{kind}\n(.*?)^```$", page.read(), re.M | re.S)


def losses(path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return [float(line) for line in done.stdout.split()]


def test_three_lines(new_node, tmp_path):
    script, change = tmp_path / "script.py", blocks("diff")[0]
    script.write_text(blocks("python")[0], encoding="ascii")
    theirs = losses(script)
    subprocess.run(["patch", "--silent", "--fuzz=0", script], input=change, text=True, check=True)
    changed = [line for line in change.splitlines() if re.match(r"[+-](?![+-])", line)]
    assert len(changed) <= 5 and script.read_text().count("10.0.0.1:7700") == 1
    script.write_text(script.read_text().replace("10.0.0.1:7700", new_node().address))
    ours = losses(script)
    assert len(ours) == len(theirs) == 100 and theirs[-1] < 0.6 * theirs[0]
    assert max(abs(a - b) for a, b in zip(ours, theirs)) <= 1e-4
