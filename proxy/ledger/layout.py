"""The memory of one process's records: its layout, version 1. Integers are in the machine's byte order.

    0        8 bytes   "tailedgr"
    8        uint64    version of the layout
    16       uint64    number of slots
    24       uint64    how many records were settled so far                         written by the process
    32       uint64    how many of these are durable in the log                     written by the keeper
    40       uint64    how often there was no slot for a record                     written by the process
    48       uint64    process id
    64       blob      JSON [ring, worker]: length, CRC-32, text
    4096     uint64[]  the slots of settled records, in order: record n in place n modulo the number of slots
    then     slots of SLOT bytes, on a page of their own

A slot:

    0        uint64    commit word: generation * 4 + state (0 never used, 1 open, 2 settled)
    64, 128  usage     running usage, twice: sequence, prompt, completion, cached, delivered, estimated, CRC-32
    192      numbers   of the settlement: generation, record number, time, Settled as integers; CRC-32
    320      blob      words of the settlement (Late): length, CRC-32 seeded with the generation, text
    768,1408 opening   twice: generation, turn, time, first sequence, length, CRC-32; text (Opening)

A settled slot is used again once its number is durable, which is what a reader goes by: what lies in it then may be
half of another call until the commit word says that it is open.

Nothing that a commit word vouches for is written over: what changes while a record is open is written to the half that
does not count yet, and counts from its own checksum on; the two words at the end (state, number settled) are single
aligned stores. So a process that is killed between any two instructions leaves the state before or after a change.
"""

from __future__ import annotations

import struct
import zlib

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
USAGE_AT = 64
NUMBERS_AT = 192
LATE_AT = 320
OPENING_AT = (768, 1408)
LATE_ROOM = 768 - LATE_AT - 8
OPENING_ROOM = 640 - 48

HEADER = struct.Struct("=8sQQQQQQ")
BLOB = struct.Struct("=II")
USAGE = struct.Struct("=QqqqqQ")
OPENING = struct.Struct("=QQQQII")
SEED = struct.Struct("=QQQQ")
"""Of an opening's checksum: generation, turn, time, first sequence."""
NUMBERS = struct.Struct("=QQQqqqqqqqqqqQ")
WITH_USAGE = struct.Struct(f"={USAGE.size}sI")
WITH_NUMBERS = struct.Struct(f"={NUMBERS.size}sI")


def slots_at(slots: int) -> int:
    """Where the first slot lies."""
    return -(-(QUEUE_AT + slots * 8) // PAGE) * PAGE


def size_of(slots: int) -> int:
    """Bytes of the whole memory."""
    return slots_at(slots) + slots * SLOT


def opening_checksum(generation: int, turn: int, opened_ns: int, sequence: int, text: bytes) -> int:
    """Of one half of an opening."""
    return zlib.crc32(text, zlib.crc32(SEED.pack(generation, turn, opened_ns, sequence)))
