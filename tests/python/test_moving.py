"""Our snippets in docs/moving/ run as they stand, on a real node; those of a page one after the other."""
import os
import pathlib
import re

import pytest

PAGES = sorted(pathlib.Path(os.environ["MILLRACE_DOCS"], "moving").glob("*.md"))


@pytest.fixture(scope="module")
def address(client):
    return client.server


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.parametrize("node", [2], indirect=True)
def test_the_snippets_run(page, address, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    assert blocks or page.stem == "README"
    if any("import torch" in block for block in blocks):
        pytest.importorskip("torch")
    names: dict = {}
    for block in blocks:
        assert "10.0.0.1:7700" in block or "client" in names
        exec(compile(block.replace("10.0.0.1:7700", address), str(page), "exec"), names)
    if names:
        names["client"].close()


def test_every_page_is_listed():
    listed = (PAGES[0].parent / "README.md").read_text(encoding="utf-8")
    assert len(PAGES) >= 7
    assert all(f"({page.name})" in listed for page in PAGES if page.stem != "README")
