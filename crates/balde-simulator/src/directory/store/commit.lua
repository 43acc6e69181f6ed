-- Applies a change to records: all of it or nothing.
--
-- KEYS[1]       the counter of sequence numbers
-- KEYS[2..]     every key that the change reads or writes
-- ARGV[1]       the change: a JSON list of steps. The second item of each step, k, is the index of
--               its key in KEYS:
--                 ["absent", k]                   the record must not exist
--                 ["is", k, text]                 the record must have this text
--                 ["put", k, text]                writes a record
--                 ["delete", k]                   deletes a record
--                 ["add", k, score, member]       adds a member to a sorted set
--                 ["remove", k, member]           removes a member from a sorted set
--                 ["count", k, delta, max]        adds to a counter, which must not grow above max
--                 ["event", k, score, text, max]  appends to a list of events, which keeps the last max
-- returns       "done", "conflict", or "full" followed by the index of the counter in KEYS
--
-- Every check comes before the first write.

local steps = cjson.decode(ARGV[1])
local sums = {}
for _, step in ipairs(steps) do
  local kind, key = step[1], KEYS[step[2]]
  if kind == 'absent' then
    if redis.call('EXISTS', key) == 1 then
      return 'conflict'
    end
  elseif kind == 'is' then
    if redis.call('GET', key) ~= step[3] then
      return 'conflict'
    end
  elseif kind == 'count' then
    sums[key] = (sums[key] or 0) + step[3]
    local count = tonumber(redis.call('GET', key) or '0')
    if sums[key] > 0 and count + sums[key] > step[4] then
      return 'full' .. step[2]
    end
  end
end

for _, step in ipairs(steps) do
  local kind, key = step[1], KEYS[step[2]]
  if kind == 'put' then
    redis.call('SET', key, step[3])
  elseif kind == 'delete' then
    redis.call('DEL', key)
  elseif kind == 'add' then
    redis.call('ZADD', key, string.format('%d', step[3]), step[4])
  elseif kind == 'remove' then
    redis.call('ZREM', key, step[3])
  elseif kind == 'count' then
    if redis.call('INCRBY', key, string.format('%d', step[3])) <= 0 then
      redis.call('DEL', key)
    end
  elseif kind == 'event' then
    local number = redis.call('INCR', KEYS[1])
    redis.call('ZADD', key, string.format('%d', step[3]), string.format('%016d:', number) .. step[4])
    redis.call('ZREMRANGEBYRANK', key, 0, -step[5] - 1)
  end
end
return 'done'
