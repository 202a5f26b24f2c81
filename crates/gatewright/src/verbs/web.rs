//! `gatewright web`: who may use the web interface, and what they have changed.

use super::cse::audit::Audit;
use anyhow::Result;
use gatewright_command::{
    description::Description,
    exit::{Exit, Failure},
    face::Face,
    new_file::{OWNER_ONLY, is_there, write_new},
};
use gatewright_config::Config;
use gatewright_gateway::doctor::{CheckState, SystemCheck};
use gatewright_web::tokens::{AccessRole, KnownToken, TokenFile};
use serde_json::json;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

pub(crate) const JSON: &str = "token add: {file, name, role, token}, with --save {file, name, role, saved}; token list: {file, tokens: \
     [{name, role}]}; token remove: {file, name, removed}; audit: {last: [{number, at, entry}]}, and \
     with --verify {entries, head, broken_at, intact, allowed, denied, failed, waiting, counted, \
     dropped, lost}, too";

/// Makes, lists and removes the tokens of a web interface (`[web] tokens`); reads its audit log
/// (`[web] audit`).
///
/// A token is shown once, when it is made; its file has a hash of it. A running gateway sees a change
/// of the file within a second.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true)]
pub(crate) struct Web {
    #[command(subcommand)]
    verb: WebVerb,
}

#[derive(Debug, clap::Subcommand)]
enum WebVerb {
    /// Makes, lists and removes tokens.
    Token(TokenCommand),
    Audit(Audit),
}

#[derive(Debug, clap::Args)]
#[command(subcommand_required = true)]
struct TokenCommand {
    #[command(subcommand)]
    verb: TokenVerb,
}

#[derive(Debug, clap::Subcommand)]
enum TokenVerb {
    /// Makes a token and prints it, once.
    Add(AddToken),
    /// Lists tokens by name and role.
    List(ListTokens),
    /// Removes a token; sessions that began with it end.
    Remove(RemoveToken),
}

#[derive(Debug, clap::Args)]
struct AddToken {
    /// The gateway's description.
    file: String,
    /// The token's name, for logs: letters, digits, `-`, `_`, `.`.
    #[arg(long)]
    name: String,
    /// What its holder may do: viewer looks, operator also traces and reloads, admin also sees the
    /// description.
    #[arg(long, value_name = "ROLE")]
    role: AccessRole,
    /// Write the token to NEW, which must not exist and which only its owner may read, instead of
    /// printing it.
    #[arg(long, value_name = "NEW")]
    save: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct ListTokens {
    /// The gateway's description.
    file: String,
}

#[derive(Debug, clap::Args)]
struct RemoveToken {
    /// The gateway's description.
    file: String,
    /// The token's name.
    name: String,
}

impl Web {
    pub(crate) fn run(self, face: Face) -> Result<Exit> {
        match self.verb {
            WebVerb::Audit(verb) => verb.run(face),
            WebVerb::Token(TokenCommand { verb }) => verb.run(face),
        }
    }
}

impl TokenVerb {
    fn run(self, face: Face) -> Result<Exit> {
        match self {
            Self::Add(add) => add.run(face),
            Self::List(ListTokens { file }) => {
                let file = tokens_of(face, &file)?;
                let tokens = file.read().map_err(|error| failure(&file, &error))?;
                let row = |KnownToken { name, role, .. }: &KnownToken| json!({ "name": name, "role": role });
                let rows: Vec<_> = tokens.iter().map(row).collect();
                let answer = json!({ "file": file.path().display().to_string(), "tokens": rows });
                let line = |token: &KnownToken| format!("{:8} {}\n", token.role.name(), token.name);
                face.answer(&answer, || tokens.iter().map(line).collect())?;
                Ok(Exit::Success)
            }
            Self::Remove(RemoveToken { file, name }) => {
                let file = tokens_of(face, &file)?;
                let removed = file.remove(&name).map_err(|error| failure(&file, &error))?;
                let path = file.path().display().to_string();
                let answer = json!({ "file": path, "name": name, "removed": removed });
                face.answer(&answer, || {
                    let what = if removed { "is removed" } else { "is not there" };
                    format!("the token {name} {what}\n")
                })?;
                Ok(if removed { Exit::Success } else { Exit::Negative })
            }
        }
    }
}

impl AddToken {
    fn run(self, face: Face) -> Result<Exit> {
        let Self { file, name, role, save } = self;
        let file = tokens_of(face, &file)?;
        // Before the token is made: one that nobody has seen would be of no use.
        if let Some(path) = &save
            && path.symlink_metadata().is_ok()
        {
            return Err(is_there(path).into());
        }
        let token = file.add(role, &name).map_err(|error| failure(&file, &error))?;
        let path = file.path().display().to_string();
        if let Some(to) = save {
            let written = write_new(&to, format!("{token}\n").as_bytes(), OWNER_ONLY);
            if let Err(why) = written {
                file.remove(&name).map_err(|error| failure(&file, &error))?;
                return Err(why.into());
            }
            let to = to.display().to_string();
            let answer = json!({ "file": path, "name": name, "role": role, "saved": to });
            face.answer(&answer, String::new)?;
            face.note(&format!("{to}: the token {name}, of which {path} keeps a hash"));
        } else {
            let answer = json!({ "file": path, "name": name, "role": role, "token": token });
            face.answer(&answer, || format!("{token}\n"))?;
            let text = format!("{path}: the token {name} is shown this once, and kept as a hash");
            face.note(&text);
        }
        Ok(Exit::Success)
    }
}

/// The file of tokens that a description names.
fn tokens_of(face: Face, file: &str) -> Result<TokenFile, Failure> {
    let read = Description::load(face.program(), file)?;
    let Some(config) = read.config else {
        face.findings(&read.findings, &read.sources);
        let message = format!("{file}: the description has errors");
        return Err(Failure::new(Exit::Configuration, message));
    };
    let tokens = config.web.and_then(|web| web.tokens).map(TokenFile::new);
    let message =
        format!("{file}: add `tokens = \"web-tokens\"` to [web]: it names the file of tokens");
    tokens.ok_or_else(|| Failure::new(Exit::Configuration, message))
}

fn failure(file: &TokenFile, error: &io::Error) -> Failure {
    let exit = match error.kind() {
        ErrorKind::PermissionDenied => Exit::Permission,
        ErrorKind::InvalidInput => Exit::Usage,
        ErrorKind::InvalidData => Exit::Configuration,
        _ => Exit::Negative,
    };
    Failure::new(exit, format!("{}: {error}", file.path().display()))
}

/// The file of tokens of `[web]`, if the description has one.
pub(crate) fn checks(config: &Config) -> Vec<SystemCheck> {
    let file = config.web.as_ref().and_then(|web| web.tokens.as_ref());
    file.map(|file| tokens(file)).into_iter().collect()
}

fn tokens(file: &str) -> SystemCheck {
    let tokens = TokenFile::new(file);
    let (state, found, advice) = match (tokens.read(), tokens.read_by_others()) {
        (Ok(tokens), Some(mode)) => {
            let found =
                format!("{} in {file}, which others can read (mode {mode:04o})", tokens.len());
            let advice = format!("they learn its names and roles: chmod 600 {file}");
            (CheckState::Limited, found, Some(advice))
        }
        (Ok(tokens), None) => (CheckState::Good, format!("{} in {file}", tokens.len()), None),
        (Err(error), _) => {
            let advice = "nobody is admitted: `gatewright web token add` makes a token and its file; \
                          one that is not understood, or not its owner's alone to write, is mended or \
                          moved away first";
            let state = match error.kind() {
                // The first token makes it.
                ErrorKind::NotFound => CheckState::Limited,
                _ => CheckState::Missing,
            };
            (state, format!("{file}: {error}"), Some(advice.to_owned()))
        }
    };
    SystemCheck { subject: "web", name: "tokens".to_owned(), state, found, advice }
}
