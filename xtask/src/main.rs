//! The one way to run anything in this workspace.

fn main() {}
