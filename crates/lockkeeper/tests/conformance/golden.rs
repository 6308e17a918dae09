//! The tables of PostgreSQL and the keys of Redis; those of MySQL are in `mysql.rs`. Clients of different versions use one
//! server at the same time.

#[cfg(any(feature = "postgres", feature = "redis"))]
use crate::backend::{acquire, open};
#[cfg(any(feature = "postgres", feature = "redis"))]
use lockkeeper_testbed::golden::Golden;
#[cfg(any(feature = "postgres", feature = "redis"))]
use std::time::Duration;

/// A tag as a server stores it, without the values that differ from run to run.
pub fn stable_tag(tag: &str, holder: &str) -> String {
    let json: serde_json::Value = serde_json::from_str(tag).unwrap();
    tag.replace(holder, "HOLDER")
        .replace(&json["host"].to_string(), "HOST")
        .replace(&format!("\"pid\":{}", json["pid"]), "\"pid\":PID")
        .replace(&format!("\"since_ms\":{}", json["since_ms"]), "\"since_ms\":MS")
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn tables_and_functions_of_postgres_do_not_change() {
    let Some(postgres) = crate::postgres::Postgres::start() else { return };
    let postgres = postgres.wait_until_it_serves();
    let (locks, client) = (open(&postgres).await, postgres.client().await);
    let mut golden = Golden::default();
    for schema in [
        "SELECT 'version', obj_description('lockkeeper'::regnamespace, 'pg_namespace')",
        "SELECT 'column ' || table_name || ' ' || column_name,
                data_type || ' ' || is_nullable || coalesce(' ' || column_default, '')
             FROM information_schema.columns WHERE table_schema = 'lockkeeper' ORDER BY table_name, ordinal_position",
        "SELECT 'function ' || proname || '(' || pg_get_function_identity_arguments(oid) || ')', pg_get_function_result(oid)
             FROM pg_proc WHERE pronamespace = 'lockkeeper'::regnamespace ORDER BY proname",
    ] {
        for row in client.query(schema, &[]).await.unwrap() {
            golden.text(row.get(0), row.get(1));
        }
    }
    let hour = Duration::from_secs(3600);
    let _exclusive = locks.mutex("one").ttl(hour).metadata("purpose", "backup").acquire().await.unwrap();
    let _shared = locks.shared("two").ttl(hour).acquire().await.unwrap();
    let _permit = locks.semaphore("three", 3).ttl(hour).acquire().await.unwrap();
    let waiter = acquire(locks.mutex("one").ttl(hour));
    crate::backend::until_waiting(&locks, "one", 1).await;
    locks.semaphore("four", 4).hold_as("web-3", hour).acquire().await.unwrap();
    for rows in [
        "SELECT 'queue ' || name, holder, tag,
                concat_ws(' ', kind, permits, ttl, fence > 0, held_since >= asked, ends - held_since >= ttl)
             FROM lockkeeper.queue ORDER BY id",
        "SELECT 'kept ' || name, holder, tag,
                concat_ws(' ', kind, permits, owner, fence > 0, ends - held_since >= interval '1 hour')
             FROM lockkeeper.kept ORDER BY name",
    ] {
        for row in client.query(rows, &[]).await.unwrap() {
            let (name, values): (&str, &str) = (row.get(0), row.get(3));
            golden.text(name, &format!("{values} {}", stable_tag(row.get(2), row.get(1))));
        }
    }
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/postgres-rows.txt");
    waiter.abort();
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn keys_of_redis_do_not_change() {
    let Some(redis) = crate::redis::Redis::start(&[]) else { return };
    let locks = open(&redis).await;
    let hour = Duration::from_secs(3600);
    let _exclusive = locks.mutex("one").ttl(hour).metadata("purpose", "backup").acquire().await.unwrap();
    let _permit = locks.semaphore("three", 3).ttl(hour).acquire().await.unwrap();
    locks.semaphore("four", 4).hold_as("web-3", hour).acquire().await.unwrap();
    let waiter = acquire(locks.mutex("one").ttl(hour));
    crate::backend::until(|| async { !redis.cli(&["PUBSUB", "CHANNELS"]).is_empty() }).await;
    let locks = locks.list().await.unwrap();
    let holders = locks.iter().flat_map(|lock| &lock.holders).map(|holder| holder.tag.holder.as_str());
    let holders: Vec<&str> = holders.collect();

    let mut golden = Golden::default();
    for channel in redis.cli(&["PUBSUB", "CHANNELS"]).lines() {
        golden.text("channel", channel);
    }
    let mut keys: Vec<String> = redis.cli(&["KEYS", "*"]).lines().map(str::to_owned).collect();
    keys.sort();
    for key in &keys {
        let of_type = redis.cli(&["TYPE", key]);
        let entries = match of_type.as_str() {
            "hash" => redis.cli(&["HGETALL", key]),
            "zset" => redis.cli(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
            "string" => format!("\n{}", redis.cli(&["GET", key])),
            other => panic!("{key} is a {other}"),
        };
        let lines: Vec<&str> = entries.lines().collect();
        let mut pairs: Vec<String> = lines.chunks(2).map(|pair| stable_pair(pair, &holders)).collect();
        pairs.sort();
        golden.text(&format!("{of_type} {key}"), &pairs.join(" "));
    }
    golden.check(env!("CARGO_MANIFEST_DIR"), "tests/golden/redis-keys.txt");
    waiter.abort();
}

/// A field of Redis with its value, without the values that differ from run to run. Large numbers are times and fences.
#[cfg(feature = "redis")]
fn stable_pair(pair: &[&str], holders: &[&str]) -> String {
    let (field, value) = (pair[0], pair[1]);
    let word = |word: &str| match word.parse::<u64>() {
        Ok(number) if number > 1_000_000_000 => "NUMBER".to_owned(),
        _ if word.starts_with('{') => stable_tag(word, field),
        _ => word.to_owned(),
    };
    let words: Vec<String> = value.split(' ').map(word).collect();
    format!("{}={}", if holders.contains(&field) { "HOLDER" } else { field }, words.join(" "))
}
