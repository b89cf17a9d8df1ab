"""Exceptions: one for each status, with the library's text."""
import pathlib
import re

import pytest

import millrace
from millrace._base.library import lib, text
from millrace.errors import check, error_of


def test_every_status_has_an_exception():
    for status in range(1, lib.MR_STATUS_COUNT):
        error = error_of(status)
        assert isinstance(error, millrace.Error) and isinstance(error, RuntimeError)
        assert error.status == text(lib.mr_status_name(status))
        assert str(error) == text(lib.mr_status_text(status))
        assert getattr(millrace, type(error).__name__) is type(error)


def test_python_s_own_exceptions_catch_them():
    for status, base in (
        (lib.MR_DEADLINE_EXCEEDED, TimeoutError),
        (lib.MR_UNREACHABLE, ConnectionError),
        (lib.MR_UNKNOWN_TABLE, LookupError),
        (lib.MR_INVALID_ARGUMENT, ValueError),
        (lib.MR_OUT_OF_MEMORY, MemoryError),
        (lib.MR_WRONG_DTYPE, TypeError),
    ):
        with pytest.raises(base):
            raise error_of(status)


def test_check_lets_ok_pass():
    check(lib.MR_OK)


def test_a_status_of_a_later_version_is_an_error():
    assert type(error_of(lib.MR_STATUS_COUNT + 7)) is millrace.Error


def test_type_checkers_see_the_same_classes():
    stub = pathlib.Path(__file__).parents[2] / "trainer_client/python/millrace/errors.pyi"
    written = dict(re.findall(r"^class (\w+)\((.*)\)", stub.read_text(encoding="utf-8"), flags=re.M))
    for name in millrace.errors.__all__:
        kind = getattr(millrace, name)
        assert written.pop(name) == ", ".join(base.__name__ for base in kind.__bases__), name
    assert not written


def test_what_a_worker_says_gives_a_terminal_no_commands():
    from millrace.rpc._errors import RemoteError, raise_remote

    with pytest.raises(RemoteError) as caught:
        raise_remote(("no.module", "Kind", 'Zürich "x"\n\tline 2\033]0;x\a\x9b\u202e\udc80\r'))
    assert str(caught.value) == (
        'Zürich "x"\n\tline 2\\x1b]0;x\\x07\\xc2\\x9b\\xe2\\x80\\xae\\xed\\xb2\\x80\\x0d'
    )
    with pytest.raises(ValueError, match=r"\\x1b\[2J"):
        raise_remote(("builtins", "ValueError", "\033[2J"))


def test_what_a_caller_says_gives_the_callee_s_terminal_no_commands(capsys):
    from millrace.rpc import _serve

    _serve._log(("builtins", "ValueError", "Traceback:\n\tValueError: \033[2Jhere"))
    assert capsys.readouterr().err == "Traceback:\n\tValueError: \\x1b[2Jhere\n"
