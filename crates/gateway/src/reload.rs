//! Reload: a running gateway takes a new description, the whole of it or nothing.

use crate::{Gateway, NOT_IN_THIS_PROGRAM, description_files, gateway::about};
use gatewright_config::Config;
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_part::{Change, LogLevel, Part, Unable, exchange};
use std::path::Path;

/// Why a running gateway did not take a description. It runs on as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// Some changes need a restarted gateway.
    #[error("nothing is changed, as this needs a restart: {}", list(.0))]
    Restart(Vec<Change>),
    /// A part cannot take some of it.
    #[error("nothing is changed: {0}")]
    Unable(#[from] Unable),
}

impl ReloadError {
    /// The refused changes of the description, by key, and whether a restarted gateway takes it.
    pub fn refused(&self) -> (Vec<Change>, bool) {
        match self {
            Self::Restart(changes) => (changes.clone(), true),
            Self::Unable(Unable { key: Some(key), why }) => (vec![Change::new(key, why)], false),
            Self::Unable(_) => (Vec::new(), false),
        }
    }
}

fn list(changes: &[Change]) -> String {
    changes.iter().map(Change::to_string).collect::<Vec<_>>().join("; ")
}

impl Gateway {
    /// Takes `config` as the description in force; returns the changes.
    ///
    /// Handlers and routes added by command stay. A link whose device changes is opened anew,
    /// another interface before the last one is closed; links are added and removed.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]; then the gateway is as it was.
    pub fn reload(&self, config: &Config) -> Result<Vec<Change>, ReloadError> {
        self.reload_of(config, || true)
    }

    /// Takes `config`, which is `text`, as [`Self::reload`]. If the last good description runs in
    /// place of the file's, that is over only if the file has this text.
    pub(crate) fn reload_text(
        &self,
        config: &Config,
        text: &str,
    ) -> Result<Vec<Change>, ReloadError> {
        self.reload_of(config, || self.fallback().is_none() || self.file_has(text))
    }

    /// Whether `text` is what the gateway's own file, or the files of its folder, have now.
    fn file_has(&self, text: &str) -> bool {
        let files = self.file().and_then(|file| description_files(Path::new(file)).ok());
        let mut sources = Sources::default();
        sources.add_files(files.unwrap_or_default());
        sources.get(SourceId::default()).text() == text
    }

    fn reload_of(
        &self,
        config: &Config,
        is_of_file: impl Fn() -> bool,
    ) -> Result<Vec<Change>, ReloadError> {
        let reloaded = self.take(config);
        match &reloaded {
            Ok(changes) => {
                self.last_good().replaced(is_of_file());
                // Handlers and routes of links that are gone are gone, too.
                self.keep_by_command();
                for Change { what, how, .. } in changes {
                    let event = about(LogLevel::Info, "changed", format!("{what}: {how}"));
                    self.events().log(event.with("what", what));
                }
                let text = match changes.len() {
                    1 => "the description is read again: 1 change".to_owned(),
                    count => format!("the description is read again: {count} changes"),
                };
                self.events().log(about(LogLevel::Info, "reloaded", text));
            }
            Err(error) => {
                self.log_refused(&error.to_string());
            }
        }
        reloaded
    }

    /// Logs that a new description is refused, and why; one that cannot be read gets no further.
    pub fn log_refused(&self, why: &str) {
        let text = format!("the description is refused: {why}");
        self.events().log(about(LogLevel::Warning, "reload-refused", text));
    }

    /// The changes that a reload of `config` would make, or would refuse as they need a restart.
    pub fn differences(&self, config: &Config) -> Vec<Change> {
        self.differences_from(&self.in_force(), config)
    }

    fn differences_from(&self, in_force: &Config, config: &Config) -> Vec<Change> {
        let differences = |part: &dyn Part| part.differences(in_force, config);
        self.told_order().into_iter().flat_map(differences).collect()
    }

    fn take(&self, config: &Config) -> Result<Vec<Change>, ReloadError> {
        if let Some(table) = self.lacks(config) {
            let (key, why) = (Some(table.to_owned()), NOT_IN_THIS_PROGRAM.to_owned());
            return Err(Unable { key, why }.into());
        }
        let mut in_force = self.in_force();
        let mut changes = self.differences_from(&in_force, config);
        if changes.iter().any(|change| change.restart) {
            changes.retain(|change| change.restart);
            return Err(ReloadError::Restart(changes));
        }
        // One that was given up takes nothing: what has changed may have been the cause.
        changes.extend(self.links.start_again(config)?);
        changes.extend(exchange(&self.stage_order(), &in_force, config)?);
        in_force.clone_from(config);
        Ok(changes)
    }
}
