-- Decides k commands on k buckets, all or nothing, in one round trip.
--
-- KEYS[1..k]    the buckets. The same key may come more than once: its commands run in order.
-- KEYS[k+1]     optional: the operation's own key, which makes the call idempotent.
-- ARGV[2i-1]    the limit of bucket i, 45 bytes:
--               'bld1', kind (byte: 0 continuous, 1 stepwise, 2 window; 4 more: starts empty), and as
--               doubles: refill units per us, capacity units, largest units owed, units per token,
--               period in us
-- ARGV[2i]      its command, 9 bytes: operation (byte) and amount (double)
--                 0 peek          -
--                 1 take          units; more than 2^52 when no bucket could ever give them
--                 2 take up to    tokens, at most the capacity
--                 3 charge        units
--                 4 credit        units
--                 5 set level     units owed at that level
-- ARGV[2k+1]    optional, 16 bytes: now in us (double, below zero: the server's clock) and the
--               milliseconds to keep the operation's reply (double)
-- returns       one string: now (double), then for each command 25 bytes: passed (byte), owed before,
--               owed after, the time that belongs to (doubles). When one command did not pass,
--               nothing of the call was applied: the others are what would have happened.
-- errors        FOREIGN (a key holds a string that is not ours), WRONGTYPE (not even a string),
--               ERR (a malformed call). Every error comes before the first write.
--
-- A bucket is one string, 61 bytes: the limit it was written under, owed, at. That the limit did not
-- change is then one comparison of strings, and when it did, the old one is at hand.
--
-- The laws it keeps (numbers as in the design; balde-core is the oracle, tests/redis_suite/differential.rs the
-- proof):
--   2  waits that are computed from the reply are exact. That is why a write command that finds an
--      absent bucket which starts empty, or a bucket under another limit, stores what it found even if
--      the call is refused: the one must begin to fill, the other must go on at the new rate.
--   4  apart from that, a refused call writes nothing, and a peek never writes.
--   5  a clock behind the bucket neither refills nor takes.
--   7  a full bucket equals none: it is deleted, and any other expires when it would be full.
--      Where that is not true (it would start empty again, or time is the caller's and not the
--      server's) it is kept for 24 hours more.
--      Being full is counted to the next whole millisecond, so a bucket never expires early.
--   8  the same answers and states as balde-core.
--   9  another limit: refilled to now under the old one, then converted, rounded against the bucket.
--
-- Exactness. All numbers are whole and at most 2^53, so doubles are exact, given that
--   * units owed and the amounts of commands that can pass are at most 2^52: sums are at most 2^53;
--   * elapsed * refill may exceed 2^53 and be rounded, but then it is still above 2^52 and so above
--     anything owed, and the bucket is full either way;
--   * a % b is a - floor(a / b) * b in Lua 5.1. For whole a, b with a <= 2^53 the quotient lies at
--     least 1 / b from the next whole number, which is more than half a step between doubles there:
--     it is never rounded onto it, floor is the true one, and the product is at most a. ceil(a / b)
--     is exact for the same reason.
--
-- Speed. Lua makes tables and closures anew in every call, and each costs more than the arithmetic of
-- a bucket. So a bucket lives in locals, one command needs no table, and what only another limit
-- needs is inside the one function here. A reply of one string is cheaper than a list of numbers.
--
-- Only KEYS are touched (Cluster), and effects are replicated, so TIME before a write is fine.

local call, unpack, pack = redis.call, struct.unpack, struct.pack

-- Limit::change_to: owed and at of a bucket under `new`, which was owed and at under `old`. Nothing,
-- if that equals a bucket that was never used.
local function change(old, new, owed, at, now)
  local min, max = math.min, math.max
  local kind_old, refill, full, owed_max, token_old, period_old = unpack('<xxxxBddddd', old)
  local kind, _, full_new, owed_max_new, token, period = unpack('<xxxxBddddd', new)
  local strategy_old, strategy = kind_old % 4, kind % 4

  -- units * token / token_old, rounded up, at most owed_max_new. The product may need 104 bits, so
  -- what is left of units after whole tokens is multiplied bit by bit and divided on the way: r stays
  -- below token_old <= 2^52, and no sum here exceeds 2^53.
  local function convert(units)
    local rest = units % token_old
    local whole = (units - rest) / token_old * token
    local q, r, left, bit = 0, 0, token, 4503599627370496
    while bit >= 1 do
      q, r = 2 * q, 2 * r
      if r >= token_old then
        q, r = q + 1, r - token_old
      end
      if left >= bit then
        left, r = left - bit, r + rest
        if r >= token_old then
          q, r = q + 1, r - token_old
        end
      end
      bit = bit / 2
    end
    if r > 0 then
      q = q + 1
    end
    -- A sum beyond 2^53 may be rounded, and is more than owed_max_new all the same.
    return min(whole + q, owed_max_new)
  end

  -- To now, under the old limit.
  owed = min(owed, owed_max)
  if strategy_old == 2 then
    if at <= now then
      owed = 0
    end
  else
    local tick = now
    if strategy_old == 1 then
      at, tick = at - at % period_old, now - now % period_old
    end
    if tick > at then
      owed, at = max(owed - (tick - at) * refill, 0), tick
    end
  end

  -- A debt stays one and does not grow; what was none stays none.
  local debt = convert(max(owed - full, 0))
  owed = min(convert(owed), full_new + min(debt, owed_max_new - full_new))
  if owed == 0 and (kind < 4 or kind_old < 4) then
    return nil
  end
  if strategy == 2 then
    -- An open window keeps its end, but lasts no longer than a new one would.
    return owed, strategy_old == 2 and min(at, now + period) or now + period
  end
  at = strategy_old == 2 and now or max(at, now)
  if strategy == 1 then
    at = at - at % period
  end
  return owed, at
end

local args = #ARGV
local k = (args - args % 2) / 2
local op_key = KEYS[k + 1]
if k < 1 or not KEYS[k] then
  return redis.error_reply('ERR a call is a key, a limit and a command for each bucket')
end
local now, extra_ms, reply_ms = -1, 0, 0
if args > 2 * k then
  now, reply_ms = unpack('<dd', ARGV[args])
  extra_ms = 86400000
end
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
  extra_ms = 0
end

if op_key then
  local stored = call('GET', op_key)
  if stored then
    if #stored ~= 12 + 25 * k or string.sub(stored, 1, 4) ~= 'blr1' then
      return redis.error_reply('FOREIGN the key of the operation holds what is not its reply')
    end
    return string.sub(stored, 5)
  end
end

local is_refused, has_news, has_writes = false, false, false
local reply
-- The first pass decides. When it refused, and a write command found a bucket new to its limit, the
-- second stores that bucket as it was found.
for pass = 1, 2 do
  -- What to write, by key: a bucket, or false for none. One command needs no such list.
  local kept, kept_ms
  if k > 1 then
    kept, kept_ms = {}, {}
    reply = reply or { pack('<d', now) }
  end

  for i = 1, k do
    local key, limit = KEYS[i], ARGV[2 * i - 1]
    local strategy, refill, full, owed_max, token, period = unpack('<xxxxBddddd', limit)
    local op, amount = unpack('<Bd', ARGV[2 * i])
    local starts_empty = strategy >= 4
    if starts_empty then
      strategy = strategy - 4
    end
    local tick = now
    if strategy == 1 then
      tick = now - now % period
    end

    local stored
    if kept then
      stored = kept[key]
    end
    if stored == nil then
      stored = call('GET', key)
    end
    local is_new, before, at = false, nil, nil
    if stored then
      local was
      if #stored == 61 then
        was, before, at = unpack('<c45dd', stored)
      end
      -- No NaN is within bounds.
      if not was or not (before >= 0 and before <= 4503599627370496 and at >= 0
          and at <= 9007199254740992) then
        return redis.error_reply('FOREIGN bucket ' .. i .. ' holds what is not a bucket')
      end
      if was ~= limit then
        if string.sub(was, 1, 4) ~= 'bld1' then
          return redis.error_reply('FOREIGN bucket ' .. i .. ' holds what is not a bucket')
        end
        is_new = true
        before, at = change(was, limit, before, at, now)
      end
    else
      is_new = starts_empty
    end

    -- The bucket now.
    if not before then
      before, at = 0, tick
      if starts_empty then
        before = full
      elseif strategy == 2 then
        at = 0
      end
    else
      if before > owed_max then
        before = owed_max
      end
      if strategy == 2 then
        -- A window that is over or unused is none.
        if at <= now or before == 0 then
          before, at = 0, 0
        end
      else
        if strategy == 1 then
          at = at - at % period
        end
        if tick > at then
          before = before - (tick - at) * refill
          if before < 0 then
            before = 0
          end
          at = tick
        end
      end
    end

    local passed, after = 1, before
    if pass == 1 then
      if op == 1 then
        after = before + amount
        if after > full then
          passed, after = 0, before
        end
      elseif op == 2 then
        local room = full - before
        if room < 0 then
          room = 0
        end
        local granted = (room - room % token) / token
        if granted > amount then
          granted = amount
        end
        after = before + granted * token
        if granted == 0 and amount > 0 then
          passed = 0
        end
      elseif op == 3 then
        after = before + amount
        if after > owed_max then
          after = owed_max
        end
      elseif op == 4 then
        after = before - amount
        if after < 0 then
          after = 0
        end
      elseif op == 5 then
        after = amount
      end
      if strategy == 2 then
        -- The window opens with its first token and is forgotten with its last.
        if after == 0 then
          at = 0
        elseif at == 0 then
          at = now + period
        end
      end
      if k > 1 then
        reply[i + 1] = pack('<Bddd', passed, before, after, at)
      else
        reply = pack('<dBddd', now, passed, before, after, at)
      end
      if passed == 0 then
        is_refused = true
      end
    end

    if op ~= 0 then
      has_writes = true
      -- A key that comes again may be new only without what came before it: the second pass will see.
      has_news = has_news or is_new or (k > 1 and kept[key] ~= nil)
      if (pass == 1 and passed == 1) or (pass == 2 and is_new) then
        local value, ms = false, nil
        if after > 0 or starts_empty then
          value = pack('<c45dd', limit, after, at)
          -- Until it is full. Whole milliseconds plus one are never too few.
          local us = 0
          if after > 0 then
            us = at - now
            if strategy == 0 then
              us = us + after / refill
            elseif strategy == 1 then
              -- A rounded product is beyond 2^53, and what is owed is then less than one step of it.
              us = us + math.ceil(after / (refill * period)) * period
            end
          end
          ms = us / 1000
          ms = ms - ms % 1 + 1 + extra_ms
          if starts_empty and extra_ms == 0 then
            ms = ms + 86400000
          end
        end
        if k > 1 then
          kept[key], kept_ms[key] = value, ms
        elseif value then
          call('SET', key, value, 'PX', ms)
        elseif stored then
          call('DEL', key)
        end
      end
    end
  end

  if k > 1 and (pass == 2 or not is_refused) then
    for i = 1, k do
      local key = KEYS[i]
      local value = kept[key]
      if value then
        call('SET', key, value, 'PX', kept_ms[key])
      elseif value == false then
        call('DEL', key)
      end
      kept[key] = nil
    end
  end
  if not (is_refused and has_news) then
    break
  end
end

if k > 1 then
  reply = table.concat(reply)
end
-- A refused call may be tried again under the same id, and is decided anew.
if op_key and has_writes and not is_refused then
  call('SET', op_key, 'blr1' .. reply, 'PX', reply_ms)
end
return reply
