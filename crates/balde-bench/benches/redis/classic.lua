-- The classic: the float token bucket in a hash that many services carry around, kept here only
-- to be measured against. It is not part of balde and balde never loads it.
--
-- KEYS[1]  the bucket
-- ARGV[1]  capacity, ARGV[2] tokens per second, ARGV[3] tokens asked for
-- returns  { 1 or 0, whole tokens left, milliseconds until the same request would pass }
--
-- It reads the server's clock, as decide.lua does. Tokens and time are floats, so it drifts; it
-- knows no debt, no credit, no change of limit, and one bucket per call.
local capacity = tonumber(ARGV[1])
local rate = tonumber(ARGV[2])
local requested = tonumber(ARGV[3])

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000

local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'timestamp')
local tokens = tonumber(bucket[1])
local last = tonumber(bucket[2])
if tokens == nil then
  tokens = capacity
  last = now
end

tokens = math.min(capacity, tokens + math.max(0, now - last) * rate)
local allowed = 0
local retry_after = 0
if tokens >= requested then
  tokens = tokens - requested
  allowed = 1
else
  retry_after = math.ceil((requested - tokens) / rate * 1000)
end

redis.call('HMSET', KEYS[1], 'tokens', tokens, 'timestamp', now)
redis.call('EXPIRE', KEYS[1], math.ceil(capacity / rate * 2))
return { allowed, math.floor(tokens), retry_after }
