"""The wheel that scripts/wheel.sh builds, as pip's users have it: in an environment of its own, in an empty
folder, with nothing else of the system than its C library.

$MILLRACE_WHEEL: one that is built already; else one is built here, quickly.
$MILLRACE_WHEEL_FULL: also in every Python of VERSIONS that is in $PATH, with torch and TorchRec, and with the
tests of tests/python. $MILLRACE_WHEEL_TORCH and $MILLRACE_WHEEL_TORCHREC name virtual environments whose
packages are taken; without one, its tests are skipped.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

SOURCE = Path(os.environ["MILLRACE_SOURCE"])
PROGRAMS = ["millrace", "millraced", "millrace-hub"]
VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]
full = pytest.mark.skipif("MILLRACE_WHEEL_FULL" not in os.environ, reason="make test-pip runs it")
MESON_SKIPPED = 77

# Of tests/python: what needs no frames of a port, and finds the programs where a system or a build has them.
OWN_TESTS = [
    ("with_pytest", "asyncio batches checkpoints client dev errors futures hub reference trace"),
    (
        "with_torch",
        "arrays backward data dense features importer life nn node rpc rpc_autograd rpc_optimizer threads "
        "torch_idioms",
    ),
    ("with_torch", "devices"),  # torch has its fake device until the process ends
    ("with_torchrec", "torchrec torchrec_pipelines"),
]
ELSEWHERE = "not test_programs_that_are_not_there and not test_without_root"

# What manylinux takes for granted, as far as a small container has it.
SYSTEM = {"libc.so.6", "libm.so.6", "libresolv.so.2", "libgcc_s.so.1", "libz.so.1", "linux-vdso.so.1"}

THREE_LINES = """
import millrace
server = millrace.dev()
client = server.client()
"""
TRAIN = """
import numpy as np
sgd, zeros = millrace.optim.SGD(lr=0.5), millrace.init.constant(0)
table = client.table("items", dim=4, optimizer=sgd, initializer=zeros)
keys, target = np.arange(64), np.float32(3)
for step in range(30):
    table.push_gradients(keys, table.lookup(keys) - target)
rows = table.lookup(keys)
server.stop()
assert rows.shape == (64, 4) and np.abs(rows - target).max() < 1e-6, rows
print(millrace.__version__, millrace.__file__)
"""
TRAIN_TORCH = """
import torch
torch.manual_seed(1)
bags = millrace.EmbeddingBag(client, "items", dim=8, mode="sum", optimizer=millrace.optim.SGD(lr=0.5))
model = torch.nn.Sequential(bags, torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
losses = []
for step in range(40):
    keys = torch.randint(50, (64, 4))
    labels = (keys < 8).any(1).float()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(keys).squeeze(1), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
client.close()
server.stop()
assert losses[-1] < losses[0] - 0.1, losses
print(millrace.__version__, millrace.__file__)
"""


def run(*command, **settings) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **settings
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def version() -> str:
    return re.search(r"version: '([^']+)'", (SOURCE / "meson.build").read_text(encoding="utf-8"))[1]


@pytest.fixture(scope="session")
def place():
    """A folder for this file's runs, which every user may read, and which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="millrace-wheel-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture(scope="session")
def wheel(place) -> Path:
    if "MILLRACE_WHEEL" in os.environ:
        return Path(os.environ["MILLRACE_WHEEL"]).absolute()
    command = [SOURCE / "scripts/wheel.sh", "--quick", "--out", place / "wheel"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == MESON_SKIPPED:
        pytest.exit(f"no wheel: {done.stderr.splitlines()[-1]}", MESON_SKIPPED)
    assert done.returncode == 0, done.stderr
    (found,) = (place / "wheel").glob("*.whl")
    return found


class Environment:
    """A virtual environment whose programs see neither a compiler nor the settings of this process."""

    def __init__(self, where: Path, python: str):
        self.where = where
        run(python, "-m", "venv", where)
        self.python = where / "bin/python"
        self.variables = {
            "PATH": str(where / "bin"),
            "HOME": str(where),
            "OMP_NUM_THREADS": "1",
            "PIP_NO_CACHE_DIR": "1",
        }

    def run(self, *command, **settings) -> str:
        return run(*command, **{"cwd": "/", "env": self.variables, **settings})

    def install(self, *packages) -> None:
        pip = "-m pip install --quiet --disable-pip-version-check --only-binary=:all:".split()
        self.run(self.python, *pip, *packages)

    @property
    def site(self) -> Path:
        (found,) = self.where.glob("lib/python3*/site-packages")
        return found

    @property
    def package(self) -> Path:
        return self.site / "millrace"


@pytest.fixture(scope="session")
def numpy_only(wheel, place) -> Environment:
    made = Environment(place / "numpy", sys.executable)
    made.install(wheel)
    return made


@pytest.fixture(scope="session")
def with_pytest(wheel, place) -> Environment:
    made = Environment(place / "pytest", sys.executable)
    made.install(wheel, "pytest")
    return made


def beside(wheel, where, variable) -> Environment:
    """The wheel beside the packages of the environment that the variable names."""
    if not os.environ.get(variable):
        pytest.skip(f"{variable} names no environment")
    made = Environment(where, sys.executable)
    made.install(wheel, "pytest")
    (site,) = Path(os.environ[variable]).glob("lib/python3*/site-packages")
    (made.site / "other.pth").write_text(f"import site; site.addsitedir('{site}')\n", encoding="utf-8")
    return made


@pytest.fixture(scope="session")
def with_torch(wheel, place) -> Environment:
    return beside(wheel, place / "torch", "MILLRACE_WHEEL_TORCH")


@pytest.fixture(scope="session")
def with_torchrec(wheel, place) -> Environment:
    return beside(wheel, place / "torchrec", "MILLRACE_WHEEL_TORCHREC")


def assert_trains(environment, cwd, *prefix, script=TRAIN) -> None:
    says = environment.run(*prefix, environment.python, "-c", THREE_LINES + script, cwd=cwd)
    assert says == f"{version()} {environment.package}/__init__.py\n"


def test_its_name_says_where_it_runs(wheel):
    assert re.fullmatch(rf"millrace-{re.escape(version())}-py3-none-manylinux_2_\d+_x86_64\.whl", wheel.name)
    if "bookworm" in Path("/etc/os-release").read_text(encoding="utf-8"):
        assert "manylinux_2_34" in wheel.name  # RHEL 9, Ubuntu 22.04


def test_what_it_holds(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "millrace/py.typed" in names and "millrace/_lib/libmillrace.so.0.4" in names
    assert {f"millrace/_bin/{name}" for name in PROGRAMS} <= set(names)
    assert {name.split("/")[0] for name in names} == {
        "millrace",
        "millrace.libs",
        f"millrace-{version()}.data",
        f"millrace-{version()}.dist-info",
    }
    sources = (SOURCE / "trainer_client/python/millrace").rglob("*.py*")
    for path in sources:
        name = str(path.relative_to(SOURCE / "trainer_client/python"))
        assert name.removesuffix(".in") in names or "__pycache__" in name


def test_licenses_go_along(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    licenses = {Path(name).name for name in names if ".dist-info/licenses/" in name}
    assert {"LICENSE", "libsodium23", "librte-eal23", "libexpat1", "libcurl4", "libcom-err2"} <= licenses


def test_it_needs_numpy_and_cffi(numpy_only):
    listed = numpy_only.run(numpy_only.python, "-m", "pip", "list", "--format=freeze").splitlines()
    names = {line.split("==")[0] for line in listed} - {"pip", "setuptools"}
    assert names == {"cffi", "pycparser", "numpy", "millrace"}


def test_it_links_nothing_of_the_system(numpy_only):
    site = numpy_only.site
    for binary in [*(numpy_only.package / "_bin").iterdir(), *(numpy_only.package / "_lib").iterdir()]:
        for line in run("ldd", binary, env={}).splitlines():
            name, _, path = line.strip().partition(" => ")
            inside = Path(os.path.normpath(path.split(" ")[0])).is_relative_to(site)
            assert inside or name.split(" ")[0] in SYSTEM or "ld-linux" in name, f"{binary.name}: {line}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_commands(numpy_only, program, tmp_path):
    says = numpy_only.run(numpy_only.where / "bin" / program, "--version", cwd=tmp_path)
    assert says == f"{program} {version()}\n"


def test_a_command_passes_everything_on(numpy_only, tmp_path):
    count = (
        "import os, millrace; print(len(millrace.Client(os.environ['MILLRACE_SERVER']).heartbeat())); exit(7)"
    )
    command = [numpy_only.where / "bin/millrace", "dev", "--cores=2", "--", numpy_only.python, "-c", count]
    done = subprocess.run(
        command, env=numpy_only.variables, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (7, "2\n"), done.stderr


def test_three_lines(numpy_only, tmp_path):
    assert_trains(numpy_only, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_three_lines_as_nobody(numpy_only, place):
    empty = place / "empty"
    empty.mkdir()
    prefix = [
        shutil.which("setpriv"),
        "--reuid=nobody",
        "--regid=nogroup",
        "--clear-groups",
        "--no-new-privs",
    ]
    assert_trains(numpy_only, empty, *prefix)


def test_a_port_that_is_not_inside(numpy_only, tmp_path):
    """The wheel's server has the kernel's sockets only, and says so."""
    config = tmp_path / "node.conf"
    config.write_text(
        f"[port]\ndevice=lo\ndriver=af_packet\nipv4=127.0.0.9/8\n[checkpoint]\ndirectory={tmp_path}\n",
        encoding="utf-8",
    )
    command = [numpy_only.where / "bin/millraced", "--config", config]
    done = subprocess.run(
        command, env=numpy_only.variables, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "came with pip" in done.stderr.splitlines()[-1], done.stderr


@full
@pytest.mark.parametrize("number", VERSIONS)
def test_three_lines_in_each_python(wheel, place, tmp_path, number):
    python = shutil.which(f"python{number}")
    if python is None:
        pytest.skip(f"python{number} is not in $PATH")
    runs = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
    if runs.returncode != 0:  # a shim of pyenv's, of a Python that is installed and not chosen
        pytest.skip(f"{python} does not run: {runs.stderr.strip().splitlines()[0]}")
    environment = Environment(place / number, python)
    environment.install(wheel)
    assert_trains(environment, tmp_path)


@full
def test_three_lines_beside_torch(with_torch, tmp_path):
    assert_trains(with_torch, tmp_path, script=TRAIN_TORCH)


@full
@pytest.mark.parametrize("environment, names", OWN_TESTS)
def test_the_packages_own_tests(request, tmp_path, environment, names):
    files = [SOURCE / f"tests/python/test_{name}.py" for name in names.split()]
    made = request.getfixturevalue(environment)
    variables = {
        **made.variables,
        "PATH": f"{made.where}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MILLRACE_ON_SOCKETS": "1",
        "MILLRACED": str(made.package / "_bin/millraced"),
        "MILLRACE_HUB": str(made.package / "_bin/millrace-hub"),
        "MILLRACE_TOOL": str(made.package / "_bin/millrace"),
        "MILLRACE_DOCS": str(SOURCE / "docs"),
        "MILLRACE_FLIGHTS": str(SOURCE / "trainer_client/examples/data/flights-3m.csv.xz"),
        "MILLRACE_EXAMPLES": str(SOURCE / "trainer_client/python/examples"),
    }
    command = [made.python, *"-m pytest -q -p no:cacheprovider -k".split(), ELSEWHERE, *files]
    says = made.run(*command, env=variables, cwd=tmp_path)
    assert " passed" in says.splitlines()[-1], says
