"""Copies between a device's memory and the CPU's, on the way from a server and to it.

Rows and gradients go through pinned memory where the device is CUDA's. A gradient's copy does not hold up the
backward pass that made it: it is waited for when the pass is over.
"""
from __future__ import annotations

from typing import Any

import numpy as np
import torch


def placed(values: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """values, f32 in the CPU's memory, as a tensor of place's device and type."""
    if place.device.type == "cuda":
        return values.pin_memory().to(place.device, place.dtype, non_blocking=True)
    return values.to(place.device, place.dtype)


class Staged:
    """A gradient on its way to the CPU's memory, as f32. Made on the thread whose stream has it."""

    def __init__(self, gradient: torch.Tensor) -> None:
        device = gradient.device
        event: Any = getattr(getattr(torch, device.type, None), "Event", None)
        self._event = None if event is None else event()
        self._copy = torch.empty(gradient.shape, dtype=torch.float32, pin_memory=device.type == "cuda")
        self._copy.copy_(gradient.detach(), non_blocking=event is not None)
        if self._event is not None:
            self._event.record()

    def arrived(self) -> np.ndarray:
        """Waits until it is there."""
        if self._event is not None:
            self._event.synchronize()
        return self._copy.numpy()
