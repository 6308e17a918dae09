//! One suite for all engines. Each engine provides a [`backend::Backend`]. The suite tests the features that the
//! engine supports, and that requests for other features are rejected with a clear error. See `backend.rs` for adding
//! an engine.

mod backend;
mod basics;
mod cancellation;
#[cfg(feature = "cluster")]
mod cluster;
mod detached;
mod doctor;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "etcd")]
mod etcd_cluster;
#[cfg(feature = "etcd")]
mod etcd_tls;
#[cfg(any(feature = "etcd", feature = "redis"))]
mod failover;
mod file;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
mod golden;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
mod impostor;
mod kills;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
mod lossy;
#[cfg(feature = "member")]
mod member;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "mysql")]
mod mysql_tls;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "zookeeper"))]
mod network;
mod oracle;
#[cfg(feature = "postgres")]
mod pgbouncer;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_failover;
#[cfg(feature = "postgres")]
mod postgres_tls;
mod processes;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_cluster;
#[cfg(feature = "redis")]
mod redis_sentinel;
#[cfg(feature = "redis")]
mod redis_tls;
#[cfg(feature = "redis")]
mod redlock;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zookeeper"))]
mod shared;
mod shared_file;
mod worker;
#[cfg(feature = "zookeeper")]
mod zookeeper;
#[cfg(feature = "zookeeper")]
mod zookeeper_ensemble;
#[cfg(feature = "zookeeper")]
mod zookeeper_tls;

/// Instantiates the suite for one backend.
macro_rules! conformance {
    ($backend:expr; $($module:ident :: $test:ident),* $(,)?) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let backend = $backend;
            tokio::time::timeout(crate::backend::TIMEOUT, crate::$module::$test(&backend))
                .await
                .expect("the test is stuck");
        }
    )* };
    ($backend:expr) => {
        crate::conformance! { $backend;
            processes::a_server_that_goes_away_is_noticed,
            detached::detached_holds_survive_a_restart_of_the_server,
        }
        crate::conformance_without_stops! { $backend }
    };
}
pub(crate) use conformance;

/// The tests of the suite that need no other process.
macro_rules! conformance_in_this_process {
    ($backend:expr) => {
        crate::conformance! { $backend;
            basics::a_mutex_admits_one,
            basics::try_acquire_never_waits,
            basics::a_deadline_passes_and_leaves_no_place_in_the_queue,
            basics::fences_rise_and_are_never_zero,
            basics::a_permit_has_no_fence,
            basics::the_reported_ttl_is_the_one_in_force,
            basics::waiters_enter_first_come_first_served,
            basics::readers_share_and_a_writer_is_alone,
            basics::a_semaphore_admits_as_many_as_it_has_permits,
            basics::a_name_is_one_kind_of_lock,
            basics::several_locks_at_once_never_deadlock,
            basics::holders_and_waiters_can_be_seen,
            basics::a_reentrant_owner_enters_again_another_does_not,
            basics::an_election_has_one_leader_and_observers_follow,
            basics::odd_names_are_ordinary_locks,
            basics::bad_requests_are_refused_in_words,
            cancellation::an_acquire_can_be_dropped_at_every_await,
            cancellation::an_aborted_task_gives_its_lock_up,
        }
    };
}
pub(crate) use conformance_in_this_process;

/// The tests of the suite that do not stop the server, which can serve several of them.
macro_rules! conformance_without_stops {
    ($backend:expr) => {
        crate::conformance_in_this_process! { $backend }
        crate::conformance! { $backend;
            cancellation::a_guard_dropped_without_its_runtime_gives_the_lock_up,
            processes::tasks_of_several_processes_take_turns,
            processes::a_killed_holder_lets_the_next_one_in,
            processes::killed_waiters_cost_nothing,
            processes::a_stopped_holder_is_alone_or_learns_that_it_lost,
            kills::random_kills_never_admit_two_and_never_block,
            detached::a_lock_is_kept_for_at_least_the_requested_time,
            detached::a_killed_holder_keeps_its_lock_for_the_requested_time,
            detached::a_process_that_ends_leaves_its_kept_lock_behind,
            detached::a_hold_continues_beyond_the_time_for_which_it_is_kept,
            detached::a_kept_permit_counts_once,
            detached::a_cancelled_request_keeps_nothing,
            detached::a_detached_hold_belongs_to_its_owner,
            detached::a_detached_hold_ends_at_its_deadline,
            detached::requests_of_one_owner_share_one_detached_hold,
        }
    };
}
#[allow(unused_imports, reason = "for engines whose servers start slowly")]
pub(crate) use conformance_without_stops;

/// The tests of the suite in which the node that serves the locks dies, and another one takes over.
#[allow(unused_macros, reason = "for engines whose servers fail over")]
macro_rules! conformance_with_failovers {
    ($backend:expr) => {
        crate::conformance! { $backend;
            processes::tasks_of_several_processes_take_turns,
            processes::a_stopped_holder_is_alone_or_learns_that_it_lost,
            processes::a_hold_is_kept_or_lost_with_notice_by_a_failover,
            kills::random_kills_never_admit_two_and_never_block,
        }
    };
}
#[allow(unused_imports, reason = "for engines with several nodes")]
pub(crate) use conformance_with_failovers;
