-- Every operation on a lock is one run of this script, so each is atomic.
--
-- KEYS[1]  the prefix of all keys        ARGV[1]  the prefix of all channels
-- ARGV[2]  the operation                 ARGV[3…] its arguments
--
--   PREFIX lock:NAME    sorted set   holder → end of its lease, in milliseconds of the server's time
--   PREFIX about:NAME   hash         holder → "FENCE SINCE TAG"; `kind` → the type of the lock
--   PREFIX kept:NAME    hash         holder → "DEADLINE LEASE OWNER": a hold that outlives its process
--   PREFIX names        sorted set   name → end of the first of its leases
--   PREFIX fence        string       the last fence
--
-- Leases are scores, not expiries of keys, so that the same code serves mutexes and semaphores, and so that no
-- `volatile-*` eviction can drop a lock. Every operation removes expired leases: see `tidy`.
--
-- A detached hold has a deadline before which it does not end, and the end of the lease that its process renews, 0 after
-- the release: the later of the two is its score. So versions of this script that do not know `kept:NAME` respect it.

local keys, channels, operation = KEYS[1], ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.ceil(now_us / 1000)

local function lock_of(name) return keys .. 'lock:' .. name end
local function about_of(name) return keys .. 'about:' .. name end
local function kept_of(name) return keys .. 'kept:' .. name end

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
    redis.call('DEL', lock_of(name), about_of(name), kept_of(name))
    redis.call('ZREM', keys .. 'names', name)
  end
end

local function remove(name, holder)
  if redis.call('ZREM', lock_of(name), holder) == 0 then return 0 end
  redis.call('HDEL', about_of(name), holder)
  redis.call('HDEL', kept_of(name), holder)
  settle(name)
  redis.call('PUBLISH', channels .. 'free:' .. name, '')
  announce(name)
  return 1
end

-- The deadline, lease and owner of a detached hold; nil if the hold is not detached.
local function record_of(name, holder)
  local record = redis.call('HGET', kept_of(name), holder) or ''
  local deadline, lease, owner = string.match(record, '^(%d+) (%d+) (.*)$')
  return tonumber(deadline), tonumber(lease), owner
end

local function store_record(name, holder, deadline, lease, owner)
  redis.call('HSET', kept_of(name), holder, string.format('%.0f %.0f ', deadline, lease) .. owner)
  redis.call('ZADD', lock_of(name), math.max(deadline, lease), holder)
  settle(name)
end

-- The holder that has a detached hold for an owner.
local function holder_for(name, owner)
  for _, holder in ipairs(redis.call('HKEYS', kept_of(name))) do
    local _, _, its_owner = record_of(name, holder)
    -- A version of this script that does not know `kept:NAME` leaves the records of holds that have ended.
    if its_owner == owner and redis.call('ZSCORE', lock_of(name), holder) then return holder end
  end
end

-- Starts the lease of a holder anew.
local function extend(name, holder, ttl_ms)
  local deadline, _, owner = record_of(name, holder)
  if deadline then return store_record(name, holder, deadline, now + ttl_ms, owner) end
  redis.call('ZADD', lock_of(name), now + ttl_ms, holder)
  settle(name)
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
    extend(name, holder, ttl_ms)
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
  extend(name, holder, ttl_ms)
  return 1
end

-- Ends the lease; a detached hold stays until its deadline. Returns 1 if the lease was held.
function operations.release(name, holder)
  tidy(name)
  local deadline, _, owner = record_of(name, holder)
  if not deadline or deadline <= now then return remove(name, holder) end
  if not redis.call('ZSCORE', lock_of(name), holder) then return 0 end
  store_record(name, holder, deadline, 0, owner)
  -- The lease may have ended later than the deadline: waiters have to look again.
  redis.call('PUBLISH', channels .. 'free:' .. name, '')
  announce(name)
  return 1
end

-- Ends the lease and the detached hold. Returns 1 if the lease was held.
function operations.discard(name, holder)
  tidy(name)
  return remove(name, holder)
end

-- Makes a hold outlive its process. Returns 1 if it does, 0 if the owner has such a hold already, -1 if it is not held.
function operations.detach(name, holder, owner, lasts_ms)
  tidy(name)
  local lease = redis.call('ZSCORE', lock_of(name), holder)
  if not lease then return -1 end
  local other = holder_for(name, owner)
  if other and other ~= holder then return 0 end
  store_record(name, holder, now + lasts_ms, tonumber(lease), owner)
  announce(name)
  return 1
end

-- The detached hold of an owner: {fence, milliseconds until its deadline, kind}, or {} if it has none. With `lasts_ms`,
-- its deadline is first set to that time from now.
function operations.detached(name, owner, lasts_ms)
  tidy(name)
  local holder = holder_for(name, owner)
  if not holder then return {} end
  local deadline, lease = record_of(name, holder)
  if lasts_ms then
    deadline = now + lasts_ms
    store_record(name, holder, deadline, lease, owner)
    redis.call('PUBLISH', channels .. 'free:' .. name, '')
    announce(name)
  end
  local left = string.format('%.0f', math.max(deadline - now, 0))
  return { fence_of(name, holder), left, redis.call('HGET', about_of(name), 'kind') }
end

-- Returns 1 if the owner had a detached hold, and its process does not renew it.
function operations.release_as(name, owner)
  tidy(name)
  local holder = holder_for(name, owner)
  if not holder then return 0 end
  local _, lease = record_of(name, holder)
  if lease > now then return 0 end
  return remove(name, holder)
end

-- Field, value, … of a lock, the records of its detached holds, and the time.
local function state_of(name)
  return { name, redis.call('HGETALL', about_of(name)), redis.call('HGETALL', kept_of(name)), string.format('%.0f', now) }
end

function operations.inspect(name)
  tidy(name)
  return state_of(name)
end

function operations.list()
  tidy_others(-1)
  local all = {}
  for i, name in ipairs(redis.call('ZRANGE', keys .. 'names', 0, -1)) do
    all[i] = state_of(name)
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
