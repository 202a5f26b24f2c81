use crate::{Namespace, TestbedError};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::io;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output, Stdio};
use std::sync::mpsc::channel;

/// A job for the thread inside the namespace.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A program to be run in a [`Namespace`], shaped like [`std::process::Command`].
#[derive(Debug)]
pub struct Command {
    namespace: Namespace,
    inner: std::process::Command,
}

impl Command {
    pub(crate) fn new(namespace: Namespace, program: &str) -> Self {
        Self { namespace, inner: std::process::Command::new(program) }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.inner.arg(argument);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.inner.args(arguments);
        self
    }

    /// Sets a variable of the program's environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.inner.env(name, value);
        self
    }

    /// Sets the program's standard input.
    #[must_use]
    pub fn stdin(mut self, from: impl Into<Stdio>) -> Self {
        self.inner.stdin(from);
        self
    }

    /// Sets the program's standard output.
    #[must_use]
    pub fn stdout(mut self, to: impl Into<Stdio>) -> Self {
        self.inner.stdout(to);
        self
    }

    /// Sets the program's standard error.
    #[must_use]
    pub fn stderr(mut self, to: impl Into<Stdio>) -> Self {
        self.inner.stderr(to);
        self
    }

    /// Starts the program; it is killed when the [`Process`] is dropped.
    ///
    /// # Errors
    ///
    /// [`TestbedError::Start`], mostly because the program is not installed.
    pub fn spawn(self) -> Result<Process, TestbedError> {
        let Self { namespace, mut inner } = self;
        let program = inner.get_program().to_string_lossy().into_owned();
        let (reply, started) = channel();
        let gone = || io::Error::other("the namespace's thread ended");
        // A failed send means that the caller below has gone, with nobody left to tell.
        let job: Job = Box::new(move || drop(reply.send(inner.spawn())));
        let child = if namespace.submit(job) {
            started.recv().unwrap_or_else(|_| Err(gone()))
        } else {
            Err(gone())
        };
        match child {
            Ok(child) => Ok(Process { child: Some(child), _namespace: namespace }),
            Err(source) => Err(TestbedError::Start { program, source }),
        }
    }

    /// Runs the program to its end and returns its status and output, successful or not.
    ///
    /// # Errors
    ///
    /// [`TestbedError::Start`], mostly because the program is not installed.
    pub fn output(mut self) -> Result<Output, TestbedError> {
        self.inner.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.spawn()?.wait_with_output()
    }

    /// Runs the program to its end and returns its output.
    ///
    /// # Errors
    ///
    /// [`TestbedError::Failed`] with its error output if it ended without success.
    pub fn run(self) -> Result<String, TestbedError> {
        let command = format!("{:?}", self.inner).replace('"', "");
        let output = self.output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let message = if complaint.is_empty() { output.status.to_string() } else { complaint };
        Err(TestbedError::Failed { command, message })
    }
}

/// A running program inside a [`Namespace`]; dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Process {
    /// Taken only where the process is consumed.
    child: Option<Child>,
    /// A namespace outlives its processes.
    _namespace: Namespace,
}

impl Process {
    /// Its process id, as this process sees it; `None` once it has ended and was waited for.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Takes its standard input, if that was piped.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.as_mut()?.stdin.take()
    }

    /// Takes its standard output, if that was piped.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.as_mut()?.stdout.take()
    }

    /// Takes its standard error, if that was piped.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.as_mut()?.stderr.take()
    }

    /// Sends it SIGINT, on which most daemons write their summary and end.
    ///
    /// # Errors
    ///
    /// [`TestbedError::System`] if it has ended already.
    pub fn interrupt(&self) -> Result<(), TestbedError> {
        self.signal(Signal::SIGINT)
    }

    /// Sends it SIGTERM.
    ///
    /// # Errors
    ///
    /// [`TestbedError::System`] if it has ended already.
    pub fn terminate(&self) -> Result<(), TestbedError> {
        self.signal(Signal::SIGTERM)
    }

    /// Sends it SIGHUP, on which most daemons reread their configuration.
    ///
    /// # Errors
    ///
    /// [`TestbedError::System`] if it has ended already.
    pub fn hang_up(&self) -> Result<(), TestbedError> {
        self.signal(Signal::SIGHUP)
    }

    /// Kills it without asking, and waits for its end.
    pub fn kill(mut self) {
        self.end();
    }

    /// Its exit status if it has ended.
    ///
    /// # Errors
    ///
    /// [`TestbedError::System`] if the system cannot say.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>, TestbedError> {
        let Some(child) = self.child.as_mut() else { return Ok(None) };
        child.try_wait().map_err(waiting)
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// [`TestbedError::System`] if the system cannot say.
    pub fn wait(mut self) -> Result<ExitStatus, TestbedError> {
        match self.child.as_mut() {
            Some(child) => child.wait().map_err(waiting),
            None => Err(waiting(io::Error::other("it was waited for before"))),
        }
    }

    /// Waits for its end, and collects the output of the pipes that were not taken.
    ///
    /// # Errors
    ///
    /// [`TestbedError::System`] if a pipe breaks.
    pub fn wait_with_output(mut self) -> Result<Output, TestbedError> {
        match self.child.take() {
            Some(child) => child.wait_with_output().map_err(waiting),
            None => Err(waiting(io::Error::other("it was waited for before"))),
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), TestbedError> {
        let id = self.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let sent = id.map_or(Err(nix::errno::Errno::ESRCH), |id| kill(id, signal));
        sent.map_err(TestbedError::system("signal a process"))
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only where it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn waiting(source: io::Error) -> TestbedError {
    TestbedError::System { action: "wait for a process", source }
}
