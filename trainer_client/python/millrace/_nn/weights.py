"""Modules over a table: the table, and rows that torch had, by from_pretrained() and from a state_dict."""
from __future__ import annotations

from typing import Any, Mapping, Optional, TypeVar

import numpy as np

from .._base.arrays import Like
from ..stored import check_set
from ..table import Table

_Self = TypeVar("_Self", bound="Weights")


def values_in(
    state_dict: Mapping[str, Any], key: str, unexpected_keys: list, error_msgs: list
) -> Optional[Any]:
    """The tensor or array at `key` of a state_dict that is loaded, or None. It is no parameter of the module,
    so torch's own _load_from_state_dict(), which has run before, counts the key as unexpected."""
    values = state_dict.get(key)
    if values is None:
        return None
    if key in unexpected_keys:
        unexpected_keys.remove(key)
    if not hasattr(values, "shape"):
        error_msgs.append(f"{key} is a {type(values).__name__}; values are a tensor or an array")
        return None
    return values


class Weights:
    """What Embedding and EmbeddingBag have in common of a table."""

    feature: Table

    @property
    def table(self) -> Table:
        """The table at the server."""
        return self.feature

    @property
    def embedding_dim(self) -> int:
        """The length of a row."""
        return self.feature.dim

    @classmethod
    def from_pretrained(
        cls: type[_Self],
        client: Any,
        table: Any,
        embeddings: Optional[Like] = None,
        freeze: bool = True,
        *,
        keys: Optional[Like] = None,
        progress: Optional[bool] = None,
        **arguments: Any,
    ) -> _Self:
        """torch's from_pretrained(), with the client and the table's name first, or a Table alone: a module
        whose rows are those of `embeddings`.

            bag = millrace.EmbeddingBag.from_pretrained(client, "items", weight, freeze=False, mode="sum",
                optimizer=millrace.optim.Adagrad(lr=0.05))

        embeddings: [n, dim], a tensor, an array, or a mapped file. Rows that the table has are set, too, and
        start as new ones: where a program is started again, leave this out or do it in the first run only.
        keys: of the rows, [n]; None: 0 to n - 1.
        freeze: nothing is learnt, as in torch.
        progress: as of Table.set_rows(). arguments: the module's own.
        """
        if embeddings is None and isinstance(client, Table):
            client, table, embeddings = client.client, client, table
        rows: Any = embeddings
        shape = tuple(np.shape(rows))
        if len(shape) != 2:
            raise ValueError(f"embeddings have the shape {list(shape)}; it is [n, dim]")
        if not isinstance(table, Table):
            arguments = {"dim": shape[1], **arguments}
        make: Any = cls
        module = make(client, table, **arguments)
        module.load_rows(rows, keys, progress=progress)
        module.requires_grad_(not freeze)
        return module

    def load_rows(
        self,
        rows: Like,
        keys: Optional[Like] = None,
        state: Optional[Mapping[str, Like]] = None,
        *,
        progress: Optional[bool] = None,
    ) -> None:
        """Sets the table's rows, as Table.set_rows(), when the module's earlier pushes are applied. keys:
        None: 0 to n - 1. RowsNotSet: some could not be set."""
        numbers = np.arange(len(rows), dtype=np.uint64) if keys is None else keys
        self.flush()  # type: ignore[attr-defined]
        check_set(self.feature.name, self.feature.set_rows(numbers, rows, state, progress=progress))

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list,
        unexpected_keys: list,
        error_msgs: list,
    ) -> None:
        """A weight of torch's in the state_dict sets the rows; without one they stay."""
        super()._load_from_state_dict(  # type: ignore[misc]
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        weight = values_in(state_dict, prefix + "weight", unexpected_keys, error_msgs)
        if weight is None:
            return
        if len(weight.shape) != 2 or weight.shape[1] != self.feature.dim:
            error_msgs.append(
                f"size mismatch for {prefix}weight: {list(weight.shape)} does not fit table "
                f"{self.feature.name!r}, whose rows have {self.feature.dim}"
            )
            return
        self.load_rows(weight)
