//! The chapters of the book; `cargo test --doc -p burn-dp-book` compiles and runs their Rust blocks.

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
    getting_started: "getting-started.md",
}
