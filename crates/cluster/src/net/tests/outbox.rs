//! Concurrent senders on one connection.

use super::TIMEOUT;
use crate::net::connection;
use crate::net::counters::Counters;
use crate::net::outbox::Outbox;
use crate::net::records::{Incoming, Record, RecordHeader};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

const LONGEST: usize = 1000;

/// Reads this many frames.
async fn frames(mut from: impl AsyncRead + Unpin, count: usize) -> Vec<Vec<u8>> {
    let (mut incoming, mut frames) = (Incoming::new(LONGEST), Vec::new());
    let reading = async {
        while frames.len() < count {
            from.read_buf(incoming.room()).await.expect("a pipe in memory");
            while let Some(record) = incoming.next().expect("records, one after the other") {
                let Record::Frame(bytes) = record else { panic!("another record arrived") };
                frames.push(bytes.to_vec());
            }
        }
    };
    timeout(TIMEOUT, reading).await.expect("the frames arrive");
    frames
}

fn send(outbox: &Outbox, bytes: &[u8]) {
    outbox.put(RecordHeader::Frame, LONGEST, |out| out.extend(bytes)).expect("there is room");
}

#[tokio::test]
async fn flush_writes_inline_what_fits_and_the_task_writes_the_rest() {
    let (near, mut far) = tokio::io::duplex(64);
    let (outbox, counters) = (Outbox::new(1 << 20), Counters::default());
    let _connected = outbox.connect(Box::new(near), 1 << 20, 0);
    send(&outbox, b"short");
    assert_eq!(counters.writes.get(), 0);
    outbox.flush(&counters);
    assert_eq!((counters.writes.get(), outbox.pending_bytes()), (1, 0));
    assert_eq!(frames(&mut far, 1).await, [b"short"]);
    // Longer than the pipe: no task reads yet, so the rest has to wait.
    send(&outbox, &[7; 500]);
    outbox.flush(&counters);
    assert!((1..500).contains(&outbox.pending_bytes()));
    send(&outbox, b"after it");
    outbox.flush(&counters);
    let read = tokio::select! {
        _ = connection::write(&outbox, &counters) => panic!("the pipe is sound"),
        read = frames(&mut far, 2) => read,
    };
    assert_eq!(read, [&[7; 500][..], b"after it"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_concurrent_senders_arrive_whole_and_in_order() {
    const SENDERS: usize = 4;
    const EACH: usize = 2_000;
    let (near, far) = tokio::io::duplex(300);
    let outbox = Arc::new(Outbox::new(1 << 24));
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let outbox = outbox.clone();
            move || {
                for number in 0..EACH {
                    send(&outbox, format!("{sender} {number}").as_bytes());
                    outbox.flush(&Counters::default());
                }
            }
        })
        .map(std::thread::spawn)
        .collect();
    let counters = Counters::default();
    let _connected = outbox.connect(Box::new(near), 1 << 24, 0);
    let read = tokio::select! {
        _ = connection::write(&outbox, &counters) => panic!("the pipe is sound"),
        read = frames(far, SENDERS * EACH) => read,
    };
    senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
    let mut next = [0; SENDERS];
    for frame in read {
        let text = String::from_utf8(frame).expect("text");
        let (sender, number) = text.split_once(' ').expect("a sender and a number");
        let next = &mut next[sender.parse::<usize>().expect("a number")];
        assert_eq!(number.parse(), Ok(*next));
        *next += 1;
    }
    assert_eq!(next, [EACH; SENDERS]);
}

#[tokio::test]
async fn bytes_taken_for_one_connection_are_not_written_to_the_next() {
    let (outbox, counters) = (Outbox::new(1 << 20), Counters::default());
    let (first, _lost) = tokio::io::duplex(64);
    let connected = outbox.connect(Box::new(first), 1 << 20, 1 << 20);
    send(&outbox, &[7; 500]);
    outbox.flush(&counters);
    let taken = outbox.taken().await.expect("the pipe is sound");
    drop(connected);
    let (second, far) = tokio::io::duplex(64);
    let _connected = outbox.connect(Box::new(second), 1 << 20, 0);
    outbox.give_back(taken, false);
    send(&outbox, b"new");
    outbox.flush(&counters);
    assert_eq!(frames(far, 1).await, [b"new"]);
}

#[tokio::test]
async fn connection_that_breaks_during_an_inline_write_is_closed_by_its_task() {
    let (near, far) = tokio::io::duplex(64);
    let (outbox, counters) = (Outbox::new(1 << 20), Counters::default());
    let _connected = outbox.connect(Box::new(near), 1 << 20, 0);
    drop(far);
    send(&outbox, b"to no reader");
    outbox.flush(&counters);
    let ended = timeout(TIMEOUT, connection::write(&outbox, &counters)).await.expect("it ends");
    assert!(ended.to_string().contains("broken pipe"), "{ended}");
}
