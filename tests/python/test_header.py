"""Nothing of the library is out of Python's reach: each function of the public headers is called somewhere
in the package."""
import pathlib
import re

import millrace
from millrace._base.library import lib

HEADERS = sorted((pathlib.Path(__file__).parents[2] / "trainer_client").glob("millrace*.h"))
PACKAGE = pathlib.Path(millrace.__file__).parent


def functions(header):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", header, flags=re.S)
    return set(re.findall(r"MR_API[^;{]*?\b(mr_\w+)\s*\(", text))


def test_every_function_of_the_header_is_called():
    header = "".join(path.read_text(encoding="utf-8") for path in HEADERS)
    called = set()
    for source in PACKAGE.rglob("*.py"):
        if source.name != "_abi.py":
            called |= set(re.findall(r"\blib\.(mr_\w+)", source.read_text(encoding="utf-8")))
    declared = functions(header)
    assert len(declared) > 40 and all(hasattr(lib, name) for name in declared)
    assert declared - called == set()


def test_every_option_of_calls_and_clients_can_be_given():
    from millrace._base.options import CallOptions, Slot
    from millrace._base.library import ffi

    ours = {
        name.replace("_s", "_ms") if name.endswith("_s") else name for name in CallOptions.__annotations__
    }
    assert {name for name, _ in ffi.typeof("struct mr_options").fields} == ours | {
        "has_learning_rate",
        "future",
        "plan",
    }  # what hubs give
    slot = Slot()
    slot.set(
        {
            "deadline_s": 1.5,
            "priority": 7,
            "step": 2**64 - 1,
            "learning_rate": 0.5,
            "wire_dtype": "i8",
            "more": True,
        }
    )
    given = slot.options
    assert (
        given.deadline_ms,
        given.priority,
        given.step,
        given.learning_rate,
        given.wire_dtype,
        given.more,
    ) == (1500, 7, 2**64 - 1, 0.5, lib.MR_I8, True)
    assert given.has_learning_rate
    slot.clear()
    slot.set({"learning_rate": 0})
    assert given.has_learning_rate and given.learning_rate == 0
    slot.clear()
    assert not any(
        getattr(given, name)
        for name, _ in ffi.typeof("struct mr_options").fields
        if name not in ("future", "plan")
    )
    # Of a client: every field of the struct is named where Connection fills it in.
    source = (PACKAGE / "_base/connection.py").read_text(encoding="utf-8")
    for name, _ in ffi.typeof("struct mr_client_options").fields:
        assert f'"{name}"' in source, name
