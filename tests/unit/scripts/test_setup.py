"""scripts/setup.sh chooses packages by what the release has, and says what it cannot install; beside an apt
that is a script."""
import pathlib
import re
import subprocess
import tempfile
import unittest

SETUP = pathlib.Path(__file__).resolve().parents[3] / "scripts/setup.sh"
TOOLS = ["awk", "bash", "cat", "env", "grep", "id", "mktemp", "rm", "sed", "tail", "tr", "xargs"]

# FAKE_INSTALLED are the packages that are installed, FAKE_LACKS those that the release does not have.
FAKES = {
    "dpkg-query": """
        for package; do :; done
        case " $FAKE_INSTALLED " in *" $package "*) echo installed ;; *) exit 1 ;; esac""",
    "apt-cache": """
        shift
        for package; do
            case " $FAKE_LACKS " in *" $package "*) continue ;; esac
            printf '%s:\\n  Installed: (none)\\n  Candidate: 1.0\\n  Version table:\\n' "$package"
        done
        printf 'virtual:\\n  Installed: (none)\\n  Candidate: (none)\\n'""",
    "apt-get": """
        [ "$1" = install ] || exit "${FAKE_UPDATE:-0}"
        echo "$@" >"$FAKE_LOG" """,
    "sudo": 'exec "$@"',
    "systemctl": "exit 0",
}


class Setup(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.bin = pathlib.Path(place.name)
        self.log = self.bin / "log"
        for tool in TOOLS:
            path = next(p for p in (pathlib.Path(d) / tool for d in ("/usr/bin", "/bin")) if p.exists())
            (self.bin / tool).symlink_to(path)
        for name, text in FAKES.items():
            (self.bin / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            (self.bin / name).chmod(0o755)

    def setup(self, *groups, **fakes):
        environment = {"PATH": str(self.bin), "FAKE_LOG": str(self.log)}
        environment.update({f"FAKE_{name.upper()}": value for name, value in fakes.items()})
        return subprocess.run(
            ["bash", SETUP, *groups], env=environment, capture_output=True, text=True, check=False
        )

    def installed(self):
        return self.log.read_text(encoding="utf-8").split() if self.log.exists() else []

    def test_takes_the_first_that_the_release_has(self):
        done = self.setup("cluster", lacks="openjdk-17-jre-headless")
        self.assertEqual((done.returncode, done.stderr), (0, "setup: installing 2 Debian packages\n"))
        self.assertIn("openjdk-21-jre-headless", self.installed())
        self.assertNotIn("openjdk-17-jre-headless", self.installed())
        self.assertNotIn("default-jre-headless", self.installed())

    def test_any_alternative_that_is_installed_will_do(self):
        done = self.setup("cluster", installed="zookeeper default-jre-headless")
        self.assertEqual((done.returncode, done.stderr, self.installed()), (0, "", []))

    def test_says_what_the_release_lacks_and_installs_the_rest(self):
        names = "openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless"
        done = self.setup("cluster", lacks=names)
        self.assertEqual(done.returncode, 0)
        self.assertIn("tried on Debian 12 and 13", done.stderr)
        self.assertTrue(done.stderr.endswith(": " + names.replace(" ", "|") + "\n"), done.stderr)
        self.assertEqual(self.installed()[-1], "zookeeper")

    def test_without_apt_it_names_all_packages_in_one_line(self):
        (self.bin / "apt-get").unlink()
        done = self.setup("build")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"\Asetup: tried on Debian 12 and 13; .* gcc libc6-dev .*\n\Z")

    def test_an_apt_that_fails_ends_it(self):
        done = self.setup("cluster", update="100")
        self.assertEqual(done.returncode, 1)
        self.assertIn("apt-get failed", done.stderr)

    def test_each_group_of_its_usage_is_known(self):
        usage = self.setup("--help").stdout
        groups = re.search(r"\[([a-z|]+)\]", usage)[1].split("|")
        self.assertGreater(len(groups), 8)
        for group in groups:
            with self.subTest(group=group):
                self.assertEqual(self.setup(group).returncode, 0)
        done = self.setup("nothing")
        self.assertEqual(done.returncode, 2)


unittest.main()
