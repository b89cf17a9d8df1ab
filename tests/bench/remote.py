"""Remote calls and training through them, beside what PyTorch does over the same cable with the same
processors.

Calls: two workers over a veth pair, a CPU each, through the kernel's sockets; torch_rpc.py the same. MNIST:
the example mnist, a server and one, two and four trainers, which share both CPUs as they like, and torch's
tutorial with one trainer; pictures are made up. Layers alone: layers.py.
"""
import json
import os
import random
import shutil
import struct
import subprocess
import sys

TORCH_PYTHON = "/usr/bin/python3"  # Debian's, for which python3-torch is
TORCH_PORT = 29500
TORCH_SECONDS = 120  # of a program, in all
BOTH_CPUS = "0,1"
BATCH = 32
IMAGES_TRAIN, IMAGES_TEST, IMAGE_BYTES = 6400, 320, 784

# name: (unit, better, target, what the target is compared with)
ROWS = {
    "rpc_sync_empty": ("us", "lower", 45.0, "value"),
    "rpc_async_64": ("calls/s", "higher", 300e3, "value"),
    "python_rpc_added": ("us", "lower", 15.0, "value"),  # to an empty call, against the caller in C
    "layers_train_32": ("images/s", "higher", 1.0, "ratio"),
    "mnist_1_trainer": ("images/s", "higher", 1800.0, "value"),  # limits: torch with one trainer,
    "mnist_2_trainers": ("images/s", "higher", 1.0, "ratio"),  # and ours with one
    "mnist_4_trainers": ("images/s", "higher", 1.0, "ratio"),
}


def has_torch(python=TORCH_PYTHON):
    done = subprocess.run([python, "-c", "import torch.distributed.rpc"], capture_output=True, check=False)
    return done.returncode == 0


def draw(count, seed):
    """Pictures with strokes, about a fifth of them white, and labels."""
    draws = random.Random(seed)
    images = bytearray(count * IMAGE_BYTES)
    for i in range(count):
        for _ in range(8):
            at = i * IMAGE_BYTES + draws.randrange(IMAGE_BYTES - 4 * 28 - 20)
            for row in range(4):
                images[at + row * 28 : at + row * 28 + 15] = b"\xff" * 15
    return bytes(images), bytes(draws.randrange(10) for _ in range(count))


def write_pictures(directory, train_count=IMAGES_TRAIN):
    """Files as MNIST has them."""
    os.makedirs(directory)
    for name, count in (("train", train_count), ("t10k", IMAGES_TEST)):
        images, labels = draw(count, name)
        with open(os.path.join(directory, f"{name}-images-idx3-ubyte"), "wb") as out:
            out.write(struct.pack(">4I", 2051, count, 28, 28) + images)
        with open(os.path.join(directory, f"{name}-labels-idx1-ubyte"), "wb") as out:
            out.write(struct.pack(">2I", 2049, count) + labels)


class Remote:
    """One round: `bench` is run.Bench, `tools` the module run."""

    torch_steps = 60  # of mnist

    def __init__(self, bench, tools, directory, python=TORCH_PYTHON):
        """python: that torch is installed for."""
        self.bench, self.tools, self.python = bench, tools, python
        self.pictures = os.path.join(directory, "pictures")
        self.torch = os.path.exists(python) and has_torch(python)
        if not self.torch and python == TORCH_PYTHON:
            print("bench: torch left out: no python3-torch (scripts/setup.sh bench)", file=sys.stderr)

    def cable(self):
        """The kernel's sockets on the server's side, too."""
        return self.tools.Cable(self.bench.mtu, server_kernel=True)

    def both(self, cable, server, client, server_cpus=None, client_cpus=None):
        """The lines of the client, which runs beside the server."""
        tools = self.tools
        with tools.serving(cable.server, server, "ready", server_cpus or str(tools.CPU_SERVER)):
            return tools.client_lines(cable.client, client, cpus=client_cpus or str(tools.CPU_CLIENT))

    def torch_command(self, what, rank, interface, master, threads=1):
        script = os.path.join(os.path.dirname(__file__), "torch_rpc.py")
        return [
            "timeout",
            str(TORCH_SECONDS),
            self.python,
            script,
            what,
            "--rank",
            str(rank),
            "--threads",
            str(threads),
            "--batch",
            str(BATCH),
            "--steps",
            str(self.torch_steps),
            "--interface",
            interface,
            "--master-addr",
            master,
            "--master-port",
            str(TORCH_PORT),
        ]

    def python_command(self, meet):
        """The caller in Python."""
        package, library = (
            self.bench.program(f"trainer_client/{part}") for part in ("python", "libmillrace.so")
        )
        script = os.path.join(os.path.dirname(__file__), "python_rpc.py")
        return ["env", f"PYTHONPATH={package}", f"MILLRACE_LIBRARY={library}", TORCH_PYTHON, script, *meet]

    def note(self, what, lines):
        settings = lines["torch_settings"]
        self.bench.notes[f"torch {what}"] = (
            f"torch {settings['version']}, TensorPipe over TCP, {settings['rpc_threads']} threads for calls, "
            f"{settings['threads']} for tensors, caller on CPU {','.join(map(str, settings['cpus']))}"
        )

    def calls(self):
        program, client = self.bench.program("tests/bench/bench_rpc"), self.tools.CLIENT_IP
        meet = ["--rendezvous", f"{client}:{self.tools.PORT}"]
        lines = {}
        with self.cable() as cable:
            lines = self.both(cable, [program, "--rank", "1", *meet], [program, "--rank", "0", *meet])
            if self.torch:
                lines.update(self.both(cable, [program, "--rank", "1", *meet], self.python_command(meet)))
                lines.update(
                    self.both(
                        cable,
                        self.torch_command("calls", 1, "server0", client),
                        self.torch_command("calls", 0, "client0", client),
                    )
                )
                self.note("calls", lines)
        for name in ("rpc_sync_empty", "rpc_async_64"):
            self.bench.add(name, lines[name]["value"], lines.get(f"torch_{name}", {}).get("value"))
        if "python_rpc_sync_empty" in lines:
            self.bench.add(
                "python_rpc_added",
                lines["python_rpc_sync_empty"]["value"] - lines["rpc_sync_empty"]["value"],
                None,
            )

    def torch_mnist(self, cable):
        """With as many threads as are best for it."""
        server, best = self.tools.SERVER_IP, 0.0
        for threads in (1, 2):
            lines = self.both(
                cable,
                self.torch_command("mnist", 0, "server0", server, threads),
                self.torch_command("mnist", 1, "client0", server, threads),
                BOTH_CPUS,
                BOTH_CPUS,
            )
            rate = lines["torch_mnist_1_trainer"]["value"]
            if rate > best:
                best = rate
                self.note("mnist", lines)
        return best

    def mnist(self):
        """Ours, by the example; nothing where it was not built."""
        program = self.bench.program("trainer_client/examples/mnist")
        if not os.path.exists(program):
            print("bench: mnist left out: it was not built, as where oneDNN is missing", file=sys.stderr)
            return
        write_pictures(self.pictures)
        with self.cable() as cable:
            torch = self.torch_mnist(cable) if self.torch else None
            alone = None
            for trainers in (1, 2, 4):
                rate = self.train(cable, program, trainers)
                alone = alone or rate
                name = f"mnist_{trainers}_trainer" + ("s" if trainers > 1 else "")
                self.bench.add(name, rate, torch if trainers == 1 else alone)
        shutil.rmtree(self.pictures)

    def train(self, cable, program, trainers):
        """Images per second of all trainers together, as the server counts them."""
        tools = self.tools
        command = [
            program,
            "--world-size",
            str(trainers + 1),
            "--master-addr",
            tools.SERVER_IP,
            "--master-port",
            str(tools.PORT),
            "--data",
            self.pictures,
            "--batch",
            str(BATCH),
            "--accuracy",
            "0",
        ]
        prefix = [*tools.FIRST, "ip", "netns", "exec"]
        pinned = ["taskset", "-c", BOTH_CPUS, *command, "--rank"]
        server = subprocess.Popen([*prefix, cable.server, *pinned, "0"], stdout=subprocess.PIPE, text=True)
        others = [
            subprocess.Popen([*prefix, cable.client, *pinned, str(rank)], stdout=subprocess.DEVNULL)
            for rank in range(1, trainers + 1)
        ]
        try:
            out, _ = server.communicate(timeout=300)
            codes = [server.returncode] + [other.wait(60) for other in others]
        finally:
            for process in (server, *others):
                process.kill()
                process.wait()
        last = out.splitlines()[-1] if out else ""
        if any(codes) or not last.startswith("mnist: ok "):
            raise RuntimeError(f"mnist with {trainers} trainers: exit codes {codes}, {last or 'no output'}")
        return float(dict(word.split("=") for word in last.split() if "=" in word)["images_per_s"])

    def layers(self):
        """Without the wire: layers beside torch in one process."""
        if not (self.torch and os.path.exists(self.bench.program("tests/bench/bench_layers"))):
            return
        script = os.path.join(os.path.dirname(__file__), "layers.py")
        done = subprocess.run(
            [*self.tools.FIRST, TORCH_PYTHON, script, "--build", self.bench.build, "--batch", str(BATCH)],
            text=True,
            capture_output=True,
            check=False,
            timeout=600,
        )
        if done.returncode != 0:
            raise RuntimeError(f"layers: {done.stderr.strip()[-300:]}")
        line = json.loads(done.stdout)
        self.bench.add(line["name"], line["value"], line["limit"])

    def round(self):
        self.calls()
        self.layers()
        self.mnist()
