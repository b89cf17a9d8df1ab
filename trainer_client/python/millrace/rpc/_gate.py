"""Parameters get new values only while nobody computes with them.

A step gives a parameter other memory, and torch reads the address without a lock. So threads that compute
have a ticket, and a step waits until all have returned theirs, which they also do while they wait for other
workers. It waits for a second at most, and only once for the same ticket: a function that sleeps does not
hold up training. Memory that was replaced while such a function ran is kept until nobody computes.
"""
from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import Any, Iterator

PATIENCE_S = 1.0


class _Ticket:
    __slots__ = ("is_slow",)

    def __init__(self) -> None:
        self.is_slow = False


class Gate:
    """Many compute, or one changes."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.tickets: set[_Ticket] = set()
        self.is_closed = False
        self.replaced: list[Any] = []

    # Each call enters and leaves, so without a lock: who enters adds its ticket before it looks whether the
    # gate is closed, and who closes it looks for tickets after that.

    def enter(self) -> _Ticket:
        """Waits while parameters change."""
        ticket = _Ticket()
        self.tickets.add(ticket)
        while self.is_closed:
            self.leave(ticket)
            with self.changed:
                self.changed.wait_for(lambda: not self.is_closed)
            ticket = _Ticket()  # the one before may have been taken for slow meanwhile
            self.tickets.add(ticket)
        return ticket

    def leave(self, ticket: _Ticket) -> None:
        """The thread computes no more."""
        self.tickets.discard(ticket)
        if self.is_closed or self.replaced:
            with self.changed:
                self._drop_replaced()
                self.changed.notify_all()

    def _drop_replaced(self) -> None:
        if not self.tickets:
            self.replaced.clear()

    @contextmanager
    def change(self, replaced: list[Any]) -> Iterator[None]:
        """Nobody computes within this block. `replaced`: what somebody may still read."""
        with self.changed:
            self.changed.wait_for(lambda: not self.is_closed)
            self.is_closed = True
            until = time.monotonic() + PATIENCE_S
            while any(not ticket.is_slow for ticket in list(self.tickets)) and time.monotonic() < until:
                self.changed.wait(until - time.monotonic())
            for ticket in list(self.tickets):
                ticket.is_slow = True
            self.replaced.append(replaced)
            self._drop_replaced()
        try:
            yield
        finally:
            with self.changed:
                self.is_closed = False
                self.changed.notify_all()


gate = Gate()
