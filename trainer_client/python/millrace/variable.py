"""Variables: dense tensors on a node."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ._base import arrays
from ._base.arrays import Like, f32_pointer, rows_of
from ._base.connection import Call
from ._base.library import lib
from ._base.options import whole
from .feature import VariableSpec
from .future import Future

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._base.options import CallOptions
    from .client import Client

_U64_MAX = 0xFFFFFFFFFFFFFFFF


class Variable:
    """A dense float32 tensor on a node. Made by Client.variable(). Each method has a twin that ends in
    `_async`."""

    def __init__(self, client: Client, id: int, spec: VariableSpec) -> None:
        self.client, self.id, self.spec = client, id, spec
        self.element_count = math.prod(spec.shape)

    @property
    def name(self) -> str:
        """As it was created."""
        return self.spec.name

    @property
    def shape(self) -> tuple[int, ...]:
        """As it was created."""
        return self.spec.shape

    def __repr__(self) -> str:
        return f"<millrace.Variable {self.name!r} of {self.client.server}: {self.id}, shape {self.shape}>"

    def _pull(self, first: int, count: int | None) -> Call:
        first = whole("first", first, _U64_MAX)
        if first == 0 and count is None:
            return Call(
                lib.mr_variable_pull,
                (self.id, 0, 0),
                lambda reply: rows_of(reply, None).reshape(self.shape),
                True,
            )
        count = whole("count", self.element_count - first if count is None else count, _U64_MAX)
        if count == 0:  # which the library takes for all
            raise ValueError(f"count is 0; a range of {self.name!r} has at least one element")
        return Call(lib.mr_variable_pull, (self.id, first, count), lambda reply: rows_of(reply, None), True)

    def pull(self, first: int = 0, count: int | None = None, **options: Unpack[CallOptions]) -> np.ndarray:
        """Its values in its shape, float32; or `count` elements from element `first` on, row by row, as
        [count]. ValueError: `count` is 0."""
        return self.client._run(self._pull(first, count), options)

    def pull_async(self, first: int = 0, count: int | None = None, **options: Unpack[CallOptions]) -> Future:
        """pull() as a Future."""
        return self.client._start(self._pull(first, count), options)

    def _push(self, values: Like, first: int | None) -> Call:
        array = arrays.floats(values)
        if array.size == 0:
            raise ValueError(f"there are no values to be pushed to {self.name!r}")
        if first is None and array.size != self.element_count:
            raise ValueError(
                f"values have the shape {array.shape}; {self.name!r} has {self.shape} (give `first` for a "
                "part of it)"
            )
        return Call(
            lib.mr_variable_push,
            (self.id, whole("first", first or 0, _U64_MAX), array.size, f32_pointer(array)),
        )

    def push(self, values: Like, first: int | None = None, **options: Unpack[CallOptions]) -> None:
        """Sets all of its values; with `first` only as many as given, from that element on, row by row.
        ValueError: another number of values, or none."""
        self.client._run(self._push(values, first), options)

    def push_async(self, values: Like, first: int | None = None, **options: Unpack[CallOptions]) -> Future:
        """push() as a Future."""
        return self.client._start(self._push(values, first), options)

    def _push_gradient(self, gradient: Like) -> Call:
        array = arrays.floats(gradient)
        if array.size != self.element_count:
            raise ValueError(f"the gradient has the shape {array.shape}; {self.name!r} has {self.shape}")
        return Call(lib.mr_variable_push_gradient, (self.id, array.size, f32_pointer(array)))

    def push_gradient(self, gradient: Like, **options: Unpack[CallOptions]) -> None:
        """Runs the optimizer with this gradient, of as many elements as the variable has. Applied at most
        once, as Table.push_gradients(). ValueError: another number of elements."""
        self.client._run(self._push_gradient(gradient), options)

    def push_gradient_async(self, gradient: Like, **options: Unpack[CallOptions]) -> Future:
        """push_gradient() as a Future."""
        return self.client._start(self._push_gradient(gradient), options)
