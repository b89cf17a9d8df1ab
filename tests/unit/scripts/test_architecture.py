"""docs/architecture.md, the pages life-of-*.md and the README.md of folders name folders, files and functions
that there are, and no others; each source says what it is; modules of the Python package import in one
direction."""
import ast
import graphlib
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
import files  # noqa: E402
import layers  # noqa: E402

TOPS = ("dataplane", "ps", "trainer_client", "tools")
README_LINES_MAX = 25
FIRST_WORDS_MIN = 2
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
LIVES = sorted((ROOT / "docs").glob("life-of-*.md"))
PACKAGE = "trainer_client/python/millrace"
SOURCES = sorted(
    path.relative_to(ROOT)
    for top, kind in [*((top, "*.[ch]") for top in TOPS), (PACKAGE, "*.py")]
    for path in (ROOT / top).rglob(kind)
    if path.name != "__init__.py"
)
FOLDERS = sorted({str(path.parent) for path in SOURCES})
READMES = [path for path in (ROOT / folder / "README.md" for folder in FOLDERS) if path.is_file()]


CALL_EACH_OTHER = "rpc"  # calls, references and the world that serves them


def imports(path: Path) -> list[Path]:
    """What a module of the package imports of it when it is imported, or later; not what types need only."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    of_types = {
        each
        for node in nodes
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for each in ast.walk(node)
    }
    found = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level > 0 and node not in of_types:
            base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            found += [base / alias.name for alias in node.names] + [base]
    return [module for module in (base.with_suffix(".py") for base in found) if module.is_file()]


def tree() -> list[str]:
    """The folders of the page's tree, in its order. A line is a folder's own name, a step further in than the
    folder it is in."""
    block = re.search(r"^```\n(dataplane/.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    paths: list[str] = []
    way: list[str] = []
    for line in block.group(1).splitlines() if block else []:
        depth = (len(line) - len(line.lstrip())) // 2
        way[depth:] = [line.split()[0].rstrip("/")]
        paths.append("/".join(way))
    return paths


def named_in_tables() -> list[str]:
    """Paths with a folder count from the root; names without one, in a row whose second cell is a folder,
    from that."""
    paths: list[str] = []
    for row in (line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")):
        folder = re.fullmatch(r"`([\w/.-]+/)`", row[1])
        paths += re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", " ".join(row))
        paths += (
            [folder.group(1) + name for name in re.findall(r"`([\w.-]+)`", " ".join(row[2:]))]
            if folder
            else []
        )
    return paths


def files_named(text: str) -> set[str]:
    return set(re.findall(r"`((?:[\w.-]+/)*[\w-]+\.(?:c|h|py|def|list|map))`", text))


class Page(unittest.TestCase):
    def test_what_the_tables_name_is_there(self) -> None:
        paths = named_in_tables()
        self.assertGreater(
            len(paths), 80
        )  # 40 rows with a folder and a file each: the tables were found at all
        self.assertEqual([path for path in paths if not (ROOT / path).exists()], [])

    def test_what_the_tree_names_is_there(self) -> None:
        self.assertEqual([path for path in tree() if not (ROOT / path).is_dir()], [])

    def test_the_tree_has_every_folder_of_sources(self) -> None:
        self.assertEqual([folder for folder in FOLDERS if folder not in tree()], [])

    def test_the_tree_goes_from_the_ground_up(self) -> None:
        """As lint has it: scripts/layers.py. A folder there that holds others of its list stands before them
        in a tree."""
        for top, order in layers.ORDERS.items():
            paths = [f"{top}/{folder}" if top else folder for folder in order]
            paths = [path for path in paths if not any(other.startswith(path + "/") for other in paths)]
            self.assertEqual([path for path in tree() if path in paths], paths)


def steps(page: str) -> list[tuple[list[str], str, str]]:
    """Of each row of a page's tables: the functions in it, their file, and the thread: "" without one."""
    found: list[tuple[list[str], str, str]] = []
    head: list[str] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if not line.startswith("|"):
            head = []
        elif not head:
            head = cells
        elif "function" in head and not line.startswith("|-"):
            row = dict(zip(head, cells))
            thread = row.get("thread", row.get("node, thread", "")).split(", ")[-1]
            found.append((re.findall(r"`(\w+)`", row["function"]), row["file"].strip("`"), thread))
    return found


class Lives(unittest.TestCase):
    """The pages life-of-*.md: a function that was moved or renamed is moved or renamed there, too."""

    def test_functions_are_in_the_files_that_the_pages_name(self) -> None:
        wrong: list[str] = []
        for page in LIVES:
            found = steps(page.read_text(encoding="utf-8"))
            self.assertGreater(len(found), 20, page.name)  # the tables were found at all
            for functions, name, _ in found:
                path = ROOT / name
                text = path.read_text(encoding="utf-8") if path.is_file() else ""
                for function in functions:
                    if re.search(rf"^\S.*\b{function}\(", text, re.MULTILINE) is None:
                        wrong.append(f"{page.name}: {name} has no {function}()")
        self.assertEqual(wrong, [])

    def test_threads_are_those_of_the_table(self) -> None:
        table = re.search(r"^\| thread \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
        assert table is not None
        cells = re.findall(r"^\| (?:client: |hub: )?([\w ,]+?) \|", table.group(0), re.MULTILINE)
        known = {name for cell in cells for name in cell.split(", ")}
        used = {thread for page in LIVES for _, _, thread in steps(page.read_text(encoding="utf-8"))}
        self.assertEqual(used - known - {""}, set())


class FirstLines(unittest.TestCase):
    def test_every_source_says_what_it_is(self) -> None:
        """In its first lines, or its header does: scripts/files.py prints them, folder by folder."""
        silent = [
            f"{folder}/{name}"
            for folder in FOLDERS
            for name, text in files.entries(ROOT / folder)
            if len(text.split()) < FIRST_WORDS_MIN
        ]
        self.assertEqual(silent, [])


class Imports(unittest.TestCase):
    def test_modules_of_the_package_import_in_one_direction(self) -> None:
        modules = [path for path in (ROOT / PACKAGE).rglob("*.py") if path.parent.name != CALL_EACH_OTHER]
        self.assertIn(ROOT / PACKAGE / "_nn/pushes.py", imports(ROOT / PACKAGE / "_nn/anchor.py"))
        graphlib.TopologicalSorter({path: imports(path) for path in modules}).prepare()  # or CycleError


class Readmes(unittest.TestCase):
    """A folder may have one, for what its files do not say: scripts/files.py lists these."""

    def test_they_are_short(self) -> None:
        for readme in READMES:
            with self.subTest(readme=readme):
                lines = readme.read_text(encoding="utf-8").splitlines()
                self.assertLessEqual(len(lines), README_LINES_MAX)

    def test_none_names_a_file_that_is_not_there(self) -> None:
        """A name with a folder counts from the root, one without from the README's own folder."""
        self.assertGreater(len(READMES), 20)
        for readme in READMES:
            with self.subTest(readme=readme):
                named = files_named(readme.read_text(encoding="utf-8"))
                places = {name: (ROOT if "/" in name else readme.parent) / name for name in named}
                self.assertEqual([name for name, place in places.items() if not place.is_file()], [])


if __name__ == "__main__":
    unittest.main()
