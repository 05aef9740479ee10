//! The page that trains in a browser: its build, its server and its test.

mod build;
mod server;
pub(crate) mod target;

use std::fmt;
use std::sync::Arc;

use crate::announcement::Announcement;
use crate::process::Process;
use crate::workspace;

pub(crate) use build::Options;

use server::Server;

/// What to do with the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Builds it.
    Build(Options),
    /// Serves it on this machine until the program is stopped.
    Serve(u16),
    /// Runs it in a browser.
    Test(Options),
}

impl Task {
    /// Runs the task.
    ///
    /// # Errors
    ///
    /// Returns a message with the way out.
    pub(crate) fn run(&self) -> Result<(), String> {
        match *self {
            Self::Build(options) => build::run(options),
            Self::Serve(port) => {
                let server = Server::start(&build::pages(), port)?;
                println!("the page is at {}; Ctrl-C ends the server", server.address());
                server.wait();
                Ok(())
            }
            Self::Test(options) => {
                let server = Arc::new(Server::start(&build::pages(), 0)?);
                test(&server, options).run()
            }
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Build(_) => "build the page",
            Self::Serve(_) => "serve the page",
            Self::Test(_) => "run the page in a browser",
        })
    }
}

/// Returns the program that drives the browser.
fn test(server: &Server, options: Options) -> Process {
    let process = Process::cargo()
        .args(["run", "-p", workspace::EXAMPLES, "--features", "web-test", "--bin", "web-test"])
        .args(["--", "--address", &server.address()])
        .args(["--requests", &server.requests().to_string_lossy()])
        .args(["--figures", &workspace::root().join("book/src/figures").to_string_lossy()]);
    let process = if options.flex_only { process.arg("--flex-only") } else { process };
    process.builds(Announcement::new("the test of the page", &["images"])).remedy(
        "Chromium must be installed: `apt-get install chromium` on Debian, or name it in the \
         variable CHROME",
    )
}
