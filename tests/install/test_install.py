"""What `meson install` puts where: Debian's packages hold all of it, and a program and Python find the
library there."""
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(os.environ["MILLRACE_SOURCE"])
BUILD = Path(os.environ["MILLRACE_BUILD"])
SANITIZED = os.environ["MILLRACE_SANITIZE"] != "none"
PROGRAM = """
#include <millrace.h>
#include <millrace_rpc.h>
#include <stdio.h>
int main(void) { return puts(mr_status_text(MR_OK)) < 0; }
"""


def run(*command, **settings) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """The prefix of an installation below a folder of its own."""
    options = json.loads(run("meson", "introspect", "--buildoptions", BUILD))
    prefix = next(option["value"] for option in options if option["name"] == "prefix")
    destination = tmp_path_factory.mktemp("root")
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", destination)
    return destination / prefix.lstrip("/")


def version() -> str:
    return re.search(r"version: '([^']+)'", (SOURCE / "meson.build").read_text(encoding="utf-8"))[1]


def files(root: Path) -> list[str]:
    return sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or path.is_file()
    )


def one(root: Path, pattern: str) -> Path:
    found = list(root.glob(pattern))
    assert len(found) == 1, f"{pattern}: {found}"
    return found[0]


def install_lines():
    """Of debian/PACKAGE.install: the package, what it takes, and where that goes if not to the same place."""
    for path in sorted((SOURCE / "debian").glob("*.install")):
        for line in path.read_text(encoding="utf-8").splitlines():
            pattern, *place = line.split()
            yield path.stem, pattern, place


def takes(pattern: str, path: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^/]*") + "(/.*)?", path) is not None


def test_every_file_is_in_one_package(root):
    lines = list(install_lines())
    homes = {f"usr/{name}": [] for name in files(root)}
    for package, pattern, place in lines:
        taken = [path for path in homes if takes(pattern, path)]
        assert taken, f"{package}: {pattern} is not installed"
        for path in taken if not (place and place[0].startswith("etc/")) else []:
            homes[path].append(package)
    assert {path: packages for path, packages in homes.items() if len(packages) != 1} == {}


def test_packages_are_those_of_the_control_file():
    control = (SOURCE / "debian/control").read_text(encoding="utf-8")
    assert {package for package, _, _ in install_lines()} == set(
        re.findall(r"^Package: (\S+)", control, re.M)
    )


def test_versions_agree():
    changelog = (SOURCE / "debian/changelog").read_text(encoding="utf-8")
    assert re.match(r"millrace \((.*?)(?:-[^-)]*)?\)", changelog)[1] == version()


def test_the_unit_starts_the_installed_server(root):
    unit = (root / "lib/systemd/system/millraced.service").read_text(encoding="utf-8")
    program = re.search(r"^ExecStart=(\S+) --config /etc/millrace/millraced.conf$", unit, re.M)[1]
    assert str(root / "bin/millraced").endswith(program)
    for name, number in re.findall(r"man:([\w.-]+)\((\d)\)", unit):
        assert (root / f"share/man/man{number}/{name}.{number}").exists()


def test_the_unit_runs_as_a_user_of_its_own(root):
    unit = (root / "lib/systemd/system/millraced.service").read_text(encoding="utf-8")
    user = re.search(r"^User=(\S+)$", unit, re.M)[1]
    assert re.search(
        rf"^u {user} ", (root / "lib/sysusers.d/millraced.conf").read_text(encoding="utf-8"), re.M
    )
    assert "ProtectSystem=strict" in unit and "NoNewPrivileges=yes" in unit
    for line in ("LimitCORE=0", "UMask=0027", "SystemCallFilter=@system-service bpf perf_event_open"):
        assert line in unit
    families = re.search(r"^RestrictAddressFamilies=(.*)$", unit, re.M)[1].split()
    assert {"AF_XDP", "AF_PACKET", "AF_NETLINK", "AF_UNIX"} < set(families)
    granted, bound = (
        re.search(rf"^{name}=(.*)$", unit, re.M)[1]
        for name in ("AmbientCapabilities", "CapabilityBoundingSet")
    )
    assert granted == bound


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_no_fault_in_the_unit(root, tmp_path):
    unit = (root / "lib/systemd/system/millraced.service").read_text(encoding="utf-8")
    copy = tmp_path / "millraced.service"
    copy.write_text(
        re.sub(r"^ExecStart=\S+", f"ExecStart={root / 'bin/millraced'}", unit, flags=re.M), encoding="utf-8"
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_pages_examples_are_there(root):
    examples = root / "share/doc/millrace/examples"
    for page in (SOURCE / "docs").glob("*.md"):
        for name in re.findall(
            r"\]\(\.\./trainer_client/examples/([\w/]+\.[ch])\)", page.read_text(encoding="utf-8")
        ):
            assert (examples / name).is_file(), f"{page.name}: {name}"
        for name in re.findall(
            r"\]\(\.\./trainer_client/python/examples/(\w+\.py)\)", page.read_text(encoding="utf-8")
        ):
            assert (examples / "python" / name).is_file(), f"{page.name}: {name}"


def test_links_of_the_pages_lead_to_installed_files(root):
    pages = root / "share/doc/millrace"
    links = [
        (page, target)
        for page in pages.rglob("*.md")
        for target in re.findall(r"\]\(((?!\w+:)[^)#\s]+)(?:#[^)\s]*)?\)", page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 300
    assert [(page.name, target) for page, target in links if not (page.parent / target).exists()] == []


def test_the_example_configuration_is_the_servers_own(root):
    example = (root / "share/doc/millrace/examples/millraced.conf").read_text(encoding="utf-8")
    assert example == run(root / "bin/millraced", "--print-config")


@pytest.mark.skipif(SANITIZED, reason="programs of others are not built with sanitizers")
@pytest.mark.parametrize("static", [False, True])
def test_a_program_builds_with_pkg_config(root, tmp_path, static):
    library = one(root, "lib/**/libmillrace.so").parent
    source = tmp_path / "program.c"
    source.write_text(PROGRAM, encoding="utf-8")
    if static:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib/libmillrace.a").symlink_to(library / "libmillrace.a")
    flags = run(
        "pkg-config",
        f"--define-variable=prefix={root}",
        "--cflags",
        "--libs",
        *["--static"] * static,
        library / "pkgconfig/millrace.pc",
    ).split()
    flags = [f"-L{tmp_path / 'lib'}" if static and flag == f"-L{library}" else flag for flag in flags]
    run(
        *os.environ.get("MILLRACE_CC", "cc").split(),
        "-Wall",
        "-Wextra",
        "-Werror",
        source,
        "-o",
        tmp_path / "program",
        *flags,
    )
    assert run(tmp_path / "program", env={} if static else {"LD_LIBRARY_PATH": str(library)}) == "ok\n"


@pytest.mark.skipif(SANITIZED, reason="Python is not built with sanitizers")
def test_python_imports_the_package(root):
    package = one(root, "lib/python3*/dist-packages/millrace")
    environment = {
        "PYTHONPATH": str(package.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_LIBRARY_PATH": str(one(root, "lib/**/libmillrace.so").parent),
    }
    program = "import millrace; print(millrace.__file__, millrace.__version__)"
    assert (
        run(os.environ["MILLRACE_PYTHON"], "-c", program, env=environment)
        == f"{package}/__init__.py {version()}\n"
    )
