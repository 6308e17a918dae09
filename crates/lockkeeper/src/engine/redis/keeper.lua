-- Every operation on a lock is one run of this script, so each is atomic.
--
-- KEYS[1]  the prefix of all keys        ARGV[1]  the prefix of all channels
-- ARGV[2]  the operation                 ARGV[3…] its arguments
--
--   PREFIX lock:NAME    sorted set   holder → end of its lease, in milliseconds of the server's time
--   PREFIX about:NAME   hash         holder → "FENCE SINCE TAG"; `kind` → the type of the lock
--   PREFIX names        sorted set   name → end of the first of its leases
--   PREFIX fence        string       the last fence
--
-- Leases are scores, not expiries of keys, so that the same code serves mutexes and semaphores, and so that no
-- `volatile-*` eviction can drop a lock. Every operation removes expired leases: see `tidy`.

local keys, channels, operation = KEYS[1], ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.ceil(now_us / 1000)

local function lock_of(name) return keys .. 'lock:' .. name end
local function about_of(name) return keys .. 'about:' .. name end

local function announce(name)
  redis.call('PUBLISH', channels .. 'changed:' .. name, '')
  redis.call('PUBLISH', channels .. 'changed', name)
end

-- Updates `names` after a change of the lock, and deletes a lock without holders.
local function settle(name)
  local first = redis.call('ZRANGE', lock_of(name), 0, 0, 'WITHSCORES')
  if first[2] then
    redis.call('ZADD', keys .. 'names', first[2], name)
  else
    redis.call('DEL', lock_of(name), about_of(name))
    redis.call('ZREM', keys .. 'names', name)
  end
end

local function remove(name, holder)
  if redis.call('ZREM', lock_of(name), holder) == 0 then return 0 end
  redis.call('HDEL', about_of(name), holder)
  settle(name)
  redis.call('PUBLISH', channels .. 'free:' .. name, '')
  announce(name)
  return 1
end

-- Ends the expired leases of a lock.
local function tidy(name)
  for _, holder in ipairs(redis.call('ZRANGEBYSCORE', lock_of(name), '-inf', now)) do
    remove(name, holder)
  end
end

-- The same for other locks, `limit` at a time, so that leases of crashed holders do not accumulate.
local function tidy_others(limit)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', keys .. 'names', '-inf', now, 'LIMIT', 0, limit)) do
    tidy(name)
    settle(name)
  end
end

-- A fence above the last one AND at least the time in microseconds: the counter covers a clock that is set back, the
-- clock covers lost data. Both are exact in a Lua number until the year 2255.
local function next_fence()
  local last = tonumber(redis.call('GET', keys .. 'fence') or '0')
  if not last or last >= 9007199254740991 then return nil end
  local fence = string.format('%.0f', math.max(last + 1, now_us))
  redis.call('SET', keys .. 'fence', fence)
  return fence
end

local function fence_of(name, holder)
  return string.match(redis.call('HGET', about_of(name), holder) or '', '^%d+') or '0'
end

local operations = {}

-- {1, fence}: granted, now or by an earlier request whose reply was lost · {0, ms}: busy, try again after that time ·
-- {-1, kind}: another type of lock
function operations.acquire(name, kind, permits, holder, ttl_ms, tag)
  tidy_others(2)
  tidy(name)
  if redis.call('ZSCORE', lock_of(name), holder) then
    redis.call('ZADD', lock_of(name), now + ttl_ms, holder)
    settle(name)
    return { 1, fence_of(name, holder) }
  end
  local used_as = redis.call('HGET', about_of(name), 'kind')
  if used_as and used_as ~= kind then return { -1, used_as } end
  if redis.call('ZCARD', lock_of(name)) >= tonumber(permits) then
    local first = redis.call('ZRANGE', lock_of(name), 0, 0, 'WITHSCORES')
    return { 0, string.format('%.0f', first[2] - now) }
  end
  local fence = next_fence()
  if not fence then return redis.error_reply('ERR the key ' .. keys .. 'fence is damaged') end
  redis.call('ZADD', lock_of(name), now + ttl_ms, holder)
  redis.call('HSET', about_of(name), 'kind', kind, holder, fence .. ' ' .. string.format('%.0f', now) .. ' ' .. tag)
  settle(name)
  announce(name)
  return { 1, fence }
end

-- Returns 1 if the lease is still held.
function operations.renew(name, holder, ttl_ms)
  tidy(name)
  if not redis.call('ZSCORE', lock_of(name), holder) then return 0 end
  redis.call('ZADD', lock_of(name), now + ttl_ms, holder)
  settle(name)
  return 1
end

-- Returns 1 if the lease was held.
function operations.release(name, holder)
  tidy(name)
  return remove(name, holder)
end

-- Returns field, value, … of the lock.
function operations.inspect(name)
  tidy(name)
  return redis.call('HGETALL', about_of(name))
end

-- Returns {name, {field, value, …}}, …
function operations.list()
  tidy_others(-1)
  local all = {}
  for i, name in ipairs(redis.call('ZRANGE', keys .. 'names', 0, -1)) do
    all[i] = { name, redis.call('HGETALL', about_of(name)) }
  end
  return all
end

-- Returns the milliseconds until the first lease ends, of all locks or of one; -1 if there is none.
function operations.first_end(name)
  tidy_others(-1)
  local key = name and lock_of(name) or keys .. 'names'
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return first[2] and math.max(first[2] - now, 0) or -1
end

return operations[operation](unpack(ARGV, 3))
