//! Converts texts to numbers, by a rule that does not depend on the private texts.

use std::collections::HashMap;

/// The number for positions after the end of a text.
pub const PADDING: u32 = 0;

/// The number for words outside a listed vocabulary, and for a text without words.
pub const UNKNOWN: u32 = 1;

/// The first number of a word.
const FIRST: u32 = 2;

/// Numbers of words.
///
/// # Privacy
///
/// A vocabulary collected from the private texts reveals which words somebody wrote, and ε does not
/// count it. Both kinds here are public: a hash does not depend on the texts, and a list comes from
/// another source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vocabulary {
    /// Words fall into this many buckets by their hash; some share one.
    Hashed {
        /// Number of buckets, at least 1.
        buckets: u32,
    },
    /// The words of a public list, by their place in it; all others are [`UNKNOWN`].
    Listed(HashMap<String, u32>),
}

impl Vocabulary {
    /// Returns the vocabulary of a public list of words.
    pub fn listed(words: impl IntoIterator<Item = String>) -> Self {
        let mut numbers = HashMap::new();
        for (word, number) in words.into_iter().zip(FIRST..) {
            numbers.entry(word).or_insert(number);
        }
        Self::Listed(numbers)
    }

    /// Returns the size of an embedding with a row for every number.
    pub fn len(&self) -> usize {
        let last = match self {
            Self::Hashed { buckets } => FIRST + buckets - 1,
            Self::Listed(numbers) => numbers.values().copied().max().unwrap_or(UNKNOWN),
        };
        last as usize + 1
    }

    /// Returns whether there is no word, which is never the case for a hash.
    pub fn is_empty(&self) -> bool {
        self.len() <= FIRST as usize
    }

    /// Returns the words of a text as numbers; one [`UNKNOWN`] for a text without words.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let tokens: Vec<_> = words(text).map(|word| self.number(&word)).collect();
        if tokens.is_empty() { vec![UNKNOWN] } else { tokens }
    }

    fn number(&self, word: &str) -> u32 {
        match self {
            Self::Hashed { buckets } => FIRST + (fnv1a(word) % u64::from(*buckets)) as u32,
            Self::Listed(numbers) => numbers.get(word).copied().unwrap_or(UNKNOWN),
        }
    }
}

/// Returns the words of a text in lower case: runs of letters and digits. Apostrophes and the line
/// breaks of HTML are removed.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    let text = text.replace("<br />", " ").to_lowercase().replace(['\'', '\u{2019}'], "");
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(String::from).collect::<Vec<_>>().into_iter()
}

/// Returns the 64-bit hash FNV-1a, which is the same on every machine and in every version.
///
/// # References
///
/// G. Fowler, L. Noll, K. Vo: The FNV non-cryptographic hash algorithm, RFC 9923.
fn fnv1a(word: &str) -> u64 {
    word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        words(text).collect()
    }

    #[test]
    fn words_are_lower_case_runs_of_letters_and_digits() {
        assert_eq!(
            split("It's GREAT!<br /><br />10/10, don’t miss."),
            ["its", "great", "10", "10", "dont", "miss"]
        );
        assert_eq!(split("Amélie – été"), ["amélie", "été"]);
        assert!(split(" ... ").is_empty());
    }

    #[test]
    fn the_hash_is_the_published_one() {
        // Test vectors of the reference implementation.
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn hashed_words_follow_padding_and_unknown() {
        let vocabulary = Vocabulary::Hashed { buckets: 3 };
        assert_eq!(vocabulary.len(), 5);
        let tokens = vocabulary.encode("one two three four five six seven eight nine ten one");
        assert!(tokens.iter().all(|token| (2..5).contains(token)), "{tokens:?}");
        assert_eq!(tokens[0], tokens[10]);
        assert_eq!(vocabulary.encode("?!"), [UNKNOWN]);
    }

    #[test]
    fn a_list_numbers_its_words_and_no_others() {
        let vocabulary = Vocabulary::listed(["good", "bad", "good"].map(String::from));
        assert_eq!(vocabulary.encode("Bad is not good"), [3, UNKNOWN, UNKNOWN, 2]);
        assert_eq!(vocabulary.len(), 4);
        assert!(Vocabulary::listed([]).is_empty() && !vocabulary.is_empty());
    }
}
