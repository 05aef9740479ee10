//! Servers in separate processes.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use burn::remote::RemoteHost;
use burn::server::{RemoteServer, WebSocketTransport};
use burn::tensor::Device;

/// The variable with the address that a server listens on. Without it, the test that acts as the
/// server does nothing.
const LISTEN: &str = "BURN_DP_TEST_SERVER";

/// Printed by a server before its address.
const LISTENING: &str = "listening on ";

/// The server process of the tests; it does nothing on its own.
#[test]
fn server() {
    let Ok(address) = std::env::var(LISTEN) else { return };
    let listener = TcpListener::bind(address).unwrap();
    println!("\n{LISTENING}{}", listener.local_addr().unwrap());
    // ANCHOR: server
    let transport = WebSocketTransport::from_listener(listener);
    RemoteServer::new([Device::flex()]).serve(transport).unwrap();
    // ANCHOR_END: server
}

/// Returns the command that runs a single test of this program.
pub(crate) fn test_command(program: Command, name: &str) -> Command {
    let mut command = program;
    command.args([name, "--exact", "--nocapture"]);
    command
}

/// Returns the command of this program.
pub(crate) fn this_program() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

/// A running process, which is ended when this value is dropped.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// Waits for a line that begins with these words, and returns the rest of it; `None` if the
    /// process ended.
    pub(crate) fn line(&mut self, begin: &str) -> Option<String> {
        let mut lines = (&mut self.output).lines().map(Result::unwrap);
        lines.find_map(|line| line.strip_prefix(begin).map(String::from))
    }

    /// Writes an empty line to the process.
    pub(crate) fn go_on(&mut self) {
        writeln!(self.input).unwrap();
        self.input.flush().unwrap();
    }

    /// Sends a signal, by its name.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
    }

    /// Ends the process immediately.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A server that hosts one device of the CPU.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts a server on the loopback interface, on a free port.
    pub(crate) fn start() -> Self {
        Self::start_in(this_program(), "127.0.0.1:0".parse().unwrap())
    }

    /// Starts a server on an address with `program`, which runs this program.
    pub(crate) fn start_in(program: Command, address: SocketAddr) -> Self {
        let mut command = test_command(program, "servers::server");
        command.env(LISTEN, address.to_string());
        let mut process = Process::start(command);
        let address = process.line(LISTENING).expect("the server ended").parse().unwrap();
        Self { process, address }
    }

    /// Starts another server on the address of one that ended.
    pub(crate) fn start_again(self) -> Self {
        let address = self.address;
        drop(self);
        Self::start_in(this_program(), address)
    }
}

/// Returns the device of a server as a client sees it.
pub(crate) fn device_at(address: SocketAddr) -> Device {
    // ANCHOR: device
    let host = RemoteHost::websocket(&format!("ws://{address}"));
    Device::remote_options(&host).init().unwrap()
    // ANCHOR_END: device
}
