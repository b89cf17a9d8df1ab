"""A manual page in mdoc, as far as the tests look into it."""
import re
from pathlib import Path


class Section:
    def __init__(self, title: str):
        self.title = title
        self.lines: list[str] = []

    def options(self) -> dict[str, str]:
        """Names of the options that are explained here, each with what stands for its value: {"server":
        "HOST:PORT"}."""
        items = [re.fullmatch(r"\.It Fl -([a-z0-9-]+)(?: Ar (\S+))?", line) for line in self.lines]
        return {item[1]: item[2] or "" for item in items if item}

    def option_text(self, name: str) -> str:
        """What is said of an option, in one line."""
        start = next(i for i, line in enumerate(self.lines) if re.match(rf"\.It Fl -{name}( |$)", line))
        lines = self.lines[start + 1 :]
        end = next(i for i, line in enumerate(lines) if line.startswith((".It ", ".El")))
        return " ".join(lines[:end])

    def references(self) -> list[str]:
        return [match[1] for line in self.lines if (match := re.fullmatch(r"\.Sx (.*?)(?: [.,;:])?", line))]

    def pages(self) -> list[str]:
        return [match[1] for line in self.lines if (match := re.match(r"\.Xr (\S+) \d", line))]

    def text(self) -> str:
        """Words without macros, in one line."""
        words = " ".join(line for line in self.lines if not line.startswith("."))
        return " ".join(words.replace("\\&", "").replace("\\-", "-").split())


class ManPage:
    def __init__(self, path: Path):
        self.path = path
        self.name = path.name.rsplit(".", 1)[0]
        self.source = path.read_text(encoding="utf-8")
        self.sections = [Section("")]
        for line in self.source.splitlines():
            title = re.match(r"\.S[hs] (.*)", line)
            if title:
                self.sections.append(Section(title[1]))
            else:
                self.sections[-1].lines.append(line)

    def section(self, title: str) -> Section:
        found = [section for section in self.sections if section.title == title]
        assert len(found) == 1, f"{self.path.name}: {len(found)} sections {title}"
        return found[0]

    def options(self) -> dict[str, str]:
        """Of the whole page."""
        return {name: value for section in self.sections for name, value in section.options().items()}

    def macros(self, name: str) -> list[str]:
        """Arguments of each line with this macro."""
        return re.findall(rf"^\.{name} (.*)$", self.source, re.M)
