"""scripts/torch2.py makes environments of a Python, once and whole; with a stand-in for Python, venv and
pip."""
import ctypes
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "python"))
from waits import wait_until  # noqa: E402

LIMIT_S = 60
NO_DEVICE = 100
PYTHON = """#!/bin/bash
case "$1 $2" in
"-m venv")
    mkdir -p "$3/bin" "$3/lib/python3/site-packages/torch" || exit 1
    cp "$0" "$3/bin/python"
    cp -r "$FAKE/lib" "$3/lib/python3/site-packages/torch/lib" ;;
"-m pip") echo "$*" >> "$FAKE/pip.log"; echo "no such package" >&2; [ ! -e "$FAKE/refuses" ] ;;
"-c import "*) echo "a Python" ;;
esac
"""


class Torch2(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.directory)
        self.python = self.directory / "python"
        self.python.write_text(PYTHON, encoding="utf-8")
        self.python.chmod(0o755)
        self.refuses = self.directory / "refuses"
        self.pip = self.directory / "pip.log"
        self.pip.touch()
        (self.directory / "lib").mkdir()
        empty = ["cc", "-shared", "-x", "c", "/dev/null", "-o", self.directory / "lib/libtorch.so"]
        subprocess.run(empty, check=True)

    def start(self, *arguments):
        return subprocess.Popen(
            [sys.executable, ROOT / "scripts/torch2.py", "--python", self.python, *arguments],
            env={**os.environ, "FAKE": str(self.directory), "XDG_CACHE_HOME": str(self.directory / "cache")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run_script(self, *arguments):
        process = self.start(*arguments)
        out, err = process.communicate(timeout=LIMIT_S)
        return process.returncode, out, err

    def place(self):
        """Where torch2 has been made; None: nowhere."""
        status, out, _ = self.run_script("--path", "torch2")
        return pathlib.Path(out.strip()).parent.parent if status == 0 else None

    def installs(self):
        return len(self.pip.read_text(encoding="utf-8").splitlines())

    def test_each_is_made_once(self):
        self.assertIsNone(self.place())
        status, out, _ = self.run_script()
        self.assertEqual(status, 0)
        self.assertRegex(
            out, r"\APython tests with torch 2: torch 2[\d.]+, numpy .*; torchrec [\d.]+, torch 2[\d.]+\n\Z"
        )
        self.assertTrue((self.place() / "bin/python").exists())
        self.assertEqual(self.run_script()[1], out)
        self.assertEqual(self.installs(), 2)

    def test_one_alone(self):
        status, out, _ = self.run_script("torchrec")
        self.assertEqual((status, self.place()), (0, None))
        self.assertNotIn("numpy", out)
        status, out, _ = self.run_script("graphlearn")
        self.assertRegex(out, r"graphlearn-torch [\d.]+, torch 2[\d.]+\n\Z")
        self.assertEqual((status, self.place(), self.installs()), (0, None, 2))
        self.assertEqual(self.run_script("fish")[0], 2)

    def test_without_pypi_none_is_left_half_made(self):
        self.refuses.touch()
        status, out, err = self.run_script("torch2")
        self.assertEqual(status, 0)
        self.assertIn("torch2 could not be made from PyPI, its tests are left out", out)
        self.assertIn("no such package", err)
        self.assertIsNone(self.place())
        self.refuses.unlink()
        self.run_script("torch2")
        self.assertIsNotNone(self.place())

    def test_what_an_interrupted_run_left_is_no_part_of_it(self):
        self.run_script("torch2")
        place = self.place()
        shutil.rmtree(place)
        part = pathlib.Path(f"{place}.part")
        part.mkdir()
        (part / "left").touch()
        self.assertIsNone(self.place())
        self.run_script("torch2")
        self.assertFalse((self.place() / "left").exists() or part.exists())

    def test_it_waits_for_another_that_makes_it(self):
        self.run_script("torch2")
        place = self.place()
        place.rename(self.directory / "made")
        with open(f"{place}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            waiting = self.start("torch2")
            wait_until(lambda: self.waits_for_a_lock(waiting.pid), "it waits for the lock")
            (self.directory / "made").rename(place)
        waiting.communicate(timeout=LIMIT_S)
        self.assertEqual((waiting.returncode, self.installs()), (0, 1))

    @staticmethod
    def waits_for_a_lock(pid):
        locks = pathlib.Path("/proc/locks").read_text(encoding="utf-8").splitlines()
        return any("->" in line and str(pid) in line.split() for line in locks)

    def test_nvidia_s_functions_return_an_error(self):
        """Those with versions, too, which are looked for in the library of their name."""
        lib, built = self.directory / "lib", self.directory / "built"
        built.mkdir()
        source = self.directory / "source.c"
        source.write_text("int cudaGetDeviceCount(int *n) { return 0; }\n", encoding="utf-8")
        versions = self.directory / "versions"
        versions.write_text("libcudart.so.13 { global: *; };\n", encoding="utf-8")
        shared = ["cc", "-w", "-shared", "-fPIC", source]
        theirs = built / "libcudart.so.13"
        subprocess.run(
            [*shared, "-o", theirs, f"-Wl,-soname,{theirs.name}", f"-Wl,--version-script,{versions}"],
            check=True,
        )
        source.write_text(
            "int cudaGetDeviceCount(int *);\nint (*ncclInit)(int *) = cudaGetDeviceCount;\n"
            "int count(void) { int n; return cudaGetDeviceCount(&n) ? ncclInit(&n) : 0; }\n",
            encoding="utf-8",
        )
        subprocess.run([*shared, "-o", lib / "libtorch.so", theirs, "-Wl,-rpath,$ORIGIN"], check=True)
        self.run_script("torch2")
        (torch,) = self.place().glob("lib/python3/site-packages/torch/lib/libtorch.so")
        self.assertEqual(ctypes.CDLL(torch).count(), NO_DEVICE)


if __name__ == "__main__":
    unittest.main()
