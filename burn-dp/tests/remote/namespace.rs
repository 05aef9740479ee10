//! Separate hosts on one machine: Linux network namespaces.

use std::process::Command;

use crate::servers::{Server, this_program};

/// Hosts that reach each other and this process over a bridge, removed when this is dropped.
pub(crate) struct Network {
    bridge: String,
    hosts: Vec<Host>,
}

struct Host {
    namespace: String,
    /// Its end at the bridge.
    link: String,
}

impl Network {
    /// Creates the hosts; `None`, with a note, where that is not permitted. The variable
    /// `BURN_DP_TEST_NAMESPACES`, which `cargo xtask test-remote` sets where it is, makes that an
    /// error.
    pub(crate) fn new(hosts: usize) -> Option<Self> {
        let id = std::process::id();
        let mut network = Self { bridge: format!("b{id}"), hosts: Vec::new() };
        for number in 0..hosts {
            let host =
                Host { namespace: format!("bdp{id}n{number}"), link: format!("b{id}v{number}") };
            let is_permitted = ip(&["netns", "add", &host.namespace]);
            if !is_permitted {
                assert!(std::env::var_os("BURN_DP_TEST_NAMESPACES").is_none(), "no namespaces");
                eprintln!("note: no network namespaces here, so the tests of them did nothing");
                return None;
            }
            network.hosts.push(host);
        }
        let bridge = network.bridge.as_str();
        assert!(ip(&["link", "add", bridge, "type", "bridge"]));
        assert!(ip(&["addr", "add", &format!("{}/24", address(1)), "dev", bridge]));
        assert!(ip(&["link", "set", bridge, "up"]));
        for (number, Host { namespace, link }) in network.hosts.iter().enumerate() {
            let peer = ["type", "veth", "peer", "name", "eth0", "netns", namespace];
            assert!(ip(&[&["link", "add", link][..], &peer].concat()));
            assert!(ip(&["link", "set", link, "master", bridge]));
            assert!(ip(&["link", "set", link, "up"]));
            let address = format!("{}/24", address(number + 2));
            assert!(ip(&["-n", namespace, "addr", "add", &address, "dev", "eth0"]));
            assert!(ip(&["-n", namespace, "link", "set", "eth0", "up"]));
            assert!(ip(&["-n", namespace, "link", "set", "lo", "up"]));
        }
        Some(network)
    }

    /// Starts a server on each host.
    pub(crate) fn servers(&self) -> Vec<Server> {
        let server = |(number, host): (usize, &Host)| {
            let mut program = Command::new("ip");
            program.args(["netns", "exec", &host.namespace]).arg(this_program().get_program());
            Server::start_in(program, format!("{}:0", address(number + 2)).parse().unwrap())
        };
        self.hosts.iter().enumerate().map(server).collect()
    }

    /// Cuts the connection to a host.
    pub(crate) fn cut(&self, host: usize) {
        assert!(ip(&["link", "set", &self.hosts[host].link, "down"]));
    }

    /// Restores the connection to a host.
    pub(crate) fn mend(&self, host: usize) {
        assert!(ip(&["link", "set", &self.hosts[host].link, "up"]));
    }
}

/// Returns an address in 10.0.0.0/8, where each process has its own network.
fn address(host: usize) -> String {
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    format!("10.{high}.{low}.{host}")
}

impl Drop for Network {
    fn drop(&mut self) {
        for Host { namespace, link } in &self.hosts {
            ip(&["link", "del", link]);
            ip(&["netns", "del", namespace]);
        }
        ip(&["link", "del", &self.bridge]);
    }
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).output().is_ok_and(|output| output.status.success())
}
