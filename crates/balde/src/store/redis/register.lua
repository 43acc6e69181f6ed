-- Small values that processes share, read together or changed one at a time.
--
-- KEYS[1..k]    the registers.
-- ARGV[1]       optional: what KEYS[1] has to hold for the change to happen, empty for nothing.
-- ARGV[2]       what it holds then.
-- ARGV[3]       for how many milliseconds.
-- returns       a list: the server's clock in microseconds, 1 if the change happened and 0 if not, then
--               what each register holds now, empty for nothing.
-- errors        WRONGTYPE (a key holds something that is no string), before the first write.
--
-- The law it keeps: of several callers that change a register from the same value, one succeeds, and
-- the others get the new value.

local time = redis.call('TIME')
local reply = { time[1] .. string.format('%06d', time[2]), 0 }
if ARGV[1] then
  local held = redis.call('GET', KEYS[1]) or ''
  if held == ARGV[1] then
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
    reply[2] = 1
  end
end
for i = 1, #KEYS do
  reply[i + 2] = redis.call('GET', KEYS[i]) or ''
end
return reply
