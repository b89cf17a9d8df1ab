"""Modules whose results and gradients are in a device's memory: a fake one, as machines that test have
none."""
import numpy as np
import pytest

import millrace

torch = pytest.importorskip("torch")
import fake_device  # noqa: E402
from test_torch_idioms import DIM, KEYS, LR, Model, batch, check_same  # noqa: E402

if not fake_device.register():
    pytest.skip("devices in Python need a newer torch", allow_module_level=True)


@pytest.mark.parametrize("how", ["step", "backward", "frequencies"])
def test_rows_on_a_device(client, name, how):
    """Results and gradients are there. A gradient's copy is waited for once the pass is over."""
    by_frequency = {"scale_grad_by_freq": how == "frequencies"}
    bag = millrace.EmbeddingBag(
        client, name, dim=DIM, mode="sum", optimizer=millrace.optim.SGD(lr=LR), **by_frequency
    )
    weight = torch.from_numpy(bag.table.lookup(np.arange(KEYS)))
    ours = Model(bag)
    theirs = Model(torch.nn.EmbeddingBag(KEYS, DIM, mode="sum", _weight=weight, **by_frequency))
    theirs.dense.load_state_dict(ours.dense.state_dict())
    ours.to(fake_device.NAME)
    keys = batch(1)[0]
    out = ours.bag(keys.to(fake_device.NAME))
    assert out.device.type == fake_device.NAME and out.grad_fn is not None
    waits = len(fake_device.waits)
    for model, place in ((ours, fake_device.NAME), (theirs, "cpu")):
        parameters = model.dense.parameters() if how == "backward" and model is ours else model.parameters()
        optimizer = torch.optim.SGD(parameters, lr=LR)
        for step in range(2):
            optimizer.zero_grad()
            keys, factors = batch(step)
            first, second = model(keys.to(place)), model(keys.flip(0).to(place))
            ((first + second) * factors.to(place)).sum().backward()
            optimizer.step()
    assert fake_device.waits[waits:] == [1, 2] * 2  # the second began before the first was waited for
    ours.to("cpu")
    check_same(ours, theirs)
