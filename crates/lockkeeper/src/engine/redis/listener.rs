//! One pub/sub connection, shared by all subscribers to a server's messages.

use futures_util::StreamExt;
use redis::aio::{PubSub, PubSubSink};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

/// A handle of the task that owns the connection. The task ends with the connection or the last handle.
#[derive(Clone)]
pub(super) struct Listener {
    commands: mpsc::UnboundedSender<Command>,
    /// The address of the server.
    server: Arc<str>,
}

enum Command {
    Join { channel: String, joined: oneshot::Sender<watch::Receiver<()>> },
    Leave { channel: String },
}

/// The messages of one channel, from the subscription on.
pub(super) struct Subscription {
    listener: Listener,
    channel: String,
    /// `None` only while being dropped.
    messages: Option<watch::Receiver<()>>,
}

impl Listener {
    pub fn start(pubsub: PubSub, server: String) -> Listener {
        let (commands, received) = mpsc::unbounded_channel();
        tokio::spawn(run(pubsub, received));
        Listener { commands, server: server.into() }
    }

    /// Returns when the server has confirmed the subscription; `None` if the connection is gone or the server rejects
    /// it.
    pub async fn subscribe(&self, channel: &str) -> Option<Subscription> {
        let (joined, receiver) = oneshot::channel();
        self.commands.send(Command::Join { channel: channel.into(), joined }).ok()?;
        let messages = Some(receiver.await.ok()?);
        Some(Subscription { listener: self.clone(), channel: channel.into(), messages })
    }
}

impl Subscription {
    /// The address of the server that sends the messages.
    pub fn server(&self) -> &str {
        &self.listener.server
    }

    /// Resolves with true when there were messages since the last call; false if the connection is gone.
    pub async fn message(&mut self) -> bool {
        match &mut self.messages {
            Some(messages) => messages.changed().await.is_ok(),
            None => false,
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Drop the receiver first, then send the command: the task counts receivers.
        self.messages = None;
        let _ = self.listener.commands.send(Command::Leave { channel: std::mem::take(&mut self.channel) });
    }
}

type Channels = HashMap<String, watch::Sender<()>>;

async fn run(pubsub: PubSub, mut commands: mpsc::UnboundedReceiver<Command>) {
    let (mut sink, mut stream) = pubsub.split();
    let mut channels = Channels::new();
    // Leaving this loop drops the senders, which notifies every subscriber.
    loop {
        let touched = tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Join { channel, joined }) => {
                    if join(&mut sink, &mut channels, &channel, joined).await.is_err() {
                        return;
                    }
                    channel
                }
                Some(Command::Leave { channel }) => channel,
                None => return,
            },
            message = stream.next() => match message {
                Some(message) => {
                    let channel = message.get_channel_name().to_owned();
                    if let Some(messages) = channels.get(&channel) {
                        messages.send_replace(());
                    }
                    channel
                }
                None => return,
            },
        };
        if channels.get(&touched).is_some_and(|messages| messages.receiver_count() == 0) {
            channels.remove(&touched);
            if sink.unsubscribe(&touched).await.is_err() {
                return;
            }
        }
    }
}

async fn join(
    sink: &mut PubSubSink,
    channels: &mut Channels,
    channel: &str,
    joined: oneshot::Sender<watch::Receiver<()>>,
) -> Result<(), redis::RedisError> {
    let messages = match channels.get(channel) {
        Some(messages) => messages,
        None => {
            sink.subscribe(channel).await?;
            channels.entry(channel.into()).or_default()
        }
    };
    // The caller may have gone. Then there is no receiver, and the channel is unsubscribed again.
    let _ = joined.send(messages.subscribe());
    Ok(())
}
