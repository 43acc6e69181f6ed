-- Decides k commands on k buckets, all or nothing, in one round trip.
--
-- KEYS[1..k]    the buckets. The same key may come more than once: its commands run in order.
-- KEYS[k+1]     optional: the operation's own key, which makes the call idempotent.
-- ARGV[2i-1]    the limit of bucket i, 45 bytes:
--               'bld1', kind (byte: 0 continuous, 1 stepwise, 2 window; 4 more: starts empty), and as
--               doubles: refill units per us, capacity units, largest units owed, units per token,
--               period in us
-- ARGV[2i]      its command: operation (byte) and amount (double), and more after them
--                 0 peek          -
--                 1 take          units; more than 2^52 when no bucket could ever give them
--                 2 take up to    tokens, at most the capacity
--                 3 charge        units
--                 4 credit        units
--                 5 set level     units owed at that level
--                 6 take if       units; then the units that must be available (double)
--                 7 hold          tokens; then the units that must be available (double), and HOLDER
--                 8 settle        tokens that were held; then the price in tokens (double), and HOLDER
--                 9 renew         a hold of nothing, under the limit that the bucket was written under
--               HOLDER is 17 bytes: the holder's id (8 bytes), what becomes of its tokens when they
--               expire (byte: 0 charged, 1 given back), us until they do (double)
-- ARGV[2k+1]    optional, 16 bytes: now in us (double, below zero: the server's clock) and the
--               milliseconds to keep the operation's reply (double)
-- returns       one string: now (double), then for each command 25 bytes: passed (byte), owed before,
--               owed after, the time that belongs to (doubles). For a bucket with holds, passed is
--               higher by 2 and the tokens held after the command (double) follow. When one command did
--               not pass, nothing of the call was applied: the others are what would have happened.
-- errors        FOREIGN (a key holds a string that is not ours), WRONGTYPE (not even a string),
--               ERR (a malformed call). Every error comes before the first write.
--
-- A bucket is one string, 61 bytes: the limit it was written under, owed, at. That the limit did not
-- change is then one comparison of strings, and when it did, the old one is at hand.
--
-- What is held of a bucket follows its 61 bytes, 25 for each holder: id (8 bytes), what becomes of it
-- (byte), tokens, when it expires (doubles). Every command of a holder on holds renews all it holds of
-- that bucket. What has expired is charged as of that moment, or available again; a holder that settles
-- it later is charged what the price exceeds it by, or the whole price. A bucket that is full and of
-- which something is held has owed and at zero.
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
--   10 available is the level less what is held, and a settlement is a charge.
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

-- A bucket of which something is held: owed and at under the limit that it was written under, after
-- the charges of what has expired; nothing instead of them, if it equals a bucket that was never used.
-- Then the tokens that are held, and the list of their holders. Nothing at all, if it is not a bucket.
local function read_held(stored, now)
  local limit, owed, at = unpack('<c45dd', stored)
  local kind, refill, full, owed_max, token, period = unpack('<xxxxBddddd', limit)
  local strategy, starts_empty = kind % 4, kind >= 4
  local holders, expired, held = {}, {}, 0
  for from = 62, #stored, 25 do
    local id, on_expiry, tokens, expires = unpack('<c8Bdd', stored, from)
    if not (on_expiry <= 1 and tokens >= 0 and tokens <= 4503599627370496 and tokens % 1 == 0
        and expires >= 0 and expires <= 9007199254740992) then
      return nil
    end
    local holder = { id = id, on_expiry = on_expiry, tokens = tokens, expires = expires }
    if expires > now then
      holders[#holders + 1] = holder
      held = math.min(held + tokens, 4503599627370496)
    elseif on_expiry == 0 then
      expired[#expired + 1] = holder
    end
  end

  local is_fresh = owed == 0 and not starts_empty
  table.sort(expired, function(a, b) return a.expires < b.expires end)
  for _, holder in ipairs(expired) do
    local now = holder.expires
    local tick = now
    if strategy == 1 then
      tick = now - now % period
    end
    if is_fresh then
      owed, at = 0, strategy == 2 and 0 or tick
    elseif strategy == 2 then
      owed = math.min(owed, owed_max)
      if at <= now or owed == 0 then
        owed, at = 0, 0
      end
    else
      owed = math.min(owed, owed_max)
      if strategy == 1 then
        at = at - at % period
      end
      if tick > at then
        owed, at = math.max(owed - (tick - at) * refill, 0), tick
      end
    end
    owed = math.min(owed + math.min(holder.tokens, owed_max / token) * token, owed_max)
    if strategy == 2 and owed > 0 and at == 0 then
      at = now + period
    end
    is_fresh = owed == 0 and not starts_empty
  end
  if is_fresh then
    owed, at = nil, nil
  end
  return limit, owed, at, held, holders
end

-- What a bucket's string ends with: the records of its holders. And until when it must be kept for
-- them: the last expiry, and the units that may be charged by then.
local function write_held(holders, token)
  local records, latest, units = {}, 0, 0
  for _, holder in ipairs(holders) do
    if holder.tokens > 0 then
      records[#records + 1] = pack('<c8Bdd', holder.id, holder.on_expiry, holder.tokens, holder.expires)
      latest = math.max(latest, holder.expires)
      if holder.on_expiry == 0 then
        units = units + holder.tokens * token
      end
    end
  end
  return table.concat(records), latest, units
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
    local more = #stored - 12 - 25 * k
    if more < 0 or more % 8 ~= 0 or more > 8 * k or string.sub(stored, 1, 4) ~= 'blr1' then
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
    local op, amount = unpack('<Bd', ARGV[2 * i])
    if op == 9 then
      local stored = call('GET', key)
      if stored and #stored > 61 and string.sub(stored, 1, 4) == 'bld1' then
        limit = string.sub(stored, 1, 45)
      end
      op = 7
    end
    local strategy, refill, full, owed_max, token, period = unpack('<xxxxBddddd', limit)
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
    -- What can be taken at most, and the holds of this bucket: none, unless it has some.
    local most, holders, held = full, nil, 0
    local is_new, before, at = false, nil, nil
    if stored then
      local was
      if #stored == 61 then
        was, before, at = unpack('<c45dd', stored)
      elseif #stored > 61 and #stored % 25 == 11 and string.sub(stored, 1, 4) == 'bld1' then
        was, before, at, held, holders = read_held(stored, now)
      end
      -- No NaN is within bounds.
      if not was or (before and not (before >= 0 and before <= 4503599627370496 and at >= 0
          and at <= 9007199254740992)) then
        return redis.error_reply('FOREIGN bucket ' .. i .. ' holds what is not a bucket')
      end
      if was ~= limit then
        if string.sub(was, 1, 4) ~= 'bld1' then
          return redis.error_reply('FOREIGN bucket ' .. i .. ' holds what is not a bucket')
        end
        is_new = true
        if before then
          before, at = change(was, limit, before, at, now)
        end
      end
      if held > 0 then
        most = full - math.min(held, full / token + 1) * token
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
        if after > most then
          passed, after = 0, before
        end
      elseif op == 2 then
        local room = most - before
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
      elseif op == 6 then
        local _, _, needed = unpack('<Bdd', ARGV[2 * i])
        if before + needed > most then
          passed = 0
        else
          after = before + amount
          if after > owed_max then
            after = owed_max
          end
        end
      elseif op > 6 then
        local _, _, needed, id, on_expiry, ttl = unpack('<Bddc8Bd', ARGV[2 * i])
        holders = holders or {}
        local own
        for _, holder in ipairs(holders) do
          if holder.id == id then
            own = holder
          end
        end
        if not own then
          own = { id = id, tokens = 0, expires = 0 }
          holders[#holders + 1] = own
        end
        local found = own.tokens
        if op == 8 then
          -- What is not found has expired: it was charged, or given back.
          own.tokens = math.max(found - amount, 0)
          local price = needed
          if on_expiry == 0 then
            price = math.max(price - math.max(amount - found, 0), 0)
          end
          after = math.min(before + math.min(price, owed_max / token) * token, owed_max)
        elseif before + needed > most then
          passed = 0
        else
          own.tokens = math.min(found + amount, 4503599627370496)
        end
        if passed == 1 then
          own.on_expiry = on_expiry
          own.expires = math.max(own.expires, now + ttl)
          held = 0
          for _, holder in ipairs(holders) do
            held = math.min(held + holder.tokens, 4503599627370496)
          end
        end
      end
      if strategy == 2 then
        -- The window opens with its first token and is forgotten with its last.
        if after == 0 then
          at = 0
        elseif at == 0 then
          at = now + period
        end
      end
      if k == 1 and held == 0 then
        reply = pack('<dBddd', now, passed, before, after, at)
      elseif held == 0 then
        reply[i + 1] = pack('<Bddd', passed, before, after, at)
      else
        local decided = pack('<Bdddd', passed + 2, before, after, at, held)
        if k > 1 then
          reply[i + 1] = decided
        else
          reply = pack('<d', now) .. decided
        end
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
        local records, latest, charged = '', 0, 0
        if holders then
          records, latest, charged = write_held(holders, token)
        end
        if after > 0 or starts_empty or records ~= '' then
          if after == 0 and not starts_empty then
            at = 0
          end
          value = pack('<c45dd', limit, after, at)
          -- Until it is full. Whole milliseconds plus one are never too few.
          local us = 0
          if after > 0 then
            us = at - now
          end
          if records ~= '' then
            -- As if all of it were charged when the last of it expires.
            value = value .. records
            after = math.min(after + charged, owed_max)
            us = math.max(at - now, 0) + math.max(latest - now, 0)
            if strategy == 2 then
              us = us + period
            end
          end
          if after > 0 then
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
