//! The page "From Burn to private Burn" shows the difference of two programs that are compiled.

#![allow(clippy::unwrap_used)]

use std::path::Path;

/// Returns the lines of `old` and `new` as a diff; common lines are kept.
fn diff<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    // Length of the longest common part of the rest of both.
    let mut common = vec![vec![0; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = match old[i] == new[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || i < old.len() && common[i + 1][j] >= common[i][j + 1] {
            lines.push(('-', old[i]));
            i += 1;
        } else {
            lines.push(('+', new[j]));
            j += 1;
        }
    }
    lines
}

#[test]
fn the_page_shows_the_difference_between_the_two_programs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(folder.join("examples").join(name)).unwrap();
    let (old, new) = (read("learner/src/ordinary.rs"), read("learner/src/main.rs"));
    let lines = diff(&old.lines().collect::<Vec<_>>(), &new.lines().collect::<Vec<_>>());
    let count = |sign| lines.iter().filter(|line| line.0 == sign).count();
    assert!(count('+') <= 25 && count('-') <= 25, "{} and {}", count('+'), count('-'));

    let shown: String = lines
        .iter()
        .map(|(sign, line)| format!("{}\n", format!("{sign}{line}").trim_end()))
        .collect();
    // A package that was unpacked on its own has no other packages.
    if let Ok(page) = std::fs::read_to_string(folder.join("../burn-dp/docs/from-burn.md")) {
        let (_, rest) = page.split_once("```diff\n").unwrap();
        let (found, _) = rest.split_once("```").unwrap();
        assert_eq!(
            found, shown,
            "docs/from-burn.md shows another difference; it should be:\n{shown}"
        );
        let said = format!("{} lines are new or changed", count('+'));
        let words: Vec<_> = page.split_whitespace().collect();
        assert!(words.join(" ").contains(&said), "{said}");
    }
}

#[test]
fn a_difference_names_removed_and_added_lines() {
    assert_eq!(
        diff(&["a", "b", "c"], &["a", "x", "c", "d"]),
        [(' ', "a"), ('-', "b"), ('+', "x"), (' ', "c"), ('+', "d"),]
    );
}
