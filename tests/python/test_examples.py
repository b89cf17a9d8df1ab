"""The examples, as a user runs them: on a real node and hub, with the first flights of the data that comes
with the project."""
import json
import lzma
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from torch_programs import TorchProgram, skip_without_torch
from waits import wait_until

import millrace

skip_without_torch()

FLIGHTS = 12000
EXAMPLES = os.environ["MILLRACE_EXAMPLES"]
DATA = os.environ["MILLRACE_FLIGHTS"]
NAMES = ("deepfm", "evaluate_frozen", "resume")
LIMIT_S = 300


@pytest.fixture(scope="module")
def flights(tmp_path_factory):
    path = tmp_path_factory.mktemp("flights") / "flights.csv"
    with lzma.open(DATA, "rt", encoding="ascii") as data:
        path.write_text("".join(line for line, _ in zip(data, range(FLIGHTS + 1))), encoding="ascii")
    return str(path)


def command(name, *arguments):
    return [os.path.join(EXAMPLES, name + ".py"), *map(str, arguments)]


def start_as_users_do(name, *arguments):
    return subprocess.Popen(
        [sys.executable, *command(name, *arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start(name, *arguments, paced=False):
    """A fork of a process that has imported torch."""
    return TorchProgram(command(name, *arguments), dict(os.environ), paced=paced)


def result_of(process):
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def run(name, *arguments):
    return result_of(start(name, *arguments))


def run_as_users_do(name, *arguments):
    return result_of(start_as_users_do(name, *arguments))


def refused(name, *arguments):
    """The line that it ends with, its only one beside what a hub without a key says."""
    process = start(name, *arguments)
    out, err = process.communicate(timeout=LIMIT_S)
    lines = [line for line in err.splitlines() if not line.startswith("no key: ")]
    assert process.returncode == 1 and out == "" and len(lines) == 1, (process.returncode, out, err)
    return lines[0]


@pytest.mark.parametrize("name", NAMES)
def test_help(name):
    process = start_as_users_do(name, "--help")
    out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0 and f"usage: {name}.py" in out and "--server" in out


@pytest.mark.parametrize("name", NAMES)
def test_no_node_there_is_one_line(cable, name, flights):
    more = ("--steps", 10) if name == "resume" else ("--hub", "127.0.0.1:9")
    line = refused(name, "--server", "127.0.0.1:9", "--data", flights, "--connect", 0.3, *more)
    assert line.startswith(f"{name}: ") and "127.0.0.1:9" in line
    process = start(name)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2 and err.startswith(f"usage: {name}.py ")


def test_deepfm_by_two_trainers_then_frozen(new_node, new_hub, flights, tmp_path):
    node = new_node(settings=("batches.count_max=64",))
    hub = new_hub(node, "--prefetch", "1")  # so little data stands no old gradients
    where = ("--server", node.address, "--hub", hub.address, "--data", flights, "--held-out", 0.25)
    assert "train one first" in refused("evaluate_frozen", *where)
    trainers = [start("deepfm", *where, "--part", "train", "--epochs", 4, "--staleness", 0) for _ in range(2)]
    trained = [result_of(trainer) for trainer in trainers]
    assert sum(each["batches_applied"] for each in trained) == trained[0]["batches"]
    assert sum(each["samples_per_s"] for each in trained) > 0  # one that comes late may find nothing left
    result = run_as_users_do("deepfm", *where, "--part", "evaluate")
    assert result["auc"] > 0.7 and 0.2 < result["logloss"] < 0.6 and 2500 < result["samples_evaluated"] < 3500

    frozen = run_as_users_do("evaluate_frozen", *where)
    assert (frozen["rows_made"], frozen["refuses_gradients"]) == (0, True)
    assert {name: frozen[name] for name in result} == result
    with millrace.Client(node.address, deadline_s=60) as client:
        client.table("deepfm").push_gradients([0], [[0.0] * 9])  # not frozen any more
        checkpoint = client.wait_for_save(client.save()).id
    server = new_node(settings=(f"checkpoint.serve={node.checkpoints}/ckpt-{checkpoint}",))
    served_hub = new_hub(server)
    served = run("evaluate_frozen", "--server", server.address, "--hub", served_hub.address, *where[4:])
    assert served == frozen


def criteo_lines(count, seed):
    """Labels, and lines without them: the first integer says which samples are positive, but for some."""
    random = np.random.default_rng(seed)
    is_positive = random.random(count) < 0.4
    first = np.where(is_positive ^ (random.random(count) < 0.1), 40, 3)
    words = random.integers(0, 50, (count, 26))
    lines = [
        "\t".join([str(first[i]), *[""] * 12, *(f"{word:08x}" for word in words[i])]) for i in range(count)
    ]
    return is_positive.astype(int), lines


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return path


def rows_of(node):
    with millrace.Client(node.address, deadline_s=60) as client:
        return [(info.name, info.rows) for info in client.features()]


def test_deepfm_predicts_criteos_test_file(new_node, new_hub, tmp_path):
    node = new_node(settings=("batches.count_max=64",))
    hub = new_hub(node, "--format", os.path.join(EXAMPLES, "../../../configs/formats/criteo_test.ini"))
    where = ("--server", node.address, "--hub", hub.address)
    labels, lines = criteo_lines(4000, 1)
    trained = write_lines(tmp_path / "train.txt", [f"{a}\t{line}" for a, line in zip(labels, lines)])
    labels, lines = criteo_lines(1500, 2)
    scored = ("--data", write_lines(tmp_path / "test.txt", lines), "--format", "criteo_test")
    out = tmp_path / "predictions.txt"
    assert "train a model first" in refused("deepfm", *where, *scored, "--predict", out)
    options = ("--format", "criteo", "--part", "train", "--held-out", 0, "--batch", 64)
    run("deepfm", *where, "--data", trained, *options)
    before = rows_of(node)
    result = run_as_users_do("deepfm", *where, *scored, "--predict", out)
    predicted = np.loadtxt(out)
    assert predicted.shape == (1500,) and result["samples_predicted"] == 1500
    assert predicted[labels == 1].mean() > predicted[labels == 0].mean() + 0.2  # of the right lines
    assert rows_of(node) == before
    assert "has labels" in refused(
        "deepfm", *where, "--data", trained, "--format", "criteo", "--predict", out
    )
    broken = write_lines(tmp_path / "broken.txt", [*lines[:5], "1"])
    line = refused("deepfm", *where, "--data", broken, "--format", "criteo_test", "--predict", out)
    assert "broken.txt:6: broken line" in line
    assert np.loadtxt(out).shape == (1500,)


def test_deepfm_says_what_is_wrong(new_node, new_hub, flights):
    node = new_node()
    where = ("--server", node.address, "--hub", new_hub(node).address)
    assert "/nowhere.csv" in refused("deepfm", *where, "--data", "/nowhere.csv")
    assert "--held-out is 0" in refused(
        "deepfm", *where, "--data", flights, "--held-out", 0, "--part", "evaluate", "--epochs", 1
    )


def test_own_data(new_node, flights):
    node = new_node()
    result = run_as_users_do("own_data", "--server", node.address, "--data", flights)
    assert (result["samples"], result["batches_applied"]) == (FLIGHTS, -(-FLIGHTS // 256))
    assert 0.2 < result["logloss_at_end"] < 0.55  # 0.69 untrained
    with open(flights, encoding="ascii") as data:
        done = subprocess.run(
            [sys.executable, *command("own_data", "--server", node.address, "--data", "-")],
            stdin=data,
            capture_output=True,
            text=True,
            check=True,
        )
    assert json.loads(done.stdout)["samples"] == FLIGHTS
    assert "/nowhere.csv" in refused("own_data", "--server", node.address, "--data", "/nowhere.csv")


def wait_for_step(process, step):
    """Reads what it says until it has passed this step."""
    until = time.monotonic() + LIMIT_S
    for line in process.stdout:
        found = re.match(r"resume: step (\d+)", line)
        if found and int(found[1]) >= step:
            return
        assert time.monotonic() < until
    raise AssertionError(process.communicate()[1])


def checkpoints(client):
    return client.checkpoint_info().last_good_step


RESUME = ("--steps", 60, "--batch", 128, "--save-every", 10, "--progress")


@pytest.fixture(scope="module")
def undisturbed(cable, flights):
    from programs import Node

    node = Node(cable).start()
    try:
        result = run_as_users_do("resume", "--server", node.address, "--data", flights, *RESUME)
    finally:
        node.stop()
    assert (result["first_step"], result["steps_lost"], result["steps_twice"], result["pushes_replayed"]) == (
        1,
        0,
        0,
        0,
    )
    return result


@pytest.mark.parametrize("cores", [1, 2])
def test_resume_goes_on_when_the_server_is_killed(new_node, flights, undisturbed, cores):
    """In steps that are in no checkpoint, whenever the test gets to run: the trainer waits to be read."""
    node = new_node(cores=cores)
    trainer = start("resume", "--server", node.address, "--data", flights, *RESUME, paced=True)
    for step in (15, 36):
        wait_for_step(trainer, step)
        reader = threading.Thread(target=wait_for_step, args=(trainer, step + 8))
        reader.start()
        node.kill()
        node.restart()
        reader.join()
    result = result_of(trainer)
    assert result["pushes_replayed"] > 0
    assert result == {**undisturbed, "pushes_replayed": result["pushes_replayed"]}


def test_resume_goes_on_from_a_checkpoint_when_both_are_killed(new_node, flights, undisturbed):
    node = new_node()
    trainer = start("resume", "--server", node.address, "--data", flights, *RESUME, paced=True)
    with millrace.Client(node.address, deadline_s=60) as client:
        wait_for_step(trainer, 25)
        trainer.kill()
        trainer.communicate()
        wait_until(lambda: checkpoints(client), "there is a checkpoint")
    node.kill()
    node.restart()
    result = run("resume", "--server", node.address, "--data", flights, *RESUME)
    assert result["first_step"] in (11, 21)
    assert result == {**undisturbed, "first_step": result["first_step"]}


def test_resume_says_what_is_wrong(new_node, flights):
    node = new_node()
    where = ("--server", node.address, "--data", flights)
    assert f"has {FLIGHTS} flights" in refused("resume", *where, "--steps", 1000, "--batch", 128)
    with millrace.Client(node.address, deadline_s=60) as client:
        client.table("x", 1).lookup([1], step=7)
    assert "is at step 7 of another training" in refused("resume", *where, *RESUME)
    assert "/nowhere.csv" in refused("resume", "--server", node.address, "--data", "/nowhere.csv")
