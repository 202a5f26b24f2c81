//! `gatewright device ask`: a command for a device, through service entities.

use crate::verbs::cse::runtime;
use anyhow::Result;
use gatewright_bindings::client::Client;
use gatewright_bindings::tasks::block_on;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_onem2m::Operation;
use serde_json::{Map, Value, json};
use std::time::{Duration, SystemTime};

/// Sends a request to a device through a CSE, and shows its result.
///
/// The device may be at that CSE or at one that is registered there: `cse-gw/phd-…`, or
/// `/gw/cse-gw/phd-…` from the CSE above. Commands are `read`, `battery`, `set-clock`,
/// `request-data`, `describe-store`, `transfer-segment`, `clear-store` and `enable-scanner`. Ends
/// with 0 if the device executed the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Ask {
    /// Address of the device's application entity.
    #[arg(value_name = "ENTITY")]
    entity: String,
    /// The command.
    #[arg(value_name = "COMMAND")]
    command: String,
    /// Its arguments, such as handle=256 or enabled=true.
    #[arg(value_name = "NAME=VALUE", value_parser = argument)]
    arguments: Vec<(String, Value)>,
    /// Address of the CSE.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    cse: String,
    /// The originator.
    #[arg(long, value_name = "AE-ID", default_value = "CAdmin")]
    originator: String,
    /// Time that the request may wait for a device that is away.
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u32>,
}

/// Reads `handle=256`; what is no JSON is a text.
fn argument(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("an argument is NAME=VALUE")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
    Ok((name.to_owned(), value))
}

impl Ask {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let prefix = format!("ask-{}-{}-", std::process::id(), now.as_nanos());
        let client = Client::new(self.cse.as_str(), self.originator.as_str(), prefix);
        let mut command: Map<String, Value> = self.arguments.into_iter().collect();
        command.insert("command".to_owned(), json!(self.command));
        let request = client.request(Operation::Notify, &self.entity)?;
        let mut request = request.with_content(Value::Object(command).to_string());
        if let Some(wait) = self.wait {
            let milliseconds = Duration::from_secs(wait.into()).as_millis();
            request.set("rqet", &milliseconds.to_string())?;
        }
        let answer = block_on(&runtime()?, client.ask(&request))
            .map_err(|error| Failure::new(Exit::Unavailable, format!("{}: {error}", self.cse)))?;
        let content = answer.content.as_deref().unwrap_or("null");
        let result: Value = serde_json::from_str(content).unwrap_or_default();
        let value = json!({
            "entity": self.entity,
            "command": self.command,
            "status": answer.status.number(),
            "result": result,
        });
        face.answer(&value, || {
            let shown = serde_json::to_string_pretty(&result).unwrap_or_default();
            format!("{} {:?}\n{shown}", answer.status.number(), answer.status)
        })?;
        Ok(if answer.status.is_success() { Exit::Success } else { Exit::Negative })
    }
}
