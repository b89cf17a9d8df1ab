"""scripts/static_names.py finds statics by their definitions, and knows which names libraries have."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))
import static_names  # pylint: disable=wrong-import-position

SOURCE = """
static int send(void *arg, int (*stop)(void));
static const char *const names[2] = {"read", "write"};
static char buffer[2 * SIZE], error[256];
static __attribute__((noinline)) void wait(void)
{
    static int clock;
    pause();
}
static struct link {
    int time;
} poll = {.time = 1};
struct shared {
    int index;
};
extern int times;
TEST(open, set_up, tear_down)
"""


class StaticNames(unittest.TestCase):
    def test_definitions(self):
        found = list(static_names.statics(SOURCE))
        variables = [(3, "names"), (4, "buffer"), (4, "error"), (12, "poll")]
        functions = [(2, "send"), (5, "wait"), (17, "open")]
        expected = [(*place, False) for place in variables] + [(*place, True) for place in functions]
        self.assertEqual(found, sorted(expected))

    def test_names_of_libraries(self):
        names = static_names.library_names()
        self.assertLessEqual({"send", "times", "floor", "compress", "stop"}, names)
        self.assertNotIn("step", names)  # only old programs link with it


unittest.main()
