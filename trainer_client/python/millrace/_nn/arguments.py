"""What Embedding and EmbeddingBag have of torch's arguments and attributes beside their own: taken, or
refused with the reason and what to write instead."""
from __future__ import annotations

from typing import Any

import torch

REFUSED = {
    "num_embeddings": "rows are made as their keys come; leave it out, or limit them by capacity_rows=",
    "max_norm": "rows live at the server, where a lookup does not change them; bound them by the optimizer's "
    "weight_decay, their gradients by clip_norm=, or results by torch.nn.functional.normalize()",
    "_weight": "rows live at the server; millrace.EmbeddingBag.from_pretrained(client, name, weight, "
    "freeze=False), or that of Embedding, sets them",
}
_ABSENT = {
    "weight": "rows live at the server; module.table.rows(keys).values reads them",
    "num_embeddings": "rows are made as their keys come; client.features() says how many there are",
}
_ROWS = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f32"}


def _refuse(name: str, features: dict[str, Any]) -> None:
    for argument, why in REFUSED.items():
        if features.pop(argument, None) is not None:
            raise ValueError(f"{name}: {argument} cannot be had: {why}")


class TorchArguments:
    """Their base. The constructor takes torch's arguments out of the others first, then applies them.

    embedding_dim: the dim of a new table.
    scale_grad_by_freq: as in torch: a key's gradient is divided by how often it is in the input.
    sparse: either; gradients are always of the rows that a batch has, and never a tensor of all rows. Whether
        a step moves the others as well, the table's optimizer says: see millrace.optim.
    norm_type: means nothing without max_norm, as in torch.
    device, dtype: of the results. A dtype of torch's is also that of a new table's rows, f32 for float64.
    _freeze: nothing is learnt.
    """

    scale_grad_by_freq = False
    sparse = True
    max_norm = None
    norm_type = 2.0

    @classmethod
    def _take(cls, features: dict[str, Any]) -> dict[str, Any]:
        """Takes torch's arguments out of `features`, in which it leaves what describes a table."""
        _refuse(cls.__name__, features)
        names = ("scale_grad_by_freq", "sparse", "norm_type", "device", "_freeze")
        taken = {name: features.pop(name) for name in names if name in features}
        if "embedding_dim" in features:
            if "dim" in features:
                raise TypeError(f"{cls.__name__}: dim and embedding_dim are the same; give one")
            features["dim"] = features.pop("embedding_dim")
        if features.get("dtype", "") is None or isinstance(features.get("dtype"), torch.dtype):
            taken["dtype"] = dtype = features.pop("dtype")
            if dtype is not None and dtype not in _ROWS:
                raise ValueError(f"{cls.__name__}: dtype {dtype} cannot be had: rows are of a float type")
            if dtype is not None and "dim" in features:
                features["dtype"] = _ROWS[dtype]
        return taken

    def _apply_arguments(self, taken: dict[str, Any]) -> None:
        module: Any = self
        self.scale_grad_by_freq = bool(taken.get("scale_grad_by_freq"))
        self.sparse = bool(taken.get("sparse", self.sparse))
        self.norm_type = taken.get("norm_type", self.norm_type)
        if taken.get("device") is not None or taken.get("dtype") is not None:
            module.to(device=taken.get("device"), dtype=taken.get("dtype"))
        if taken.get("_freeze"):
            module.requires_grad_(False)

    def _check_batch(self) -> None:
        """Raises where a loader's batch, whose keys are at the server, cannot have what was asked for."""
        if self.scale_grad_by_freq:
            raise ValueError(
                f"{type(self).__name__}: scale_grad_by_freq cannot be had for a loader's batch: "
                "its keys are at "
                "the server, and their gradients are summed there"
            )

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)  # type: ignore[misc]
        except AttributeError:
            if name not in _ABSENT:
                raise
        raise AttributeError(f"{type(self).__name__} has no {name}: {_ABSENT[name]}")
