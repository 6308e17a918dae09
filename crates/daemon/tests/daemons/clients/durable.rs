//! Holds that must survive: a client holds a lock for 1 ms to 60 s, and stays with its session while daemons die and
//! leave under it.
//!
//! A hold that is recorded lasts as long as its client renews it, through any daemon. If a daemon reports the loss of
//! such a hold within its time to live, the cluster has lost it: the client records [`HoldEvent::LostDurable`], which
//! fails the run. A hold that is not renewed because no daemon replies for a whole time to live only counts as lost.

use super::{ClientLog, LockClient, Validity};
use lockkeeper_testbed::history::{HoldEvent, LockMode, now_ns};
use lockkeeper_testbed::options::Random;
use std::time::Duration;

/// The time to live of these sessions and leases: longer than a restart of all daemons takes.
pub const TTL: Duration = Duration::from_secs(30);
/// The longest hold is 2^16 ms.
const LONGEST_POWER: usize = 17;
/// The age from which a hold counts as recorded, even if the protocol does not report it: daemons record a hold after
/// 0.1 s, and reply to renewals only while they have a lease.
const RECORDED_NS: u64 = 5_000_000_000;
/// The interval of renewals.
const RENEWAL: Duration = Duration::from_millis(500);

/// Holds one lock again and again.
pub async fn hold_durably<A: LockClient>(mut client: A, log: &ClientLog, lock: &str, mut random: Random) {
    loop {
        let Ok(held) = client.acquire(lock, LockMode::Exclusive).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let power = random.below(LONGEST_POWER);
        hold(&mut client, log, lock, &held, random.below(1 << power) as u64).await;
        client.release(held).await;
    }
}

/// Holds a lock for this many milliseconds, and renews the hold meanwhile.
async fn hold<A: LockClient>(client: &mut A, log: &ClientLog, lock: &str, held: &A::Held, length_ms: u64) {
    let mut log = log.begin(lock, LockMode::Exclusive, A::fence(held));
    let ttl_ns = TTL.as_nanos() as u64;
    let entered_ns = now_ns();
    let ends_ns = entered_ns + length_ms * 1_000_000;
    let (mut renewed_ns, mut recorded) = (entered_ns, false);
    loop {
        let sent_ns = now_ns();
        let validity = client.validity(held).await;
        match validity {
            Validity::UntilNs(until_ns) if until_ns >= sent_ns => {
                log.write(sent_ns, HoldEvent::Inside { until_ns });
                recorded |= until_ns > sent_ns + ttl_ns / 2 || sent_ns > entered_ns + RECORDED_NS;
                renewed_ns = sent_ns;
            }
            Validity::Lost => {
                let in_time = now_ns() < renewed_ns + ttl_ns;
                let event = if recorded && in_time { HoldEvent::LostDurable } else { HoldEvent::Lost };
                return log.write(now_ns(), event);
            }
            // No daemon replies, or a reply was late: the last renewal counts.
            Validity::AsBefore | Validity::UntilNs(_) if now_ns() > renewed_ns + ttl_ns => {
                return log.write(now_ns(), HoldEvent::Lost);
            }
            Validity::AsBefore | Validity::UntilNs(_) => {}
        }
        let Some(left_ns) = ends_ns.checked_sub(now_ns()) else { break };
        tokio::time::sleep(RENEWAL.min(Duration::from_nanos(left_ns))).await;
    }
    log.write(now_ns(), HoldEvent::Leaves);
}
