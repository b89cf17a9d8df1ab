"""Finds the places of a C source that can be broken, and breaks them.

A fault is one small change inside a function: a negated condition, a dropped call, a bound off by one, two
arguments swapped, an
assignment removed. Faults that no test could or should notice are left out: in assertions, log lines, hints
to the processor and marks for sanitizers.
"""
from __future__ import annotations

import re
from dataclasses import dataclass

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      | (?P<name>[A-Za-z_]\w*)
      | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
      | (?P<sign>->|\+\+|--|<<=|>>=|\.\.\.|[-+*/%&|^=!<>]=|<<|>>|&&|\|\||[-+*/%&|^=!<>~?:;,.(){}\[\]])""",
    re.VERBOSE | re.DOTALL,
)

KEYWORDS = {
    "if",
    "for",
    "while",
    "switch",
    "return",
    "sizeof",
    "do",
    "else",
    "case",
    "goto",
    "break",
    "continue",
    "default",
    "_Alignof",
    "typeof",
    "__typeof__",
    "static_assert",
    "_Static_assert",
}
# Calls that change nothing a test could see.
SILENT = re.compile(
    r"(.*_)?(log|log_(error|warning|info|debug|with)|logf|prefetch\w*)$|assert\w*$|"
    r"__builtin_(prefetch|assume\w*|unreachable|ia32_pause)$|"
    r"rte_(pause|prefetch\d?|panic)$|(mr_)?(asan|tsan)_\w*|(f|s|sn)?printf$|perror$|memset_explicit$|"
    r"sodium_memzero$|madvise$|"
    r"pthread_setname_np$|pthread_(mutex|cond)_destroy$|PS_SCRUB\w*$"
)
COMMUTES = re.compile(r"(calloc|(.*_)?(min|max|minimum|maximum|MIN|MAX)(_u?\d+)?|__builtin_expect)$")
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
OFF_BY_ONE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
OPERAND_ENDS = ASSIGNMENTS | {",", ";", "?", ":", "&&", "||", "return", "<", "<=", ">", ">=", "==", "!=", ""}
NEGATED = {"==": "!=", "!=": "==", "&&": "||", "||": "&&"}


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Fault:
    path: str
    function: str
    kind: str
    line: int
    start: int
    end: int
    before: str
    after: str
    nth: int  # among those of this function that read the same

    @property
    def name(self) -> str:
        """Stays the same when other lines of the file come and go."""
        was, now = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.path}:{self.function}:{self.kind}:{was} -> {now or 'nothing'}" + (
            f" #{self.nth}" if self.nth else ""
        )

    def apply(self, source: str) -> str:
        lines = self.before.count("\n") - self.after.count("\n")  # so that those below keep their numbers
        return source[: self.start] + self.after + "\n" * lines + source[self.end :]


def tokens_of(source: str) -> list[Token]:
    # Directives become blanks of the same length, so that places stay what they are.
    source = re.sub(r"(?m)^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda m: re.sub(r"[^\n]", " ", m.group()), source)
    found, at = [], 0
    while at < len(source):
        match = TOKEN.match(source, at)
        if not match:
            raise ValueError(f"no C at byte {at}: {source[at:at + 20]!r}")
        if match.lastgroup != "skip":
            found.append(Token(match.lastgroup or "", match.group(), match.start(), match.end()))
        at = match.end()
    return found


class Finder:
    def __init__(self, path: str, source: str) -> None:
        self.path, self.source, self.tokens = path, source, tokens_of(source)
        self.pair = self.pairs()
        self.found: list[Fault] = []
        self.function = ""
        self.seen: dict[tuple[str, str, str, str], int] = {}

    def pairs(self) -> dict[int, int]:
        pair, open_ones = {}, []
        for i, token in enumerate(self.tokens):
            if token.text in "([{" and token.kind == "sign":
                open_ones.append(i)
            elif token.text in ")]}" and token.kind == "sign":
                first = open_ones.pop()
                pair[first], pair[i] = i, first
        return pair

    def text(self, i: int) -> str:
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def between(self, first: int, last: int) -> str:
        """The source from one token to another, both included."""
        return self.source[self.tokens[first].start : self.tokens[last].end]

    def add(self, kind: str, first: int, last: int, after: str) -> None:
        before = self.between(first, last)
        key = (self.function, kind, before, after)
        nth = self.seen.get(key, 0)
        self.seen[key] = nth + 1
        start = self.tokens[first].start
        self.found.append(
            Fault(
                self.path,
                self.function,
                kind,
                self.source.count("\n", 0, start) + 1,
                start,
                self.tokens[last].end,
                before,
                after,
                nth,
            )
        )

    def all(self) -> list[Fault]:
        for first, last, name in self.bodies():
            self.function = name
            self.body(first, last)
        return self.found

    def bodies(self) -> list[tuple[int, int, str]]:
        """Functions: an outermost brace behind a closing parenthesis, and the name before its opening one."""
        found, i = [], 0
        while i < len(self.tokens):
            if self.text(i) == "{":
                end = self.pair[i]
                if self.text(i - 1) == ")" and self.tokens[self.pair[i - 1] - 1].kind == "name":
                    found.append((i, end, self.text(self.pair[i - 1] - 1)))
                i = end
            i += 1
        return found

    def body(self, first: int, last: int) -> None:
        i = first + 1
        while i < last:
            token, following = self.tokens[i], self.text(i + 1)
            if (
                token.kind == "name"
                and following == "("
                and (SILENT.match(token.text) or token.text.startswith("static_"))
            ):
                i = self.pair[i + 1] + 1
                continue
            if self.starts_statement(i):
                self.statement(i)
            if token.text == "if" and following == "(":
                self.condition(i + 1)
            elif token.kind == "name" and following == "(" and token.text not in KEYWORDS:
                self.arguments(i)
            elif token.kind == "sign":
                self.operator(i)
            i += 1

    def starts_statement(self, i: int) -> bool:
        before = self.text(i - 1)
        if before == ")":  # of if, for or while
            return self.text(self.pair[i - 1] - 1) in ("if", "for", "while")
        return before in (";", "{", "}", "else", "do", ":") and not self.in_for_head(i)

    def in_for_head(self, i: int) -> bool:
        j = i - 1
        while j >= 0 and self.text(j) not in "{}":
            if self.text(j) in ")]":
                j = self.pair[j]
            elif self.text(j) == "(":
                return True
            j -= 1
        return False

    def statement(self, i: int) -> None:
        end, assignment, names_in_a_row = i, -1, False
        while self.text(end) != ";":
            if self.text(end) in "{}" or (
                self.tokens[end].kind == "name" and self.text(end) in KEYWORDS - {"sizeof"}
            ):
                return
            if assignment < 0:
                if self.tokens[end].kind == "sign" and self.text(end) in ASSIGNMENTS:
                    assignment = end
                elif (
                    end > i
                    and self.tokens[end].kind == "name"
                    and (
                        self.tokens[end - 1].kind == "name"
                        or (self.text(end - 1) == "*" and self.tokens[i].kind == "name")
                    )
                ):
                    names_in_a_row = True  # a declaration
            end = self.pair[end] if self.text(end) in ("(", "[") else end
            end += 1
            if end >= len(self.tokens):
                return
        start = i
        if self.text(i) == "(" and self.text(i + 1) == "void" and self.text(i + 2) == ")":
            start = i + 3
        if assignment > i and not names_in_a_row:
            self.add("assignment removed", i, end, ";")
        elif self.text(end - 1) in ("++", "--") or self.text(i) in ("++", "--"):
            self.add("assignment removed", i, end, ";")
        elif (
            assignment < 0
            and self.tokens[start].kind == "name"
            and self.text(end - 1) == ")"
            and self.called(start, self.pair[end - 1])
        ):
            self.add("call dropped", i, end, ";")

    def called(self, start: int, parenthesis: int) -> bool:
        """A call's name, up to its opening parenthesis: a, a.b or a->b."""
        names = [self.text(j) for j in range(start, parenthesis)]
        return (
            bool(names)
            and all(
                name in (".", "->") or self.tokens[start + n].kind == "name" for n, name in enumerate(names)
            )
            and not any(SILENT.match(name) for name in names)
            and not (len(names) > 1 and all(name not in (".", "->") for name in names))
        )

    def condition(self, parenthesis: int) -> None:
        end = self.pair[parenthesis]
        self.add("condition negated", parenthesis, end, f"(!({self.between(parenthesis + 1, end - 1)}))")

    def operator(self, i: int) -> None:
        text = self.text(i)
        if text in OFF_BY_ONE and not self.bounds(i):
            self.add("off by one", i, i, OFF_BY_ONE[text])
        elif text in NEGATED:
            self.add("condition negated", i, i, NEGATED[text])
        elif (
            text in "+-"
            and re.fullmatch(r"1[uUlL]*", self.text(i + 1))
            and (self.tokens[i - 1].kind in ("name", "number") or self.text(i - 1) in ")]")
            and self.text(i - 1) not in KEYWORDS
        ):
            self.add("off by one", i, i + 1, "")

    def bounds(self, i: int) -> bool:
        """a < b ? a : b, and if (a < b) a = b: where both are equal, either will do."""
        first, last = self.operand_begin(i - 1), self.operand_end(i + 1)
        both = {self.plain(first, i - 1), self.plain(i + 1, last)}
        if self.text(last + 1) == "?":
            middle = ":"
        elif self.text(last + 1) == ")" and self.text(first - 2) == "if" and self.pair[last + 1] == first - 1:
            middle = "="
        else:
            return False
        then = self.operand_end(last + 2)
        return (
            self.text(then + 1) == middle
            and {self.plain(last + 2, then), self.plain(then + 2, self.operand_end(then + 2))} == both
        )

    def operand_begin(self, i: int) -> int:
        while True:
            i = self.pair[i] if self.text(i) in (")", "]") else i
            if self.text(i - 1) in OPERAND_ENDS or self.text(i - 1) in ("(", "[", "{", "}"):
                return i
            i -= 1

    def operand_end(self, i: int) -> int:
        while True:
            i = self.pair[i] if self.text(i) in ("(", "[") else i
            if self.text(i + 1) in OPERAND_ENDS or self.text(i + 1) in (")", "]", "{", "}"):
                return i
            i += 1

    def plain(self, first: int, last: int) -> str:
        return "".join(self.text(i) for i in range(first, last + 1))

    def arguments(self, i: int) -> None:
        if COMMUTES.match(self.text(i)):
            return
        parts, start, j = [], i + 2, i + 2
        end = self.pair[i + 1]
        while j <= end:
            if self.text(j) in ("(", "[", "{"):
                j = self.pair[j]
            elif self.text(j) == "," or j == end:
                if start < j:
                    parts.append((start, j - 1))
                start = j + 1
            j += 1
        for (a, b), (c, d) in zip(parts, parts[1:]):
            left, right = self.between(a, b), self.between(c, d)
            if left.split() != right.split():
                middle = self.source[self.tokens[b].end : self.tokens[c].start]
                self.add("arguments swapped", a, d, right + middle + left)


def faults_of(path: str, source: str) -> list[Fault]:
    return Finder(path, source).all()
