//! Digits that belong to users.

use burn::data::dataset::InMemDataset;
use burn_dp_examples::data::{ImageItem, digits};

/// Number of users.
pub const USERS: usize = 200;

/// Returns the digits of each user: user `u` owns every digit whose number is `u` modulo the number
/// of users.
pub fn users() -> InMemDataset<Vec<ImageItem>> {
    let digits = digits::splits(0, 10 * USERS, 0).train;
    let mut users: Vec<Vec<ImageItem>> = vec![Vec::new(); USERS];
    for (number, item) in digits.items().iter().enumerate() {
        users[number % USERS].push(item.clone());
    }
    InMemDataset::new(users)
}
