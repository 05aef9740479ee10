//! A server of static files, on this machine alone.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tiny_http::{Header, Request, Response};

/// What scripts may do. A worker has the policy of its script: it makes no request but for the
/// scripts that it imports.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'";

/// A server that runs until the program ends.
pub(super) struct Server {
    address: String,
    requests: PathBuf,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    /// Serves the files of `folder`; port 0 is any free port.
    ///
    /// # Errors
    ///
    /// Returns a message if the port is in use, or the log of requests cannot be written.
    pub(super) fn start(folder: &Path, port: u16) -> Result<Self, String> {
        let http = tiny_http::Server::http(("127.0.0.1", port))
            .map_err(|error| format!("port {port}: {error}; choose another by --port"))?;
        let port = http.server_addr().to_ip().map_or(port, |address| address.port());
        let requests = folder.with_file_name("requests.log");
        let log = OpenOptions::new().create(true).write(true).truncate(true).open(&requests);
        let log = log.map_err(|error| format!("{}: {error}", requests.display()))?;
        let (http, log) = (Arc::new(http), Arc::new(Mutex::new(log)));
        let folder = folder.to_path_buf();
        let thread = std::thread::spawn(move || {
            for request in http.incoming_requests() {
                answer(&folder, &log, request);
            }
        });
        let address = format!("http://localhost:{port}/");
        Ok(Self { address, requests, thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn address(&self) -> String {
        self.address.clone()
    }

    /// Returns the file to which the path of every request is written.
    pub(super) fn requests(&self) -> &Path {
        &self.requests
    }

    /// Waits until the server ends.
    pub(super) fn wait(&self) {
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        let _ = thread.map(JoinHandle::join);
    }
}

fn answer(folder: &Path, log: &Mutex<File>, request: Request) {
    if let Ok(mut log) = log.lock() {
        let _ = writeln!(log, "{}", request.url());
    }
    let file = file_of(folder, request.url());
    let content = file.as_ref().and_then(|file| fs::read(file).ok());
    let _ = match (content, file.as_deref().and_then(media_type)) {
        (Some(content), Some(media_type)) => {
            let mut response = Response::from_data(content);
            for (name, value) in headers(media_type) {
                if let Ok(header) = Header::from_bytes(name, value) {
                    response = response.with_header(header);
                }
            }
            request.respond(response)
        }
        _ => request.respond(Response::empty(404)),
    };
}

fn headers(media_type: &'static str) -> Vec<(&'static str, &'static str)> {
    let mut headers = vec![
        ("Content-Type", media_type),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
    ];
    if media_type.starts_with("text/javascript") {
        headers.push(("Content-Security-Policy", POLICY));
    }
    headers
}

/// Returns the file of an address; none outside `folder`.
fn file_of(folder: &Path, url: &str) -> Option<PathBuf> {
    let path = url.split(['?', '#']).next()?.trim_start_matches('/');
    let path = Path::new(if path.is_empty() { "index.html" } else { path });
    let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    is_inside.then(|| folder.join(path))
}

/// Returns the type of a file by its ending.
pub(super) fn media_type(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()? {
        "html" => Some("text/html; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        "wasm" => Some("application/wasm"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_of_the_folder_is_served() {
        let folder = Path::new("pages");
        assert_eq!(file_of(folder, "/"), Some("pages/index.html".into()));
        assert_eq!(file_of(folder, "/pkg/a.wasm?b"), Some("pages/pkg/a.wasm".into()));
        for outside in ["/../secret", "/a/../../secret", "//etc/../passwd"] {
            assert_eq!(file_of(folder, outside), None, "{outside}");
        }
    }

    #[test]
    fn scripts_may_make_no_request() {
        let policy = |media_type| {
            headers(media_type).into_iter().find(|(name, _)| *name == "Content-Security-Policy")
        };
        assert_eq!(policy("text/javascript; charset=utf-8").map(|(_, value)| value), Some(POLICY));
        assert!(!POLICY.contains("connect-src"), "it falls back to default-src 'none'");
        assert_eq!(policy("text/html; charset=utf-8"), None);
    }
}
