"""What the store of limits runs: one script for each question, so that nothing happens between its reading and writing.

The hash of a counter's window has, for every host, `=HOST` what it was given, `#HOST` the number of its last question
and, for what runs at once, `@HOST` until when that counts. `=L:LEDGER` is what a ledger knows of, in a store that has
lost its memory; `!LEDGER` says that the host of that ledger has said so.
"""

from __future__ import annotations

from typing import Final

OTHER_EPOCH: Final = -1
CLOSED: Final = -2
"""The store has lost its memory in this window, and nobody can tell what was spent."""
UNTOLD: Final = -4
"""The same, but the asking host has a ledger, whose sums are wanted. Others below zero: ask later."""

GIVE: Final = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return {-1, 0} end
local since = tonumber(redis.call('GET', KEYS[3]) or '0')
local host, number, held = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local need, least, limit = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local begins, ends, running = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10] == '1'
local now = tonumber(redis.call('TIME')[1])
local closed = 0
if not running and begins < since then
  if ARGV[14] == '' then closed = -2
  elseif now < tonumber(string.match(ARGV[1], ':(%d+)$') or '0') + tonumber(ARGV[15]) then closed = -5
  elseif redis.call('HEXISTS', KEYS[1], '!' .. ARGV[14]) == 0 then closed = -4 end
end
local all = redis.call('HGETALL', KEYS[1])
local has, until_, last = {}, {}, {}
for at = 1, #all, 2 do
  local kind, name, amount = string.sub(all[at], 1, 1), string.sub(all[at], 2), tonumber(all[at + 1])
  if kind == '=' then has[name] = amount
  elseif kind == '@' then until_[name] = amount
  elseif kind == '#' then last[name] = amount end
end
if last[host] and number <= last[host] then return {-3, 0} end
local gone, hosts = held, 1
for name, amount in pairs(has) do
  if running and (until_[name] or 0) < now and name ~= host then
    redis.call('HDEL', KEYS[1], '=' .. name, '@' .. name, '#' .. name)
  elseif name ~= host then
    gone = gone + amount
    if string.sub(name, 1, 2) ~= 'L:' then hosts = hosts + 1 end
  end
end
local free = limit - gone
local grant = 0
if closed == 0 and free >= least then
  grant = math.max(0, math.min(free, math.max(need, math.floor(free / (tonumber(ARGV[11]) * hosts)))))
end
redis.call('HSET', KEYS[1], '=' .. host, string.format('%.0f', held + grant), '#' .. host, ARGV[3])
if running then
  redis.call('HSET', KEYS[1], '@' .. host, now + tonumber(ARGV[12]))
  redis.call('EXPIRE', KEYS[1], 2 * tonumber(ARGV[12]))
elseif ends > 0 then
  redis.call('EXPIREAT', KEYS[1], ends + tonumber(ARGV[13]))
end
if closed ~= 0 then return {closed, 0} end
return {grant, free - grant}
"""
"""One question at a time for each counter of a host. What the host says that it holds counts: an answer that it did not
get was never spent. A question that was overtaken by a later one is not answered."""

BEGIN: Final = """
local moment = redis.call('TIME')
if redis.call('SET', KEYS[1], ARGV[1] .. ':' .. moment[1], 'NX') then redis.call('SET', KEYS[2], ARGV[2]) end
return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), moment}
"""
"""An epoch bears the time at which it began, by the store's clock."""

SEED: Final = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return -1 end
local own = ARGV[2]
for at = 5, #ARGV, 2 do
  if ARGV[at] == own then redis.call('HSET', KEYS[1], '=L:' .. own, ARGV[at + 1])
  else redis.call('HSETNX', KEYS[1], '=L:' .. ARGV[at], ARGV[at + 1]) end
end
redis.call('HSET', KEYS[1], '!' .. own, '1')
if tonumber(ARGV[3]) > 0 then redis.call('EXPIREAT', KEYS[1], tonumber(ARGV[3]) + tonumber(ARGV[4])) end
return 0
"""
"""A host that lives says itself what it holds, and of its ledger only what its memory does not have; of the others the
sums of their ledgers count until they have said the same."""
