"""docs/torch-names.md has every name of the torch that is installed, with what became of it here."""
import pathlib
import sys

import pytest

pytest.importorskip("torch")

SOURCE = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(SOURCE / "scripts"))

import torch_names  # noqa: E402

PAGE = (SOURCE / "docs/torch-names.md").read_text(encoding="utf-8")


def test_the_page_has_every_name():
    assert torch_names.missing_lines(PAGE) == []


def test_a_page_that_lacks_names_is_told():
    missing = torch_names.missing_lines(PAGE.replace("| `rpc_sync` |", "| `rpc_sink` |"))
    assert missing == ["| `rpc_sync` | `millrace.rpc.rpc_sync` |"]


def test_names_of_other_versions_stay():
    other = PAGE.replace("| `rpc_sync` |", "| `rpc_shed` | as in torch |\n| `rpc_sync` |", 1)
    assert sorted(torch_names.page(other).splitlines()) == sorted(other.splitlines())


def test_a_name_without_a_reason_is_told(monkeypatch):
    reasons = torch_names.REASONS["torch.distributed.rpc"]
    name = next(name for name in torch_names.names_of("torch.distributed.rpc") if name in reasons)
    monkeypatch.delitem(reasons, name)
    with pytest.raises(SystemExit, match=f"{name} is neither in millrace.rpc nor explained"):
        torch_names.page()
