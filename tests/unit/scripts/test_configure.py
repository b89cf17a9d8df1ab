"""scripts/configure.sh makes a build directory once, and again after meson was interrupted at any step."""
import json
import pathlib
import subprocess
import tempfile
import unittest

CONFIGURE = pathlib.Path(__file__).resolve().parents[3] / "scripts/configure.sh"


class Configure(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.tree = pathlib.Path(place.name)
        (self.tree / "meson.build").write_text("project('p')\n", encoding="utf-8")
        self.ninja_file = self.tree / "build/build.ninja"

    def configure(self, *arguments):
        return subprocess.run(
            [CONFIGURE, *arguments], cwd=self.tree, capture_output=True, text=True, check=False
        )

    def option(self, name):
        text = (self.tree / "build/meson-info/intro-buildoptions.json").read_text(encoding="utf-8")
        return next(option["value"] for option in json.loads(text) if option["name"] == name)

    def assert_configured(self, done):
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertTrue(self.ninja_file.exists())

    def test_a_directory_is_made(self):
        self.assert_configured(self.configure("build", "--buildtype=release"))
        self.assertEqual(self.option("buildtype"), "release")

    def test_options_of_a_directory_that_is_there_stay_unless_they_are_updated(self):
        self.assert_configured(self.configure("build", "--buildtype=release"))
        self.assert_configured(self.configure("build", "--buildtype=debug"))
        self.assertEqual(self.option("buildtype"), "release")
        self.assert_configured(self.configure("--update", "build", "--buildtype=debug"))
        self.assertEqual(self.option("buildtype"), "debug")

    def test_an_interrupted_meson_is_repeated(self):
        self.assert_configured(self.configure("build"))
        self.ninja_file.unlink()  # written last, after meson's own state
        self.assert_configured(self.configure("build"))
        for file in (self.tree / "build/meson-private").iterdir():
            file.unlink()
        self.ninja_file.unlink()
        self.assert_configured(self.configure("build"))

    def test_what_fails_is_said(self):
        (self.tree / "meson.build").write_text("project('p')\nerror('no such library')\n", encoding="utf-8")
        done = self.configure("build")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such library", done.stderr)
        self.assertIn("build/configure.log has all it said", done.stderr)


if __name__ == "__main__":
    unittest.main()
