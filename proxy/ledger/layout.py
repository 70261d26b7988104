"""The memory of one process's records: its layout, version 1. Integers are in the machine's byte order.

    0        8 bytes   "tailedgr"
    8        uint64    version of the layout
    16       uint64    number of slots
    24       uint64    how many records were settled so far                         written by the process
    32       uint64    how many of these are durable in the log                     written by the keeper
    40       uint64    how often there was no slot for a record                     written by the process
    48       uint64    process id
    64       name      JSON [ring, worker]
    4096     uint64[]  the slots of settled records, in order: record n in place n modulo the number of slots
    then     slots of SLOT bytes, on a page of their own

A slot:

    0        uint64    commit word: generation * 4 + state (0 never used, 1 open, 2 settled)
    8        uint64    progress: delivered * 2**32 + completion, where that is ahead of the running usage
    64, 128  usage     running usage, twice: sequence, prompt, completion, cached, delivered, estimated
    192      end       generation, record number, time, Settled as integers; Late as JSON
    768,1408 opening   twice: generation, turn, time, first sequence; Opening as JSON

All but the words are blobs: length, CRC-32, content.

A settled slot is used again once its number is durable, which is what a reader goes by: what lies in it then may be
half of another call until the commit word says that it is open.

Nothing that a commit word vouches for is written over: what changes while a record is open is written to the half that
does not count yet, and counts from its own checksum on; the words (progress, and at the end state and number settled)
are single aligned stores. So a process that is killed between any two instructions leaves the state before or after a
change.
"""

from __future__ import annotations

import struct
from zlib import crc32

MAGIC = b"tailedgr"
VERSION = 1
SETTLED_WORD, DURABLE_WORD, FULL_WORD = 3, 4, 5
NAME_AT = 64
QUEUE_AT = 4096
QUEUE = QUEUE_AT // 8
PAGE = 4096

SLOT = 2048
SLOT_WORDS = SLOT // 8
OPEN, SETTLED = 1, 2
PROGRESS_WORD = 1
PROGRESS_BITS = 32
MOST = (1 << PROGRESS_BITS) - 1
USAGE_AT = (64, 128)
END_AT = 192
OPENING_AT = (768, 1408)

HEADER = struct.Struct("=8sQQQQQQ")
BLOB = struct.Struct("=II")
USAGE = struct.Struct("=QqqqqQ")
OPENING = struct.Struct("=QQQQ")
NUMBERS = struct.Struct("=QQQqqqqqqqqqqQ")

_BEGINNING = "IIQQQQ"
SETTLED_SLOT = struct.Struct(
    f"=Q{END_AT - 8}xIIQQQqqqqqqqqqqQ"
    f"{OPENING_AT[0] - END_AT - BLOB.size - NUMBERS.size}x{_BEGINNING}"
    f"{OPENING_AT[1] - OPENING_AT[0] - BLOB.size - OPENING.size}x{_BEGINNING}"
)
"""All numbers of a settled slot at once: commit word, end with its 14 numbers, the openings' halves."""

NAME_ROOM = QUEUE_AT - NAME_AT
USAGE_ROOM = USAGE_AT[1] - USAGE_AT[0]
END_ROOM = OPENING_AT[0] - END_AT
OPENING_ROOM = OPENING_AT[1] - OPENING_AT[0]
LATE_ROOM = END_ROOM - BLOB.size - NUMBERS.size
"""For the words of an ending."""
WORDS_ROOM = OPENING_ROOM - BLOB.size - OPENING.size
"""For the words of an opening."""


def slots_at(slots: int) -> int:
    """Where the first slot lies."""
    return -(-(QUEUE_AT + slots * 8) // PAGE) * PAGE


def size_of(slots: int) -> int:
    """Bytes of the whole memory."""
    return slots_at(slots) + slots * SLOT


def blob(content: bytes) -> bytes:
    """Content as it is set down."""
    return BLOB.pack(len(content), crc32(content)) + content
