//! The chapters of the book, whose Rust blocks are doc tests: `cargo xtask book --blocks`.

/// One module for each chapter with Rust blocks.
macro_rules! chapters {
    ($($name:ident: $file:literal),+ $(,)?) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("src/", $file))]
            mod $name {}
        )+
    };
}

chapters! {
    accounting: "accounting.md",
    correlated_noise: "correlated-noise.md",
    auditing: "auditing.md",
    choosing: "choosing.md",
    devices: "devices.md",
    coverage: "coverage.md",
    extending: "extending.md",
    from_burn: "from-burn.md",
    from_opacus: "from-opacus.md",
    getting_started: "getting-started.md",
    how_it_works: "how-it-works.md",
    // Its blocks are parts of `burn-dp/tests/remote`, which compiles and runs them. A doc test has
    // no server, so they are marked `ignore`.
    machines: "machines.md",
    performance: "performance.md",
    policies: "policies.md",
    recipes: "recipes.md",
    samplers: "samplers.md",
    troubleshooting: "troubleshooting.md",
    user_level: "user-level.md",
    web: "web.md",
}
