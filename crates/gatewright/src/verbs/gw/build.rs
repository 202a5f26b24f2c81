//! `gatewright gw build`: a program as source text of another language, with its runtime.

use super::compile;
use anyhow::Result;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_diagnostic::{Finding, Sources, Span, has_errors};
use gatewright_emit::{C_IO, C_RUNTIME, JAVA_RUNTIME, SourceFile, SourceLine, Unwritable, c, java};
use gatewright_lang::ir::Program;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

/// Writes a program as C11 or Java 17, with its runtime and a Makefile.
///
/// `make -C DIR` then builds a gateway that is independent of gatewright; `DIR/NAME -h`, or `java
/// -jar DIR/NAME.jar -h`, explains its options. The folder is created if it does not exist. Files
/// of an earlier build are replaced; if the folder has other files of these names, nothing is
/// written.
#[derive(Debug, clap::Args)]
pub(super) struct Build {
    /// The language.
    #[arg(long, value_enum, default_value_t = TargetLanguage::C)]
    target: TargetLanguage,
    /// The folder; the name of the gateway if not given.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The program; `-` is standard input.
    file: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum TargetLanguage {
    /// C11 for Linux.
    C,
    /// Java 17.
    Java,
}

impl TargetLanguage {
    /// The language of a generated Makefile, from its first line, which says how to run the gateway.
    fn of_makefile(head: &str) -> Self {
        if head.contains("java -jar") { Self::Java } else { Self::C }
    }
}

impl fmt::Display for TargetLanguage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::C => "C",
            Self::Java => "Java",
        })
    }
}

#[derive(Serialize)]
struct BuildReport {
    file: String,
    folder: Option<PathBuf>,
    files: Vec<String>,
    findings: Vec<Finding>,
}

/// The first line of a generated Makefile.
const MARK: &str = "written by gatewright";

impl Build {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let (sources, compiled) = compile(&self.file)?;
        face.findings(&compiled.diagnostics, &sources);
        let findings = Face::data(&compiled.diagnostics, &sources);
        let Some(program) = &compiled.program else {
            if !has_errors(&compiled.diagnostics) {
                let message =
                    format!("{}: has no gateway of its own, it is only to be imported", self.file);
                return Err(Failure::new(Exit::Configuration, message).into());
            }
            let answer = BuildReport { file: self.file, folder: None, files: Vec::new(), findings };
            face.answer(&answer, String::new)?;
            return Ok(Exit::Configuration);
        };
        let folder = self.out.unwrap_or_else(|| PathBuf::from(&program.name));
        let files = texts(self.target, program, &sources)?;
        write(self.target, &folder, &files)?;
        let files = files.into_iter().map(|(name, _)| name).collect();
        let answer = BuildReport { file: self.file, folder: Some(folder), files, findings };
        face.answer(&answer, || {
            let folder = answer.folder.as_deref().unwrap_or(Path::new(".")).display();
            format!("{} files in {folder}; `make -C {folder}` builds it\n", answer.files.len())
        })?;
        Ok(Exit::Success)
    }
}

/// The generated files and those of the runtime.
fn texts(
    target: TargetLanguage,
    program: &Program,
    sources: &Sources,
) -> Result<Vec<(String, String)>, Failure> {
    let place = |span: Span| {
        let source = sources.get(span.source);
        let line = source.position(span.start).line + 1;
        Some(SourceLine { file: source.name().to_owned(), line })
    };
    let failed = |error: Unwritable| Failure::new(Exit::Configuration, error.to_string());
    let (generated, runtime): (Vec<SourceFile>, Vec<_>) = match target {
        TargetLanguage::C => {
            (c(program, &place).map_err(failed)?, C_RUNTIME.into_iter().chain(C_IO).collect())
        }
        TargetLanguage::Java => (java(program, &place).map_err(failed)?, JAVA_RUNTIME.to_vec()),
    };
    let generated = generated.into_iter().map(|file| (file.name, file.text));
    let runtime = runtime.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned()));
    Ok(generated.chain(runtime).collect())
}

/// Writes files into a folder that is new, empty, or ours for the same language.
fn write(target: TargetLanguage, folder: &Path, files: &[(String, String)]) -> Result<(), Failure> {
    let shown = folder.display().to_string();
    let failed = |error: &std::io::Error| Failure::file(&shown, error);
    let makefile = fs::read_to_string(folder.join("Makefile")).unwrap_or_default();
    let head = makefile.lines().next().unwrap_or_default();
    let ours = head.contains(MARK);
    let empty = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(failed(&error)),
    };
    if !ours && !empty {
        let message =
            format!("{shown}: has files that no build of ours wrote; name another folder");
        return Err(Failure::new(Exit::Negative, message));
    }
    let built = TargetLanguage::of_makefile(head);
    if ours && built != target {
        let message = format!(
            "{shown}: has the gateway in {built}, and the files of two languages would be mixed; name \
             another folder with --out, or remove this one"
        );
        return Err(Failure::new(Exit::Negative, message));
    }
    fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    for (name, text) in files {
        let path = folder.join(name);
        // What is the same stays, so that it need not be compiled again.
        if fs::read_to_string(&path).is_ok_and(|before| before == *text) {
            continue;
        }
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| Failure::file(&path.display().to_string(), &error))?;
    }
    Ok(())
}
