"""The manual pages say what the programs say: options with their values, commands, keys of the configuration,
functions."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from man_page import ManPage

SOURCE = Path(os.environ["MILLRACE_SOURCE"])
BUILD = Path(os.environ["MILLRACE_BUILD"])
PAGES = {page.name: page for page in map(ManPage, sorted((SOURCE / "docs/man").glob("*.[1-9]")))}
OPTION = re.compile(r"^ +--([a-z0-9-]+)(?: (\S+))?(?:, --([a-z0-9-]+))?(?: .*)?$", re.M)


def output(program: str, *arguments: str) -> str:
    return subprocess.run([BUILD / program, *arguments], check=True, capture_output=True, text=True).stdout


def help_options(text: str) -> dict[str, str]:
    """{"server": "HOST:PORT", "json": ""}, from the lines that begin with an option."""
    options = {}
    for name, value, second in OPTION.findall(text):
        options[name] = value.rstrip(",") if value != "--" else ""
        if second:
            options[second] = ""
    return options


def commands(*program: str) -> list[str]:
    return re.findall(r"^  ([a-z][a-z-]*) {2,}\S", output("tools/millrace", *program, "--help"), re.M)


SUBCOMMANDS = [(tool, command) for tool in ("ctl", "ckpt", "perf") for command in commands(tool)]


def section_options(page: ManPage, title: str) -> dict[str, str]:
    """Options of a section, and of those that it names, on its own page or on one that it names too."""
    section = page.section(title)
    options = section.options()
    for reference in section.references():
        homes = [PAGES[name] for name in [page.name, *section.pages()] if name in PAGES]
        home = next(home for home in homes if any(other.title == reference for other in home.sections))
        options |= section_options(home, reference)
    return options


@pytest.mark.parametrize(
    "name, program, arguments",
    [
        ("millraced", "ps/millraced", []),
        ("millrace-hub", "trainer_client/hub/millrace-hub", []),
        ("millrace", "tools/millrace", []),
        ("millrace-top", "tools/millrace", ["top"]),
        ("millrace-dev", "tools/millrace", ["dev"]),
        ("millrace-doctor", "tools/millrace", ["doctor"]),
        ("millrace-bench", "tools/millrace", ["bench"]),
        ("millrace-capture", "tools/millrace", ["capture"]),
        ("millrace-timeline", "tools/millrace", ["timeline"]),
    ],
)
def test_options_of_a_program(name, program, arguments):
    assert PAGES[name].options() == help_options(output(program, *arguments, "--help"))


@pytest.mark.parametrize("tool, command", SUBCOMMANDS)
def test_options_of_a_subcommand(tool, command):
    page = PAGES[f"millrace-{tool}"]
    text = output("tools/millrace", tool, command, "--help")
    options = section_options(page, command)
    for shared in page.section("DESCRIPTION").references():
        options |= page.section(shared).options()
    assert options == help_options(text)
    synopsis = re.match(r"usage: (.*)", text)[1]
    assert synopsis.replace("--", r"\-\-") in page.section(command).lines[0]


@pytest.mark.parametrize(
    "program, arguments",
    [
        ("ps/millraced", []),
        ("trainer_client/hub/millrace-hub", []),
        *(
            ("tools/millrace", words)
            for words in (["top"], ["dev"], ["doctor"], ["bench"], ["capture"], ["timeline"], *SUBCOMMANDS)
        ),
    ],
)
def test_help_shows_an_example(program, arguments):
    name = " ".join([Path(program).name, *arguments])
    assert re.search(rf"^  {name}(?: |$)", output(program, *arguments, "--help"), re.M)


def test_names_that_options_take():
    page = PAGES["millrace-ctl"].section("FEATURE OPTIONS")
    text = output("tools/millrace", "ctl", "create", "--help")
    lists = re.findall(r"^ +--([a-z-]+) NAME +.*?((?:\w+ \(default\))(?:, \w+)+)", text, re.M)
    assert {"dtype", "init", "optimizer", "schedule", "pooling", "admission", "eviction"} == {
        name for name, _ in lists
    }
    for name, names in lists:
        assert names in page.option_text(name), name


def test_commands():
    tools = commands()
    assert tools == re.findall(r"^\.It Cm (\w+)$", PAGES["millrace"].source, re.M)
    assert [f"millrace-{tool}" in PAGES for tool in tools] == [True] * len(tools)
    for tool in ("ctl", "ckpt", "perf"):
        assert commands(tool) == PAGES[f"millrace-{tool}"].macros("Ss")


def every_option():
    texts = [output("ps/millraced", "--help"), output("trainer_client/hub/millrace-hub", "--help")]
    tools = ([], ["top"], ["dev"], ["doctor"], ["bench"], ["capture"], ["timeline"], *SUBCOMMANDS)
    texts += [output("tools/millrace", *words, "--help") for words in tools]
    return {name for text in texts for name in help_options(text)}


def test_no_page_names_an_option_that_is_none():
    known = every_option() | {"name", "cflags", "libs"}  # as in "--name value", and pkg-config's
    for page in PAGES.values():
        named = re.findall(r"(?:\\-\\-|\bFl -|(?<= )--)([a-z][a-z0-9-]*)", page.source)
        assert set(named) <= known, page.name


def print_config() -> dict[str, tuple[str, str]]:
    """{"port.vlan": ("0", "Allowed: a whole number from 0 to 4094.")}"""
    keys, section, comment = {}, "", []
    for line in output("ps/millraced", "--print-config").splitlines():
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
        elif match := re.fullmatch(r"#?(\w+) =(?: (.*))?", line):
            allowed = re.search(r"Allowed: .*", " ".join(comment))
            keys[f"{section}.{match[1]}"] = (match[2] or "", allowed[0] if allowed else "")
        comment = comment + [line[2:]] if line.startswith("# ") else []
    return keys


def test_keys_of_the_configuration():
    page = PAGES["millraced.conf"]
    documented = {}
    for section in page.sections:
        item = None
        for line in section.lines + [".El"]:
            if match := re.fullmatch(r"\.It Cm (\w+) =(?: (.*))?", line):
                item = f"{section.title}.{match[1]}"
                documented[item] = [match[2] or ""]
            elif line == ".El":
                item = None
            elif item:
                documented[item].append(line)
    found = {}
    for key, (default, *lines) in documented.items():
        allowed = re.search(r"Allowed: .*", " ".join(lines))
        found[key] = (default, allowed[0] if allowed else "")
        assert len(lines) > bool(allowed), f"{key} is not explained"
    assert found == print_config()


def test_functions_of_the_library_exist():
    library = BUILD / "trainer_client/libmillrace.so"
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    exported = {line.split()[-1] for line in symbols.splitlines()}
    named = {line.split()[0] for line in PAGES["libmillrace"].macros("Fn")}
    assert len(named) > 40
    assert named <= exported
    headers = [line.split()[0] for line in PAGES["libmillrace"].macros("In")]
    assert len(headers) > 1 and all(list(SOURCE.glob(f"*/**/{header}")) for header in headers)


def test_references_between_pages():
    for page in PAGES.values():
        for line in page.macros("Xr"):
            name, number = line.split()[:2]
            assert (SOURCE / f"docs/man/{name}.{number}").exists(), f"{page.name}: {name}({number})"
            assert name != page.name


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(
    "checker", [["groff", "-ww", "-mandoc", "-Tutf8", "-z"], ["mandoc", "-T", "lint", "-W", "warning"]]
)
def test_markup(name, checker):
    if not shutil.which(checker[0]):
        pytest.skip(f"{checker[0]} is not installed")
    done = subprocess.run([*checker, PAGES[name].path], capture_output=True, text=True, check=False)
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


def test_the_example_of_the_library_compiles(tmp_path):
    example = re.search(r"^\.Bd -literal.*?\n(.*?)^\.Ed", PAGES["libmillrace"].source, re.M | re.S)[1]
    source = tmp_path / "example.c"
    source.write_text(example.replace("\\e", "\\"), encoding="utf-8")
    directories = [
        f"-I{SOURCE / place}" for place in ("trainer_client", "dataplane/wire/format", "dataplane/rpc")
    ]
    command = [
        os.environ.get("MILLRACE_CC", "cc"),
        "-Wall",
        "-Wextra",
        "-Werror",
        *directories,
        "-c",
        source,
        "-o",
        tmp_path / "example.o",
    ]
    subprocess.run(command, check=True)
