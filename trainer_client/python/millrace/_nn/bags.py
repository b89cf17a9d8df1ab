"""The arguments of an EmbeddingBag's forward as bags: checked as torch checks them, without padding."""
from __future__ import annotations

from typing import NamedTuple, Optional

import numpy as np
import torch

from .._base.library import counted

_KEYS = (torch.int32, torch.int64)


class Bags(NamedTuple):
    """keys u64 [n], offsets u32 [bags + 1] from 0 to n or None (a key in each bag), weights a tensor [n] or
    None."""

    keys: np.ndarray
    offsets: Optional[np.ndarray]
    weights: Optional[torch.Tensor]

    @property
    def bag_count(self) -> int:
        """How many."""
        return len(self.keys) if self.offsets is None else len(self.offsets) - 1

    @property
    def begins(self) -> np.ndarray:
        """i64 [bags + 1]: offsets, also where there is a key in each bag."""
        return np.arange(len(self.keys) + 1) if self.offsets is None else self.offsets.astype(np.int64)


def keys_of(name: str, input: torch.Tensor) -> np.ndarray:
    """A copy: i64, flat, in the CPU's memory."""
    if not isinstance(input, torch.Tensor) or input.dtype not in _KEYS:
        what = input.dtype if isinstance(input, torch.Tensor) else type(input).__name__
        raise TypeError(f"{name}: keys are a tensor of int32 or int64, not {what}")
    there = input if input.device.type == "cpu" else input.cpu()
    return np.array(there.numpy(), np.int64, order="C").reshape(-1)


def _wrong(name: str, begins: np.ndarray, count: int) -> ValueError:
    """What is wrong with the offsets."""
    if begins[0] != 0:
        return ValueError(
            f"{name}: offsets[0] has to be 0, i.e., the first bag begins at position 0; got {begins[0]}"
        )
    if begins[-1] != count:
        return ValueError(f"{name}: the last offset is {begins[-1]}, for {counted(count, 'key')}")
    at = int(np.argmax(begins[1:] < begins[:-1]))
    return ValueError(
        f"{name}: offsets must not fall: offsets[{at}] is {begins[at]}, the next {begins[at + 1]}"
    )


def make(
    name: str,
    input: torch.Tensor,
    offsets: Optional[torch.Tensor],
    weights: Optional[torch.Tensor],
    include_last_offset: bool,
    padding_idx: Optional[int],
) -> Bags:
    """From what forward() got. Padding is in no bag: it neither adds nor counts."""
    keys, begins = keys_of(name, input), None
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError(
                f"{name}: if input is 2D, then offsets has to be None, as input is treated as bags of fixed "
                "length"
            )
        size = input.shape[1]
        if size != 1:
            begins = np.arange(0, len(keys) + 1, size) if size else np.zeros(input.shape[0] + 1)
    elif input.dim() != 1:
        raise ValueError(
            f"{name}: input has to be a 1D or 2D tensor, but got a tensor of dimension {input.dim()}"
        )
    elif offsets is None:
        raise ValueError(f"{name}: offsets has to be a 1D tensor but got None")
    elif offsets.dim() != 1:
        raise ValueError(f"{name}: offsets has to be a 1D tensor")
    else:
        begins = keys_of(name, offsets)
        if not include_last_offset:
            begins = np.append(begins, len(keys))
        elif len(begins) == 0:
            raise ValueError(f"{name}: include_last_offset: the number of offsets has to be at least 1")
        if len(begins) > 1 or include_last_offset:
            if begins[0] != 0 or begins[-1] != len(keys) or (begins[1:] < begins[:-1]).any():
                raise _wrong(name, begins, len(keys))
    if weights is not None:
        if weights.shape != input.shape:
            raise ValueError(
                f"{name}: per_sample_weights have the shape {tuple(weights.shape)}, the input "
                f"{tuple(input.shape)}"
            )
        weights = weights.reshape(-1)
    if begins is not None and len(begins) == 1:  # no bags: what is there is in none
        begins, keys, weights = np.zeros(1), keys[:0], None if weights is None else weights[:0]
    if padding_idx is not None:
        stays = keys != padding_idx
        if not stays.all():
            begins = np.arange(len(keys) + 1) if begins is None else begins.astype(np.int64)
            begins = np.concatenate(([0], np.cumsum(stays)))[begins]
            keys = keys[stays]
            weights = None if weights is None else weights[torch.from_numpy(stays).to(weights.device)]
    if begins is not None and len(begins) - 1 == len(keys) and (begins[1:] - begins[:-1] == 1).all():
        begins = None
    return Bags(keys.view(np.uint64), None if begins is None else begins.astype(np.uint32), weights)


def pool(rows: torch.Tensor, bags: Bags, mode: str) -> torch.Tensor:
    """What the server makes of bags [bags, dim], made here from their rows [n, dim]: so the weights, which
    the bags have, get a gradient. mode: "sum", "mean" or "sqrtn"."""
    sizes = np.diff(bags.begins)
    bag = torch.from_numpy(np.repeat(np.arange(bags.bag_count), sizes)).to(rows.device)
    assert bags.weights is not None
    weights = bags.weights.to(rows.device, rows.dtype)
    sums = rows.new_zeros(bags.bag_count, rows.shape[1]).index_add(0, bag, rows * weights[:, None])
    if mode == "sum":
        return sums
    over = weights.new_zeros(bags.bag_count).index_add(
        0, bag, weights if mode == "mean" else weights * weights
    )
    is_there = over != 0
    over = torch.where(is_there, over, torch.ones_like(over))
    return sums / (over if mode == "mean" else over.sqrt())[:, None] * is_there[:, None]


def pool_max(rows: torch.Tensor, bags: Bags) -> torch.Tensor:
    """The largest of each column of a bag's rows [n, dim], zeros for an empty bag, as torch has them."""
    if len(rows) == 0:
        return rows.new_zeros(bags.bag_count, rows.shape[1]).index_add(0, rows.new_empty(0).long(), rows)
    begins = torch.from_numpy(bags.begins[:-1]).to(rows.device)
    places = torch.arange(len(rows), device=rows.device)
    wide = rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows
    return torch.nn.functional.embedding_bag(places, wide, begins, mode="max").to(rows.dtype)
