-- A queue for each lock, in a schema of its own. Every change of a queue is one function call, and so one transaction
-- that the server runs to its end: a client that is paused or cut off never leaves a change half done.

CREATE SCHEMA IF NOT EXISTS lockkeeper;

-- Sequences are durable and never repeat a value, also after a crash.
CREATE SEQUENCE IF NOT EXISTS lockkeeper.fence;
CREATE SEQUENCE IF NOT EXISTS lockkeeper.session;
CREATE SEQUENCE IF NOT EXISTS lockkeeper.entry;

-- A fence above all earlier ones. A promoted standby, or a server that was recovered from a backup, may lack the last
-- values of the sequence, but has a higher timeline than every server from which it descends.
CREATE OR REPLACE FUNCTION lockkeeper.next_fence() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT ((('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint % 524288) << 44)
        + nextval('lockkeeper.fence')
$$;

-- Unlogged: an entry is void without its session, and no session survives a crash.
CREATE UNLOGGED TABLE IF NOT EXISTS lockkeeper.queue (
    id         bigint PRIMARY KEY DEFAULT nextval('lockkeeper.entry'),
    name       text NOT NULL,
    holder     text NOT NULL UNIQUE,
    session    bigint NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('exclusive', 'shared', 'permit')),
    permits    integer NOT NULL,
    ttl        interval NOT NULL,
    tag        text NOT NULL,
    asked      timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- NULL while waiting
    fence      bigint,
    held_since timestamptz,
    ends       timestamptz
);
-- In version 2 the column had a sequence of its own, which is not usable after the promotion of a standby, as the sequence
-- of an unlogged table is unlogged too.
ALTER TABLE lockkeeper.queue ALTER COLUMN id DROP IDENTITY IF EXISTS,
    ALTER COLUMN id SET DEFAULT nextval('lockkeeper.entry');
SELECT setval('lockkeeper.entry', greatest(max(id) + 1, nextval('lockkeeper.entry'))) FROM lockkeeper.queue;
CREATE INDEX IF NOT EXISTS queue_order ON lockkeeper.queue (name, id);

-- Detached holds: they last until `ends`, with or without their entry in the queue. Logged: they need no session.
CREATE TABLE IF NOT EXISTS lockkeeper.kept (
    name       text NOT NULL,
    owner      text NOT NULL,
    -- The entry from which the hold was made. As long as it is in the queue, both count as one.
    holder     text NOT NULL UNIQUE,
    kind       text NOT NULL CHECK (kind IN ('exclusive', 'shared', 'permit')),
    permits    integer NOT NULL,
    fence      bigint NOT NULL,
    tag        text NOT NULL,
    held_since timestamptz NOT NULL,
    ends       timestamptz NOT NULL,
    PRIMARY KEY (name, owner)
);

-- The key of the advisory lock that a session holds while its connection exists: "LK" and 48 bits of its number.
CREATE OR REPLACE FUNCTION lockkeeper.life(session bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT (19275::bigint << 48) | session $$;

-- Whether a session is alive. `me` is the session of the caller, which is. The shared lock is available only if the
-- session is dead; its number is never used again.
CREATE OR REPLACE FUNCTION lockkeeper.lives(session bigint, me bigint) RETURNS boolean LANGUAGE sql VOLATILE AS
$$ SELECT session = me OR NOT pg_try_advisory_xact_lock_shared(lockkeeper.life(session)) $$;

-- Serializes changes of the queue of one name. Different names may have the same hash, which costs only time.
--
-- In version 1 it returned nothing. A client of version 1 would replace the functions below by its own, which do not
-- know detached holds; it fails here, as PostgreSQL does not replace a function by one with another result.
DROP FUNCTION IF EXISTS lockkeeper.edit(text);
CREATE FUNCTION lockkeeper.edit(name text) RETURNS boolean LANGUAGE sql VOLATILE AS
$$ SELECT true FROM pg_advisory_xact_lock(19276, hashtext(name)) $$;

-- Removes holders that are dead or whose lease ended, and grants in order up to the first entry that must wait.
-- Requires `edit`. The session of each new holder is notified, except that of `entering`, which gets the reply of
-- this call. Detached holds come before the queue; one whose entry is in the queue counts there.
CREATE OR REPLACE FUNCTION lockkeeper.settle(lock_name text, me bigint, entering bigint DEFAULT 0) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    entry lockkeeper.queue;
    holders integer := 0;
    alone boolean := false;
    changed boolean := false;
    gone boolean;
BEGIN
    IF EXISTS (SELECT FROM lockkeeper.kept k WHERE k.name = lock_name) THEN
        DELETE FROM lockkeeper.kept k WHERE k.name = lock_name AND k.ends <= clock_timestamp();
        changed := FOUND;
        SELECT count(*), coalesce(bool_or(k.kind = 'exclusive'), false) INTO holders, alone FROM lockkeeper.kept k
            WHERE k.name = lock_name AND NOT EXISTS (SELECT FROM lockkeeper.queue q WHERE q.holder = k.holder);
    END IF;
    FOR entry IN SELECT * FROM lockkeeper.queue q WHERE q.name = lock_name ORDER BY q.id LOOP
        IF entry.fence IS NULL THEN
            EXIT WHEN alone OR CASE entry.kind
                WHEN 'exclusive' THEN holders > 0
                WHEN 'permit' THEN holders >= entry.permits
                ELSE false END;
        END IF;
        gone := false;
        IF NOT lockkeeper.lives(entry.session, me) THEN
            DELETE FROM lockkeeper.queue q WHERE q.id = entry.id;
            gone := true;
        ELSIF entry.fence IS NOT NULL AND entry.ends <= clock_timestamp() THEN
            -- The condition is repeated here because a renewal may have come first.
            DELETE FROM lockkeeper.queue q WHERE q.id = entry.id AND q.ends <= clock_timestamp();
            gone := FOUND;
        END IF;
        IF gone THEN
            changed := true;
            -- A detached hold continues without its entry.
            CONTINUE WHEN NOT EXISTS (SELECT FROM lockkeeper.kept k WHERE k.holder = entry.holder);
            holders := holders + 1;
            alone := entry.kind = 'exclusive';
            CONTINUE;
        END IF;
        IF entry.fence IS NULL THEN
            UPDATE lockkeeper.queue q SET fence = lockkeeper.next_fence(),
                held_since = clock_timestamp(), ends = clock_timestamp() + q.ttl WHERE q.id = entry.id;
            changed := true;
            IF entry.id <> entering THEN
                PERFORM pg_notify('lockkeeper_' || entry.session, entry.holder);
            END IF;
        END IF;
        holders := holders + 1;
        alone := entry.kind = 'exclusive';
    END LOOP;
    IF changed THEN
        PERFORM pg_notify('lockkeeper_changed', lock_name);
    END IF;
END $$;

-- Joins the queue; with `impatient` only if the lock is granted at once. `used_as` is set if the name is another type
-- of lock.
CREATE OR REPLACE FUNCTION lockkeeper.enter(
    lock_name text, me bigint, entry_holder text, entry_kind text, entry_permits integer, ttl_ms bigint, entry_tag text,
    impatient boolean, OUT granted bigint, OUT used_as integer) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    entered bigint;
BEGIN
    PERFORM lockkeeper.edit(lock_name);
    SELECT CASE q.kind WHEN 'permit' THEN q.permits ELSE 0 END INTO used_as FROM lockkeeper.queue q
        WHERE q.name = lock_name AND (q.kind = 'permit', q.permits) <> (entry_kind = 'permit', entry_permits)
            AND (q.ends IS NULL OR q.ends > clock_timestamp()) AND lockkeeper.lives(q.session, me) LIMIT 1;
    IF used_as IS NULL THEN
        SELECT CASE k.kind WHEN 'permit' THEN k.permits ELSE 0 END INTO used_as FROM lockkeeper.kept k
            WHERE k.name = lock_name AND (k.kind = 'permit', k.permits) <> (entry_kind = 'permit', entry_permits)
                AND k.ends > clock_timestamp() LIMIT 1;
    END IF;
    IF used_as IS NOT NULL THEN
        RETURN;
    END IF;
    INSERT INTO lockkeeper.queue AS q (name, holder, session, kind, permits, ttl, tag)
        VALUES (lock_name, entry_holder, me, entry_kind, entry_permits, ttl_ms * interval '1 ms', entry_tag)
        RETURNING q.id INTO entered;
    PERFORM lockkeeper.settle(lock_name, me, entered);
    SELECT q.fence INTO granted FROM lockkeeper.queue q WHERE q.id = entered;
    IF granted IS NULL AND impatient THEN
        DELETE FROM lockkeeper.queue q WHERE q.id = entered;
    END IF;
END $$;

-- Checks a waiter's request. If it is granted: the fence, and its lease starts anew. Otherwise: the number of waiters
-- ahead, the time until the first lease ends, and another session that holds the lock. `place` is NULL if the entry
-- is gone.
CREATE OR REPLACE FUNCTION lockkeeper.look(
    lock_name text, me bigint, entry_holder text,
    OUT granted bigint, OUT place bigint, OUT ends_ms double precision, OUT held_by bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM lockkeeper.edit(lock_name);
    PERFORM lockkeeper.settle(lock_name, me);
    SELECT lockkeeper.renew(entry_holder) INTO granted;
    IF granted IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT count(*) INTO place FROM lockkeeper.queue q, lockkeeper.queue mine
        WHERE mine.holder = entry_holder AND q.name = lock_name AND q.fence IS NULL AND q.id < mine.id
        GROUP BY mine.id;
    IF place IS NULL THEN
        SELECT 0 INTO place FROM lockkeeper.queue q WHERE q.holder = entry_holder;
    END IF;
    SELECT min(q.session) FILTER (WHERE q.session <> me) INTO held_by
        FROM lockkeeper.queue q WHERE q.name = lock_name AND q.fence IS NOT NULL;
    SELECT extract(epoch FROM min(holds.ends) - clock_timestamp()) * 1000 INTO ends_ms FROM (
        SELECT q.ends FROM lockkeeper.queue q WHERE q.name = lock_name AND q.fence IS NOT NULL
        UNION ALL SELECT k.ends FROM lockkeeper.kept k WHERE k.name = lock_name) holds;
END $$;

-- Renews the lease. Returns the fence if the entry still holds the lock.
CREATE OR REPLACE FUNCTION lockkeeper.renew(entry_holder text) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    UPDATE lockkeeper.queue q SET ends = clock_timestamp() + q.ttl
        WHERE q.holder = entry_holder AND q.fence IS NOT NULL AND q.ends > clock_timestamp() RETURNING q.fence
$$;

-- Removes an entry, granted or waiting; its detached hold continues. Returns false if it did not exist.
CREATE OR REPLACE FUNCTION lockkeeper.leave(lock_name text, me bigint, entry_holder text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    left_holder text;
    had_fence bigint;
BEGIN
    PERFORM lockkeeper.edit(lock_name);
    DELETE FROM lockkeeper.queue q WHERE q.holder = entry_holder RETURNING q.holder, q.fence INTO left_holder, had_fence;
    PERFORM lockkeeper.settle(lock_name, me);
    IF had_fence IS NOT NULL THEN
        PERFORM pg_notify('lockkeeper_changed', lock_name);
    END IF;
    RETURN left_holder IS NOT NULL;
END $$;

-- Removes an entry and its detached hold. Returns false if the entry did not exist.
CREATE OR REPLACE FUNCTION lockkeeper.discard(lock_name text, me bigint, entry_holder text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM lockkeeper.edit(lock_name);
    DELETE FROM lockkeeper.kept k WHERE k.holder = entry_holder;
    RETURN lockkeeper.leave(lock_name, me, entry_holder);
END $$;

-- Makes a hold outlive its session. Returns 1 if it does, 0 if the owner has such a hold already, -1 if it is not held.
CREATE OR REPLACE FUNCTION lockkeeper.detach(
    lock_name text, me bigint, entry_holder text, new_owner text, lasts_ms bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM lockkeeper.edit(lock_name);
    PERFORM lockkeeper.settle(lock_name, me);
    IF EXISTS (SELECT FROM lockkeeper.kept k WHERE k.name = lock_name AND k.owner = new_owner) THEN
        RETURN 0;
    END IF;
    INSERT INTO lockkeeper.kept (name, owner, holder, kind, permits, fence, tag, held_since, ends)
        SELECT q.name, new_owner, q.holder, q.kind, q.permits, q.fence, q.tag, q.held_since,
            clock_timestamp() + lasts_ms * interval '1 ms'
        FROM lockkeeper.queue q WHERE q.holder = entry_holder AND q.fence IS NOT NULL;
    IF NOT FOUND THEN
        RETURN -1;
    END IF;
    PERFORM pg_notify('lockkeeper_changed', lock_name);
    RETURN 1;
END $$;

-- The detached hold of an owner; no row if it has none. With `lasts_ms`, its deadline is first set to that time from
-- now.
CREATE OR REPLACE FUNCTION lockkeeper.detached(lock_name text, me bigint, its_owner text, lasts_ms bigint)
RETURNS TABLE (fence bigint, left_ms double precision, kind text, permits integer) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM lockkeeper.edit(lock_name);
    PERFORM lockkeeper.settle(lock_name, me);
    IF lasts_ms IS NOT NULL THEN
        UPDATE lockkeeper.kept k SET ends = clock_timestamp() + lasts_ms * interval '1 ms'
            WHERE k.name = lock_name AND k.owner = its_owner;
        PERFORM pg_notify('lockkeeper_changed', lock_name);
    END IF;
    RETURN QUERY SELECT k.fence, (extract(epoch FROM k.ends - clock_timestamp()) * 1000)::double precision, k.kind,
        k.permits FROM lockkeeper.kept k WHERE k.name = lock_name AND k.owner = its_owner;
END $$;

-- Ends the detached hold of an owner. Returns false if it has none, or if its session is alive and still holds.
CREATE OR REPLACE FUNCTION lockkeeper.release_as(lock_name text, me bigint, its_owner text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    released boolean;
BEGIN
    PERFORM lockkeeper.edit(lock_name);
    PERFORM lockkeeper.settle(lock_name, me);
    DELETE FROM lockkeeper.kept k WHERE k.name = lock_name AND k.owner = its_owner
        AND NOT EXISTS (SELECT FROM lockkeeper.queue q WHERE q.holder = k.holder);
    released := FOUND;
    PERFORM lockkeeper.settle(lock_name, me);
    IF released THEN
        PERFORM pg_notify('lockkeeper_changed', lock_name);
    END IF;
    RETURN released;
END $$;

-- Settles one queue without joining it.
CREATE OR REPLACE FUNCTION lockkeeper.tidy(lock_name text, me bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM lockkeeper.edit(lock_name);
    PERFORM lockkeeper.settle(lock_name, me);
END $$;

COMMENT ON SCHEMA lockkeeper IS 'lockkeeper 3';
