//! `gatewright cse subscribe`: hears of what changes.

use super::{CseResponse, Whom, runtime};
use anyhow::{Context, Result};
use gatewright_bindings::client::Client;
use gatewright_bindings::listen::{CONNECTIONS_MAX, Notifications};
use gatewright_bindings::tasks::block_on;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_onem2m::Status;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Subscribes to a resource and prints its notifications until interrupted.
///
/// With --json each is an object on a line. The subscription is deleted at the end. With --target
/// the subscription stays, and its notifications go there.
#[derive(Debug, clap::Args)]
pub(super) struct Subscribe {
    /// The address of the resource.
    address: String,
    /// Events: 1 update, 2 deletion, 3 creation of a child, 4 deletion of a child.
    #[arg(long, value_name = "EVENTS", value_delimiter = ',', default_value = "1,2,3,4",
          value_parser = clap::value_parser!(u8).range(1..=4))]
    events: Vec<u8>,
    /// Address to listen at for notifications; the CSE must be able to reach it.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Send notifications there instead, and end: http://, https://, coap://, ws:// or
    /// wss://HOST:PORT/PATH, mqtt:// or mqtts://BROKER:PORT/RECEIVER, or the address of an AE or CSE
    /// as Cnurse or /id-mn/Cx. The CSE asks it first whether it agrees: a receiver at a broker is one
    /// that answers requests of oneM2M.
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["count", "seconds", "listen"])]
    target: Option<String>,
    /// Name of the subscription; a new one if not given.
    #[arg(long)]
    name: Option<String>,
    /// End after this number of notifications.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after this time.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u32>,
    /// Maximum number of connections, a quarter of it from one address; each may have 4 MiB in
    /// transit.
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS_MAX)]
    connections: usize,
    #[command(flatten)]
    whom: Whom,
}

/// A unique name; processes of two containers may have the same number.
fn new_name() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("gw{:x}-{:x}", std::process::id(), since.as_nanos())
}

impl Subscribe {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let stop = Arc::new(Notify::new());
        let interrupted = Arc::clone(&stop);
        gatewright_command::signals::on_stop(move || interrupted.notify_one())
            .context("cannot listen for an interrupt")?;
        block_on(&runtime()?, self.hear(face, &stop))?;
        Ok(Exit::Success)
    }

    async fn hear(&self, face: Face, stop: &Notify) -> Result<()> {
        let client = self.whom.client()?;
        let name = self.name.clone().unwrap_or_else(new_name);
        let subscribe = |target: String| {
            let (client, name) = (&client, &name);
            async move {
                let asked = client.subscribe(&self.address, name, &target, &self.events);
                self.whom.ask(asked).await
            }
        };
        if let Some(target) = &self.target {
            let answer = subscribe(target.clone()).await;
            let answer = answer.map_err(|failure| with_advice(failure, target))?;
            return CseResponse::of(&answer).show(face).map(|_| ());
        }
        let mut arriving = Notifications::listen_for(self.listen, self.connections)
            .await
            .with_context(|| format!("cannot listen on {}", self.listen))?;
        let target = arriving.url();
        subscribe(target.clone()).await?;
        face.note(&format!("{} notifies {target}", self.address));
        let heard = self.listen(face, &mut arriving, stop).await;
        if let refused @ 1.. = arriving.refused() {
            face.note(&format!(
                "{refused} connections found no room: --connections says how many do"
            ));
        }
        self.unsubscribe(&client, &name, face).await;
        heard
    }

    /// Prints what arrives.
    async fn listen(&self, face: Face, arriving: &mut Notifications, stop: &Notify) -> Result<()> {
        let end = self.seconds.map(|it| Instant::now() + Duration::from_secs(it.into()));
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            let over = async {
                match end {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => core::future::pending().await,
                }
            };
            let notification = tokio::select! {
                notification = arriving.next() => notification,
                () = over => break,
                () = stop.notified() => break,
            };
            let Some(notification) = notification else { break };
            left -= 1;
            face.line(&notification, || line(&notification))?;
        }
        Ok(())
    }

    async fn unsubscribe(&self, client: &Client, name: &str, face: Face) {
        let address = format!("{}/{name}", self.address.trim_end_matches('/'));
        if let Err(failure) = self.whom.ask(client.delete(&address)).await {
            face.note(&format!("the subscription {address} is left standing: {failure}"));
        }
    }
}

/// A failure, and where the target did not agree, what is expected of it.
fn with_advice(failure: Failure, target: &str) -> Failure {
    let status = Status::SubscriptionVerificationInitiationFailed.number().to_string();
    if !failure.message.starts_with(&status) {
        return failure;
    }
    let forms = "targets are http://, https://, coap://, ws:// or wss://HOST:PORT/PATH, mqtt:// or \
                 mqtts://BROKER:PORT/RECEIVER, or the address of an AE or CSE";
    let advice = match target.split_once("://") {
        Some(("mqtt" | "mqtts", _)) => {
            "the CSE has asked the receiver behind the broker by the topic /oneM2M/req/ID/RECEIVER/json \
             (ID is the CSE's), and it has to answer 2000 by /oneM2M/resp/ID/RECEIVER/json: a plain \
             subscriber of MQTT does not"
                .to_owned()
        }
        Some(("http" | "https" | "coap" | "ws" | "wss", _)) => {
            "the CSE has to reach it, and it has to answer the first notification (`vrq`) with 2000; \
             for peers the CSE contacts no address of its own host beyond loopback ([cse] reach_own)"
                .to_owned()
        }
        _ => forms.to_owned(),
    };
    Failure::new(failure.exit, format!("{}; {target} did not agree: {advice}", failure.message))
}

/// A notification on one line: the event, and what it is about.
fn line(notification: &Value) -> String {
    if notification.get("sud").and_then(Value::as_bool) == Some(true) {
        return "the subscription was deleted".to_owned();
    }
    let event = notification.get("nev");
    let kind = event.and_then(|event| event.get("net")).and_then(Value::as_u64);
    let words = match kind {
        Some(1) => "updated",
        Some(2) => "deleted",
        Some(3) => "child created",
        Some(4) => "child deleted",
        _ => "notified",
    };
    let about = event.and_then(|event| event.get("rep")).unwrap_or(notification);
    format!("{words}: {about}")
}
