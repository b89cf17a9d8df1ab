#!/usr/bin/env python3
"""The faults that are put into C sources: which places are found, what they become, and what is left
alone."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "scripts/mutation"))
from faults import faults_of  # noqa: E402 (found by the line above)


def found(body, head="int f(int a, int *p)"):
    """Kind -> set of (before, after) in a function of that body."""
    kinds = {}
    for fault in faults_of("x.c", f"#define MAX(a, b) ((a) < (b) ? (b) : (a))\n{head}\n{{\n{body}\n}}\n"):
        kinds.setdefault(fault.kind, set()).add((fault.before, fault.after))
    return kinds


class Faults(unittest.TestCase):
    def test_conditions(self):
        kinds = found("if (a && p) { return a == 1; }")
        self.assertEqual(
            kinds["condition negated"], {("(a && p)", "(!(a && p))"), ("&&", "||"), ("==", "!=")}
        )

    def test_bounds(self):
        kinds = found("for (int i = 0; i < a - 1; i++) { p[i + 1] = -1; }")
        self.assertEqual(kinds["off by one"], {("<", "<="), ("- 1", ""), ("+ 1", "")})

    def test_bounds_at_which_both_sides_are_equal(self):
        self.assertEqual(
            found(
                "x = a < *p ? a : *p; if (a > p[1]) a = p[1]; return f(a) <= (2 + a) ? (2 + a) : f(a);"
            ).get("off by one"),
            None,
        )
        kinds = found(
            "x = a < *p ? a : 0; if (a > p[1]) { g(); } if (a >= 7) x = a; if (a < b && c) a = b; return a < "
            "b ? b : c;"
        )
        self.assertEqual(sorted(kinds["off by one"]), [("<", "<="), (">", ">="), (">=", ">")])
        self.assertEqual(
            len(
                faults_of(
                    "x.c", "int f(void) { x = a < b ? a : 0; if (a < b && c) a = b; y = a < b ? b : a; }"
                )
            ),
            7,
        )

    def test_calls(self):
        kinds = found("g(a); (void)h(p); p->s.k(a); int x = g(a); return g(x);")
        self.assertEqual(
            {before for before, _ in kinds["call dropped"]}, {"g(a);", "(void)h(p);", "p->s.k(a);"}
        )

    def test_assignments(self):
        kinds = found(
            "int x = 1; struct s *q = 0; x = a; *p = x; p[a] += 2; x++; --a; q->n = 3; for (x = 0;;) { }"
        )
        self.assertEqual(
            {before for before, _ in kinds["assignment removed"]},
            {"x = a;", "*p = x;", "p[a] += 2;", "x++;", "--a;", "q->n = 3;"},
        )

    def test_arguments(self):
        kinds = found("g(a, p, h(1, 2)); same(a, a); mr_max(a, 1);")
        self.assertEqual(
            kinds["arguments swapped"], {("a, p", "p, a"), ("p, h(1, 2)", "h(1, 2), p"), ("1, 2", "2, 1")}
        )

    def test_what_nobody_could_see_is_left_alone(self):
        self.assertEqual(
            found(
                'assert(a > 0 && p); mr_log_info("a", "%d", a); __builtin_prefetch(p, 0); // a = 1;\n'
                "/* g(a); */"
            ),
            {},
        )

    def test_outside_functions_nothing(self):
        self.assertEqual(
            faults_of("x.c", "#if A > 1\nenum { B = 1 + 1 };\nstatic const int t[] = {1, 2};\n#endif\n"), []
        )

    def test_a_fault_keeps_its_name_and_the_lines_below_their_numbers(self):
        source = "void f(void)\n{\n    g(1,\n      2);\n    h();\n}\n"
        moved = "\n\n" + source
        faults, others = faults_of("x.c", source), faults_of("x.c", moved)
        self.assertEqual([fault.name for fault in faults], [fault.name for fault in others])
        self.assertEqual([fault.line + 2 for fault in faults], [fault.line for fault in others])
        for fault in faults:
            self.assertEqual(fault.apply(source).count("\n"), source.count("\n"))

    def test_equal_ones_of_a_function_have_names_of_their_own(self):
        names = [fault.name for fault in faults_of("x.c", "void f(void)\n{\n    g();\n    g();\n}\n")]
        self.assertEqual(len(names), 2)
        self.assertEqual(len(set(names)), 2)

    def test_the_whole_tree_can_be_read(self):
        root = Path(__file__).resolve().parents[4]
        for folder in ("dataplane/wire", "dataplane/rpc", "ps", "trainer_client"):
            for path in root.glob(f"{folder}/**/*.c"):
                with self.subTest(path=path):
                    faults_of(str(path), path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
