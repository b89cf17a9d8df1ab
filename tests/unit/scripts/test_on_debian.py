"""scripts/on-debian.sh copies the work tree into a root, keeps what is built there, and runs the command;
beside a debootstrap that makes a root of a few of this machine's programs."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts/on-debian.sh"
IN_ROOT = ["/bin/sh", "/bin/umount", "/usr/bin/env", "/bin/cat", "/bin/ls", "/bin/mkdir", "/bin/pwd"]
FOLDERS = "dev proc sys run tmp mnt root etc/apt/apt.conf.d etc/dpkg/dpkg.cfg.d usr/sbin usr/bin"
FAKES = {
    "debootstrap": f"""#!/bin/sh -e
echo "$@" >>"$FAKE_LOG"
[ -z "$FAKE_FAILS" ] || {{ echo "E: no such mirror"; exit 1; }}
for root; do case "$root" in */root) break ;; esac; done
for folder in {FOLDERS}; do mkdir -p "$root/$folder"; done
for program in {" ".join(IN_ROOT)}; do
    for file in $program $(ldd $program | grep -o '/[^ ]*'); do
        mkdir -p "$root/${{file%/*}}"
        cp -L "$file" "$root/$file"
    done
done
printf '#!/bin/sh\\n' >"$root/usr/sbin/update-ca-certificates"
chmod +x "$root/usr/sbin/update-ca-certificates"
""",
    "apt-get": "#!/bin/sh\n"
    "printf 'file:/mirror %s\\n' bookworm bookworm-updates; echo file:/security bookworm-security\n",
    "apt-config": "#!/bin/sh\necho 'Acquire::http::Proxy \"file:/proxy\";'\necho 'Dir \"/\";'\n",
}


def can_mount():
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "true"], capture_output=True, check=False
    )
    return done.returncode == 0


class Usage(unittest.TestCase):
    def refuse(self, *arguments):
        done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        return done.stderr

    def test_says_what_is_wrong(self):
        self.assertIn("unknown release '11': 12, 13 or sid", self.refuse("11", "true"))
        self.assertIn("which command", self.refuse("13"))
        self.assertIn("unknown option '--fast'", self.refuse("--fast", "13", "true"))
        self.assertIn("usage: ", self.refuse())


@unittest.skipUnless(os.geteuid() == 0 and can_mount(), "needs root and mount namespaces")
@unittest.skipUnless(shutil.which("git"), "needs git")
class OnDebian(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        self.tree = self.place / "tree"
        (self.tree / "scripts").mkdir(parents=True)
        shutil.copy(SCRIPT, self.tree / "scripts")
        (self.tree / ".gitignore").write_text("build/\n", encoding="utf-8")
        (self.tree / "committed").write_text("1", encoding="utf-8")
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "all")
        bin_folder = self.place / "bin"
        bin_folder.mkdir()
        for name, text in FAKES.items():
            (bin_folder / name).write_text(text, encoding="utf-8")
            (bin_folder / name).chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(self.place / "cache"),
            "FAKE_LOG": str(self.place / "log"),
            "FAKE_FAILS": "",
        }

    def git(self, *arguments):
        subprocess.run(["git", *arguments], cwd=self.tree, check=True, capture_output=True)

    def run_in_root(self, *arguments, **more):
        return subprocess.run(
            [self.tree / "scripts/on-debian.sh", *arguments],
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            check=False,
        )

    def sh(self, text, **more):
        done = self.run_in_root("13", "sh", "-c", text, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_copy_is_the_tree_as_it_is_now_and_keeps_what_was_built(self):
        self.assertEqual(self.sh("mkdir build && echo made >build/made && ls"), "build\ncommitted\nscripts\n")
        (self.tree / "committed").write_text("2", encoding="utf-8")
        (self.tree / "new").write_text("3", encoding="utf-8")
        (self.tree / "build").mkdir()
        (self.tree / "build/ours").touch()
        self.assertEqual(self.sh("cat committed new build/made && ls build"), "23made\nmade\n")
        (self.tree / "committed").unlink()
        self.assertEqual(self.sh("ls"), "build\nnew\nscripts\n")
        self.assertEqual((self.place / "log").read_text(encoding="utf-8").count("\n"), 1)
        status = subprocess.run(
            ["git", "status", "--short"], cwd=self.tree, capture_output=True, text=True, check=True
        )
        self.assertEqual(status.stdout, " D committed\n?? new\n")

    def test_the_command_sees_nothing_of_this_machine(self):
        (self.place / "seen").touch()
        seen = self.sh("pwd; ls /tmp; env", HOME="/nowhere", SECRET="1", https_proxy="there")
        variables = set(re.findall(r"(?m)^(\w+)=", seen))
        self.assertTrue(seen.startswith("/millrace\n"), seen)
        self.assertIn("https_proxy", variables)
        self.assertIn("\nHOME=/root\n", seen)
        self.assertFalse(variables & {"SECRET", "FAKE_LOG", "XDG_CACHE_HOME"}, seen)
        self.assertNotIn(self.place.name, seen)
        mounts = pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8")
        self.assertNotIn(str(self.place), mounts)

    def test_status_and_apts_settings(self):
        self.assertEqual(self.run_in_root("13", "sh", "-c", "exit 7").returncode, 7)
        self.assertIn(" trixie ", (self.place / "log").read_text(encoding="utf-8"))
        sources = "deb file:/mirror trixie main\ndeb file:/mirror trixie-updates main\n"
        sources += "deb file:/security trixie-security main\n"
        self.assertEqual(self.sh("cat /etc/apt/sources.list"), sources)
        self.assertEqual(
            self.sh("cat /etc/apt/apt.conf.d/90machine"), 'Acquire::http::Proxy "file:/proxy";\n'
        )
        done = self.run_in_root("sid", "cat", "/etc/apt/sources.list")
        self.assertEqual(done.stdout, "deb file:/mirror sid main\n")

    def test_a_root_that_cannot_be_made_is_made_the_next_time(self):
        done = self.run_in_root("13", "pwd", FAKE_FAILS="1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("E: no such mirror", done.stderr)
        self.assertIn("is file:/mirror reached", done.stderr)
        self.assertEqual(self.sh("pwd"), "/millrace\n")
        self.run_in_root("--fresh", "13", "pwd")
        self.assertEqual((self.place / "log").read_text(encoding="utf-8").count("\n"), 3)


unittest.main()
