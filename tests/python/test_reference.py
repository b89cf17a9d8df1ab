"""The reference in docs/python.md runs as it stands, on a real node."""
import os
import re


def test_the_reference_runs(new_node):
    with open(os.path.join(os.environ["MILLRACE_DOCS"], "python.md"), encoding="utf-8") as page:
        reference = re.search(r"^## Reference\n(.*?)(?=^## |\Z)", page.read(), re.M | re.S)[1]
    blocks = re.findall(r"^```python\n(.*?)^```$", reference, re.M | re.S)
    assert len(blocks) >= 4
    names: dict = {}
    address = new_node().address
    for block in blocks:
        exec(compile(block.replace("10.0.0.1:7700", address), "docs/python.md", "exec"), names)
    assert names["client"].closed
