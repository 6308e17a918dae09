-- A queue for each lock, in tables of the URL's database. Every change of a queue is one procedure call, which the
-- server runs to its end: a client that is paused or cut off never leaves a change half done.
--
-- Statements end with a line `//`. They keep to what MariaDB 10.6 and MySQL 8 have in common. All times are microseconds
-- of Unix time by the server's clock, in UTC, which no time zone and no daylight saving moves. Texts are binary, so that
-- no collation takes two names for one.

-- Locks share 256 shards, by the hash of the name. The row of a shard serializes the changes of its locks, and has the
-- highest fence of them. Names of one shard wait for each other's transactions, which costs only time.
CREATE TABLE IF NOT EXISTS lockkeeper_shard (
    id      SMALLINT NOT NULL PRIMARY KEY,
    fence   BIGINT NOT NULL,
    -- Rises with every change of the holders of a lock of this shard.
    changes BIGINT NOT NULL
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS lockkeeper_queue (
    id         BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name       VARBINARY(512) NOT NULL,
    holder     VARBINARY(512) NOT NULL,
    -- The instance of the library that made the request: it asks for the grants of all its requests at once.
    client     VARBINARY(64) NOT NULL,
    kind       VARBINARY(9) NOT NULL,
    permits    INT NOT NULL,
    ttl        BIGINT NOT NULL,
    tag        MEDIUMBLOB NOT NULL,
    asked      BIGINT NOT NULL,
    -- The client knows of the grant.
    claimed    BOOLEAN NOT NULL,
    -- The end of the lease; of a waiter, or of a grant of which the client does not know yet: the end of its presence.
    ends       BIGINT NOT NULL,
    -- NULL while waiting.
    fence      BIGINT,
    held_since BIGINT,
    UNIQUE KEY (holder),
    KEY (name, id),
    KEY (client, claimed)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
-- Detached holds: they last until `ends`, with or without their entry in the queue.
CREATE TABLE IF NOT EXISTS lockkeeper_kept (
    name       VARBINARY(512) NOT NULL,
    owner      VARBINARY(512) NOT NULL,
    -- The entry from which the hold was made. As long as it is in the queue, both count as one.
    holder     VARBINARY(512) NOT NULL,
    kind       VARBINARY(9) NOT NULL,
    permits    INT NOT NULL,
    fence      BIGINT NOT NULL,
    tag        MEDIUMBLOB NOT NULL,
    held_since BIGINT NOT NULL,
    ends       BIGINT NOT NULL,
    PRIMARY KEY (name, owner),
    UNIQUE KEY (holder)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
//
CREATE TABLE IF NOT EXISTS lockkeeper_schema (
    version INT NOT NULL PRIMARY KEY
) ENGINE = InnoDB
//
INSERT IGNORE INTO lockkeeper_shard (id, fence, changes)
    SELECT a.n * 16 + b.n, 0, 0 FROM
        (SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6
         UNION SELECT 7 UNION SELECT 8 UNION SELECT 9 UNION SELECT 10 UNION SELECT 11 UNION SELECT 12 UNION SELECT 13
         UNION SELECT 14 UNION SELECT 15) a,
        (SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6
         UNION SELECT 7 UNION SELECT 8 UNION SELECT 9 UNION SELECT 10 UNION SELECT 11 UNION SELECT 12 UNION SELECT 13
         UNION SELECT 14 UNION SELECT 15) b
//
DROP PROCEDURE IF EXISTS lockkeeper_edit
//
-- Begins a change of one lock: waits for its shard, and reads the clock AFTER that.
CREATE PROCEDURE lockkeeper_edit(IN lock_name VARBINARY(512), OUT shard_id INT, OUT now_us BIGINT)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE ignored BIGINT;
    SELECT s.id, s.fence INTO shard_id, ignored FROM lockkeeper_shard s WHERE s.id = CRC32(lock_name) MOD 256 FOR UPDATE;
    SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
END
//
DROP PROCEDURE IF EXISTS lockkeeper_settle
//
-- Removes entries and detached holds whose time is over, and grants in order up to the first entry that must wait.
-- `changed` is whether the caller has changed the holders. Requires `edit`. Detached holds come before the queue; one
-- whose entry is in the queue counts there.
--
-- The fence is at least the server's time, so that it rises also if the server has lost its last fences.
CREATE PROCEDURE lockkeeper_settle(
    IN lock_name VARBINARY(512), IN shard_id INT, IN now_us BIGINT, IN changed BOOLEAN)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE holders, next_permits INT DEFAULT 0;
    DECLARE alone BOOLEAN DEFAULT FALSE;
    DECLARE next_id, new_fence BIGINT;
    DECLARE next_kind VARBINARY(9);
    DELETE FROM lockkeeper_kept WHERE name = lock_name AND ends <= now_us;
    SET changed = changed OR ROW_COUNT() > 0;
    DELETE FROM lockkeeper_queue WHERE name = lock_name AND ends <= now_us;
    SET changed = changed OR ROW_COUNT() > 0;
    SELECT COUNT(*), COALESCE(MAX(h.kind = 'exclusive'), FALSE) INTO holders, alone FROM (
        SELECT q.kind FROM lockkeeper_queue q WHERE q.name = lock_name AND q.fence IS NOT NULL
        UNION ALL
        SELECT k.kind FROM lockkeeper_kept k WHERE k.name = lock_name
            AND NOT EXISTS (SELECT 1 FROM lockkeeper_queue q WHERE q.holder = k.holder)) h;
    grants: LOOP
        SET next_id = NULL;
        SELECT q.id, q.kind, q.permits INTO next_id, next_kind, next_permits FROM lockkeeper_queue q
            WHERE q.name = lock_name AND q.fence IS NULL ORDER BY q.id LIMIT 1;
        IF next_id IS NULL OR alone OR (next_kind = 'exclusive' AND holders > 0)
            OR (next_kind = 'permit' AND holders >= next_permits) THEN
            LEAVE grants;
        END IF;
        SELECT GREATEST(s.fence + 1, now_us) INTO new_fence FROM lockkeeper_shard s WHERE s.id = shard_id;
        UPDATE lockkeeper_shard SET fence = new_fence WHERE id = shard_id;
        UPDATE lockkeeper_queue SET fence = new_fence, held_since = now_us,
            ends = now_us + GREATEST(LEAST(ttl, 10000000), 2000000) WHERE id = next_id;
        SET holders = holders + 1, alone = next_kind = 'exclusive', changed = TRUE;
    END LOOP;
    IF changed THEN
        UPDATE lockkeeper_shard s SET s.changes = s.changes + 1 WHERE s.id = shard_id;
    END IF;
END
//
DROP PROCEDURE IF EXISTS lockkeeper_enter
//
-- Joins the queue; with `impatient` only if the lock is granted at once. A repeated call finds the entry of the first.
-- `used_as` is set if the name is another type of lock.
CREATE PROCEDURE lockkeeper_enter(
    IN lock_name VARBINARY(512), IN entry_holder VARBINARY(512), IN entry_client VARBINARY(64),
    IN entry_kind VARBINARY(9), IN entry_permits INT, IN entry_ttl BIGINT, IN entry_tag MEDIUMBLOB, IN impatient BOOLEAN)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE shard_id, used_as INT;
    DECLARE now_us, entered, granted BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    CALL lockkeeper_edit(lock_name, shard_id, now_us);
    SELECT q.id INTO entered FROM lockkeeper_queue q WHERE q.holder = entry_holder;
    IF entered IS NULL THEN
        SELECT u.permits INTO used_as FROM (
            SELECT q.kind, q.permits FROM lockkeeper_queue q WHERE q.name = lock_name AND q.ends > now_us
            UNION ALL
            SELECT k.kind, k.permits FROM lockkeeper_kept k WHERE k.name = lock_name AND k.ends > now_us) u
            WHERE (u.kind = 'permit') <> (entry_kind = 'permit') OR u.permits <> entry_permits LIMIT 1;
        IF used_as IS NULL THEN
            INSERT INTO lockkeeper_queue (name, holder, client, kind, permits, ttl, tag, asked, claimed, ends)
                VALUES (lock_name, entry_holder, entry_client, entry_kind, entry_permits, entry_ttl, entry_tag, now_us,
                        FALSE, now_us + GREATEST(LEAST(entry_ttl, 10000000), 2000000));
            SET entered = LAST_INSERT_ID();
        END IF;
    END IF;
    IF entered IS NOT NULL THEN
        CALL lockkeeper_settle(lock_name, shard_id, now_us, FALSE);
        UPDATE lockkeeper_queue SET claimed = TRUE, ends = now_us + ttl WHERE id = entered AND fence IS NOT NULL;
        SELECT q.fence INTO granted FROM lockkeeper_queue q WHERE q.id = entered;
        IF granted IS NULL AND impatient THEN
            DELETE FROM lockkeeper_queue WHERE id = entered;
        END IF;
    END IF;
    COMMIT;
    SELECT granted, used_as;
END
//
DROP PROCEDURE IF EXISTS lockkeeper_look
//
-- Checks a waiter's request, and proves that the waiter is present. If it is granted: the fence, and its lease starts
-- anew. Otherwise: whether the entry still waits, and the time until the first hold ends.
CREATE PROCEDURE lockkeeper_look(IN lock_name VARBINARY(512), IN entry_holder VARBINARY(512))
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE shard_id, waits INT;
    DECLARE now_us, granted, first_end BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    CALL lockkeeper_edit(lock_name, shard_id, now_us);
    CALL lockkeeper_settle(lock_name, shard_id, now_us, FALSE);
    UPDATE lockkeeper_queue SET claimed = fence IS NOT NULL,
        ends = now_us + IF(fence IS NULL, GREATEST(LEAST(ttl, 10000000), 2000000), ttl) WHERE holder = entry_holder;
    SELECT q.fence, q.fence IS NULL INTO granted, waits FROM lockkeeper_queue q WHERE q.holder = entry_holder;
    SELECT MIN(h.ends) - now_us INTO first_end FROM (
        SELECT q.ends FROM lockkeeper_queue q WHERE q.name = lock_name AND q.fence IS NOT NULL
        UNION ALL SELECT k.ends FROM lockkeeper_kept k WHERE k.name = lock_name) h;
    COMMIT;
    SELECT granted, waits, first_end;
END
//
DROP PROCEDURE IF EXISTS lockkeeper_leave
//
-- Removes an entry, granted or waiting; with `discarded` also its detached hold, which continues otherwise. Returns
-- whether the entry existed.
CREATE PROCEDURE lockkeeper_leave(
    IN lock_name VARBINARY(512), IN entry_holder VARBINARY(512), IN discarded BOOLEAN)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE shard_id INT;
    DECLARE existed, changed BOOLEAN DEFAULT FALSE;
    DECLARE now_us BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    CALL lockkeeper_edit(lock_name, shard_id, now_us);
    IF discarded THEN
        DELETE FROM lockkeeper_kept WHERE holder = entry_holder;
        SET changed = ROW_COUNT() > 0;
    END IF;
    DELETE FROM lockkeeper_queue WHERE holder = entry_holder;
    SET existed = ROW_COUNT() > 0;
    CALL lockkeeper_settle(lock_name, shard_id, now_us, changed OR existed);
    COMMIT;
    SELECT existed;
END
//
DROP PROCEDURE IF EXISTS lockkeeper_detach
//
-- Makes a hold outlive its lease. Returns 1 if it does, 0 if the owner has such a hold already, -1 if it is not held.
CREATE PROCEDURE lockkeeper_detach(
    IN lock_name VARBINARY(512), IN entry_holder VARBINARY(512), IN new_owner VARBINARY(512), IN lasts BIGINT)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE shard_id, stored INT;
    DECLARE now_us BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    CALL lockkeeper_edit(lock_name, shard_id, now_us);
    CALL lockkeeper_settle(lock_name, shard_id, now_us, FALSE);
    SELECT k.holder = entry_holder INTO stored FROM lockkeeper_kept k WHERE k.name = lock_name AND k.owner = new_owner;
    IF stored IS NULL THEN
        INSERT INTO lockkeeper_kept (name, owner, holder, kind, permits, fence, tag, held_since, ends)
            SELECT q.name, new_owner, q.holder, q.kind, q.permits, q.fence, q.tag, q.held_since, now_us + lasts
            FROM lockkeeper_queue q WHERE q.holder = entry_holder AND q.fence IS NOT NULL;
        SET stored = IF(ROW_COUNT() > 0, 1, -1);
        UPDATE lockkeeper_shard s SET s.changes = s.changes + 1 WHERE s.id = shard_id;
    END IF;
    COMMIT;
    SELECT stored;
END
//
DROP PROCEDURE IF EXISTS lockkeeper_detached
//
-- The detached hold of an owner; no row if it has none. With `lasts`, its deadline is first set to that time from now.
CREATE PROCEDURE lockkeeper_detached(IN lock_name VARBINARY(512), IN its_owner VARBINARY(512), IN lasts BIGINT)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE shard_id INT;
    DECLARE now_us BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    CALL lockkeeper_edit(lock_name, shard_id, now_us);
    CALL lockkeeper_settle(lock_name, shard_id, now_us, FALSE);
    IF lasts IS NOT NULL THEN
        UPDATE lockkeeper_kept SET ends = now_us + lasts WHERE name = lock_name AND owner = its_owner;
        UPDATE lockkeeper_shard s SET s.changes = s.changes + 1 WHERE s.id = shard_id;
    END IF;
    COMMIT;
    SELECT k.fence, k.ends - now_us, k.kind, k.permits FROM lockkeeper_kept k
        WHERE k.name = lock_name AND k.owner = its_owner;
END
//
DROP PROCEDURE IF EXISTS lockkeeper_release_as
//
-- Ends the detached hold of an owner. Returns false if it has none, or if its entry still holds.
CREATE PROCEDURE lockkeeper_release_as(IN lock_name VARBINARY(512), IN its_owner VARBINARY(512))
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE shard_id INT;
    DECLARE released BOOLEAN;
    DECLARE now_us BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    CALL lockkeeper_edit(lock_name, shard_id, now_us);
    CALL lockkeeper_settle(lock_name, shard_id, now_us, FALSE);
    DELETE FROM lockkeeper_kept WHERE name = lock_name AND owner = its_owner
        AND NOT EXISTS (SELECT 1 FROM lockkeeper_queue q WHERE q.holder = lockkeeper_kept.holder);
    SET released = ROW_COUNT() > 0;
    CALL lockkeeper_settle(lock_name, shard_id, now_us, released);
    COMMIT;
    SELECT released;
END
//
DROP PROCEDURE IF EXISTS lockkeeper_tidy
//
-- Settles one queue without joining it.
CREATE PROCEDURE lockkeeper_tidy(IN lock_name VARBINARY(512))
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE shard_id INT;
    DECLARE now_us BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    CALL lockkeeper_edit(lock_name, shard_id, now_us);
    CALL lockkeeper_settle(lock_name, shard_id, now_us, FALSE);
    COMMIT;
END
//
REPLACE INTO lockkeeper_schema (version) VALUES (1)
