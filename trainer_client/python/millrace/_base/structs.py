"""The library's structs as dataclasses, field by field."""
from __future__ import annotations

import dataclasses
from typing import Any, Type, TypeVar

from .library import ffi, text

_T = TypeVar("_T")


def of_struct(kind: Type[_T], struct: Any, /, **given: Any) -> _T:
    """The dataclass with the fields of the struct that it names, but for those that are given. Strings become
    str, bools bool."""
    values = dict(given)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name not in values:
            value = getattr(struct, field.name)
            values[field.name] = text(value) if isinstance(value, ffi.CData) else value
    return kind(**values)


def string(value: Any) -> Any:
    """A C string that lives as long as what is returned; NULL for None."""
    return ffi.NULL if value is None else ffi.new("char[]", str(value).encode())


def name_of(known: dict[str, int], number: int) -> str:
    """Of an enum's value; the number where a later version has more."""
    return next((name for name, value in known.items() if value == number), str(number))


def brief(self: Any) -> str:
    """A __repr__ of dataclasses: the fields that differ from their defaults."""
    shown = []
    for field in dataclasses.fields(self):
        value = getattr(self, field.name)
        made = field.default_factory
        default = field.default if made is dataclasses.MISSING else made()
        if value != default:
            shown.append(f"{field.name}={value!r}")
    return f"{type(self).__name__}({', '.join(shown)})"
