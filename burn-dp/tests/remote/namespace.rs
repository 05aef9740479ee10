//! Hosts of their own on one machine: network namespaces of Linux.

use std::process::Command;

use crate::servers::{Server, this_program};

/// A network namespace with an address that this process reaches, removed when this is dropped.
pub(crate) struct Namespace {
    name: String,
    link: String,
    number: usize,
}

impl Namespace {
    /// Creates a namespace; `None`, with a note, where that is not permitted. The variable
    /// `BURN_DP_TEST_NAMESPACES`, which `cargo xtask test-remote` sets where it is, makes that an
    /// error.
    pub(crate) fn new(number: usize) -> Option<Self> {
        let id = std::process::id();
        let namespace =
            Self { name: format!("bdp{id}n{number}"), link: format!("b{id}v{number}"), number };
        let Self { name, link, .. } = &namespace;
        if !ip(&["netns", "add", name]) {
            assert!(std::env::var_os("BURN_DP_TEST_NAMESPACES").is_none(), "no network namespace");
            eprintln!("note: no network namespaces here, so the tests of them did nothing");
            return None;
        }
        let [here, there] = [1, 2].map(|host| format!("{}/30", namespace.host(host)));
        assert!(ip(&["link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name]));
        assert!(ip(&["addr", "add", &here, "dev", link]));
        assert!(ip(&["link", "set", link, "up"]));
        assert!(ip(&["-n", name, "addr", "add", &there, "dev", "eth0"]));
        assert!(ip(&["-n", name, "link", "set", "eth0", "up"]));
        assert!(ip(&["-n", name, "link", "set", "lo", "up"]));
        Some(namespace)
    }

    fn host(&self, host: usize) -> String {
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        // 10.0.0.0/8, other numbers for each process and namespace.
        format!("10.{high}.{low}.{}", 4 * self.number + host)
    }

    /// Starts a server in the namespace.
    pub(crate) fn server(&self) -> Server {
        let mut program = Command::new("ip");
        program.args(["netns", "exec", &self.name]).arg(this_program().get_program());
        Server::start_in(program, format!("{}:0", self.host(2)).parse().unwrap())
    }

    /// Cuts the connection.
    pub(crate) fn cut(&self) {
        assert!(ip(&["link", "set", &self.link, "down"]));
    }

    /// Mends the connection.
    pub(crate) fn mend(&self) {
        assert!(ip(&["link", "set", &self.link, "up"]));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&["link", "del", &self.link]);
        ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).output().is_ok_and(|output| output.status.success())
}
