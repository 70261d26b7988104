"""What a process sees of the host part's work: the table in force, the key sets, how fresh both are."""

from __future__ import annotations

import logging
from pathlib import Path

from tailrace.plugins.auth.board import Board
from tailrace.plugins.auth.grant import Grants
from tailrace.plugins.auth.table import KeyTable
from tailrace.plugins.auth.tokens import Tokens

log = logging.getLogger("tailrace")


class View:
    """`table` and `stale` are read for every call, and change only in `look`."""

    def __init__(self, folder: Path, stale_for: float, grants: Grants, tokens: Tokens | None) -> None:
        self.table: KeyTable | None = None
        self.stale = True
        self._board = Board(folder)
        self._stale_for = stale_for
        self._grants = grants
        self._tokens = tokens
        self._table = self._sets = 0

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return self._board.keys

    @property
    def age(self) -> float:
        """Seconds since the stores were last heard of."""
        return self._board.age

    def look(self) -> None:
        """Turn to what is in force now; called often, and cheap while nothing has changed."""
        board = self._board
        try:
            if board.table != self._table:
                number = board.table
                self.table = KeyTable.open(board.table_path(number))
                self._table = number
                self._grants.clear()
            if self._tokens is not None and board.sets != self._sets:
                number = board.sets
                if self._tokens.take(board.sets_path(number).read_bytes()):
                    self._grants.clear()
                self._sets = number
        except FileNotFoundError:
            pass  # another one is in force by now: the next look finds it
        except (OSError, ValueError):
            log.exception("the keys that are in force now cannot be read")
        self.stale = board.age > self._stale_for
