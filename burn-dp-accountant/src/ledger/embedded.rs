//! A ledger inside of another file.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::file::Written;
use super::record::PrivacyLedger;
use crate::strict_json::Unrepeated;

/// As the JSON of [`PrivacyLedger::to_json`], inside of another file.
impl Serialize for PrivacyLedger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Written::new(self.header(), self.entries()).serialize(serializer)
    }
}

/// With the checks of [`PrivacyLedger::from_json`].
impl<'de> Deserialize<'de> for PrivacyLedger {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Unrepeated(value) = Unrepeated::deserialize(deserializer)?;
        Self::from_json(&value.to_string()).map_err(D::Error::custom)
    }
}
