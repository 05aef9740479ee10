//! Text of many users without a download: speaking roles of plays in a made-up language.
//!
//! Words have a frequency that falls with their rank, some follow others, and each role has
//! favorites. Roles differ in length like Shakespeare's: a few of them have most of the text.
//!
//! The generator is deterministic and its seed public: these data need no protection.

use super::dice::Dice;
use super::shakespeare::Role;

/// Name of the data set in reports.
pub const NAME: &str = "synthetic roles";

/// Number of words in the language.
const WORDS: usize = 300;

/// Number of favorite words of a role.
const FAVORITES: usize = 12;

const CONSONANTS: [&str; 12] = ["b", "d", "f", "k", "l", "m", "n", "r", "s", "t", "v", "th"];
const VOWELS: [&str; 6] = ["a", "e", "i", "o", "u", "ee"];

/// Makes synthetic roles. A larger number of roles from the same seed starts with the same ones.
pub fn roles(seed: u64, count: usize) -> Vec<Role> {
    (0..count).map(|index| role(seed, index)).collect()
}

fn role(seed: u64, index: usize) -> Role {
    let mut dice = Dice::new(seed, index as u64);
    let favorites: Vec<usize> = (0..FAVORITES).map(|_| dice.below(WORDS)).collect();
    // From 8 to about 2000 words; half of the roles have fewer than 130.
    let words = 8.0 * dice.between(0.0, 5.5).exp();
    let mut text = String::new();
    let mut last = frequent(&mut dice);
    for position in 0..words as usize {
        last = match dice.below(8) {
            0 | 1 => favorites[dice.below(FAVORITES)],
            2..=4 => follower(last),
            _ => frequent(&mut dice),
        };
        text.push_str(&word(last));
        let end = match dice.below(9) {
            _ if position + 1 == words as usize => ".",
            0 => ".\n",
            1 => ", ",
            _ => " ",
        };
        text.push_str(end);
    }
    Role { user: format!("DRAWN/{index}"), text }
}

/// Draws a word; the density of its rank falls with the rank.
fn frequent(dice: &mut Dice) -> usize {
    let rank = (WORDS as f32).powf(dice.uniform());
    (rank as usize - 1).min(WORDS - 1)
}

/// Returns the word that often follows another one.
fn follower(word: usize) -> usize {
    (7 * word + 3) % WORDS
}

/// Returns the spelling of a word: frequent words are short.
fn word(rank: usize) -> String {
    let (syllables, mut number) = (CONSONANTS.len() * VOWELS.len(), rank * 29 + 5);
    let length = if rank < 30 { 1 } else { 2 };
    let mut text = String::new();
    for _ in 0..length {
        let syllable = number % syllables;
        text.push_str(CONSONANTS[syllable % CONSONANTS.len()]);
        text.push_str(VOWELS[syllable / CONSONANTS.len()]);
        number /= syllables;
        number += rank;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_depend_on_the_seed_and_on_their_number_alone() {
        let all = roles(1, 20);
        assert_eq!(roles(1, 7), all[..7]);
        assert_ne!(roles(2, 7), all[..7]);
        assert!(all.iter().all(|role| role.text.is_ascii() && role.text.ends_with('.')));
    }

    #[test]
    fn few_roles_say_most() {
        let mut lengths: Vec<usize> = roles(0, 400).iter().map(|role| role.text.len()).collect();
        lengths.sort_unstable();
        let all: usize = lengths.iter().sum();
        let longest: usize = lengths[300..].iter().sum();
        assert!(2 * longest > all, "{longest} of {all}");
        assert!((200..1_500).contains(&lengths[200]), "median {}", lengths[200]);
    }
}
