//! The source of exported readings: a CSE that answers, or the database of one that is stopped.

use crate::verbs::cse::{Whom, parsed};
use anyhow::Result;
use gatewright_bindings::client::Client;
use gatewright_command::exit::{Exit, Failure};
use gatewright_onem2m::{
    Cse, CseConfig, CseIdentity, CseType, Input, Operation, Output, Request, Response, Token,
};
use gatewright_store::{Database, StoreError};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Resources asked for at once.
const PAGE: usize = 1_000;
/// The originator that may see everything in a database.
const READER: &str = "CReader";

/// A CSE that can be asked.
pub(super) enum ReadingSource {
    /// Over one of its bindings.
    Running(Box<Client>, Whom),
    /// Read from its database; how many were asked.
    Stopped(Box<Cse>, u64),
}

impl ReadingSource {
    /// The CSE at the address in `whom`.
    pub(super) fn running(whom: Whom) -> Result<Self> {
        Ok(Self::Running(Box::new(whom.client()?), whom))
    }

    /// The CSE whose database is at `path`, which is only read.
    pub(super) fn stopped(path: &Path) -> Result<Self> {
        let shown = path.display().to_string();
        std::fs::File::open(path).map_err(|error| Failure::file(&shown, &error))?;
        let unusable = |error: StoreError| {
            let hint = matches!(error, StoreError::InUse(_));
            let hint = if hint { ": the gateway runs, ask it by --url and --as" } else { "" };
            let exit = error.exit_code().map_or(Exit::Configuration, Exit::of);
            Failure::new(exit, format!("{error}{hint}"))
        };
        let restored = Database::read(path).map_err(unusable)?;
        let identity = restored.rows.iter().find_map(|(_, body)| CseIdentity::of_row(body));
        let identity = identity.ok_or_else(|| {
            Failure::new(Exit::Configuration, format!("{shown}: there is no CSE in it"))
        })?;
        let mut config = CseConfig::new(CseType::Middle, identity.cse_id, identity.name);
        config.admin = Some(READER.to_owned());
        // Nobody else waits here.
        config.limits.slice_steps = u64::MAX;
        let opened = Cse::open(config, now(), restored.rows, restored.next_seq);
        let (cse, _) = opened
            .map_err(|error| Failure::new(Exit::Configuration, format!("{shown}: {error}")))?;
        Ok(Self::Stopped(Box::new(cse), 0))
    }

    /// The attributes of the resource at `to`.
    pub(super) async fn get(&mut self, to: &str) -> Result<Value> {
        let content = self.ask(to).await?;
        Ok(inner(&content).cloned().unwrap_or_default())
    }

    /// Addresses of all AEs.
    pub(super) async fn entities(&mut self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        loop {
            let from = all.len() + 1;
            let content = self.ask(&format!("-?fu=1&ty=2&lim={PAGE}&ofst={from}")).await?;
            let list = content.get("m2m:uril").and_then(Value::as_array);
            let before = all.len();
            let found = list.into_iter().flatten().filter_map(Value::as_str);
            all.extend(found.map(str::to_owned));
            if all.len() - before < PAGE {
                return Ok(all);
            }
        }
    }

    /// One page of the children of the resource at `to`, by type and time of creation, from the
    /// given offset; and whether more follow.
    pub(super) async fn children(
        &mut self,
        to: &str,
        (tag, kind): (&str, u8),
        since: Option<&str>,
        from: usize,
    ) -> Result<(Vec<Value>, bool)> {
        let since = since.map(|since| format!("&cra={since}")).unwrap_or_default();
        let query = format!("{to}?rcn=4&lvl=1&ty={kind}&lim={PAGE}&ofst={}{since}", from + 1);
        let content = self.ask(&query).await?;
        let list = inner(&content).and_then(|inner| inner.get(tag)).and_then(Value::as_array);
        let list = list.cloned().unwrap_or_default();
        let more = list.len() >= PAGE;
        Ok((list, more))
    }

    async fn ask(&mut self, to: &str) -> Result<Value> {
        match self {
            Self::Running(client, whom) => Ok(parsed(&whom.ask(client.get(to)).await?)),
            Self::Stopped(cse, asked) => {
                *asked += 1;
                let answer = read(cse, Token(*asked), to)?;
                let refused = || Failure::new(Exit::Negative, format!("{to}: {:?}", answer.status));
                answer.status.is_success().then_some(()).ok_or_else(refused)?;
                Ok(parsed(&answer))
            }
        }
    }
}

/// Retrieves from a CSE without a store: its writes are reported as done.
fn read(cse: &mut Cse, token: Token, to: &str) -> Result<Response> {
    let (address, query) = to.split_once('?').unwrap_or((to, ""));
    let id = format!("read-{}", token.0);
    let mut request = Request::new(Operation::Retrieve, address, READER, id);
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        request.set(name, value).map_err(|refusal| Failure::new(Exit::Usage, refusal.debug))?;
    }
    cse.handle(now(), Input::Request { token, request });
    while let Some(output) = cse.poll_output() {
        match output {
            Output::Store(batch) => cse.handle(now(), Input::Committed(batch.number)),
            Output::Respond { token: asked, response } if asked == token => return Ok(response),
            _ => {}
        }
    }
    Err(Failure::new(Exit::Negative, format!("{to}: no answer")).into())
}

/// The object below the tag.
fn inner(content: &Value) -> Option<&Value> {
    content.as_object()?.values().next()
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
