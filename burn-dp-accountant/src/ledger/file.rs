//! The ledger as JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::entry::LedgerEntry;
use super::header::LedgerHeader;
use crate::error::AccountantError;
use crate::strict_json;

/// Version of the serialized ledger. Version 1, which has fewer events, and version 2, whose header
/// has no simulation, can also be read; readers reject every other version.
pub const LEDGER_FORMAT_VERSION: u32 = 3;

/// The readable versions. No event has changed its meaning.
const READABLE: std::ops::RangeInclusive<u32> = 1..=LEDGER_FORMAT_VERSION;

#[derive(Serialize)]
pub(super) struct Written<'a> {
    format_version: u32,
    header: &'a LedgerHeader,
    entries: &'a [LedgerEntry],
}

impl<'a> Written<'a> {
    pub(super) fn new(header: &'a LedgerHeader, entries: &'a [LedgerEntry]) -> Self {
        Self { format_version: LEDGER_FORMAT_VERSION, header, entries }
    }
}

#[derive(Deserialize)]
struct Version {
    format_version: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    #[allow(dead_code, reason = "checked by `Version` before")]
    format_version: u32,
    header: LedgerHeader,
    entries: Vec<LedgerEntry>,
}

/// Returns a ledger as JSON text.
///
/// # Errors
///
/// Returns [`AccountantError::Format`] if a number cannot be written.
pub(super) fn to_json(
    header: &LedgerHeader,
    entries: &[LedgerEntry],
) -> Result<String, AccountantError> {
    serde_json::to_string_pretty(&Written::new(header, entries)).map_err(|source| {
        AccountantError::Format {
            reason: "the ledger cannot be written".to_string(),
            source: Some(source),
        }
    })
}

/// Reads the JSON text of a ledger. The events are not checked.
///
/// # Errors
///
/// Returns [`AccountantError::Format`] for another format version, an unknown event, or an unknown
/// or repeated field.
pub(super) fn from_json(text: &str) -> Result<(LedgerHeader, Vec<LedgerEntry>), AccountantError> {
    let format_error = |reason: &str, source| AccountantError::Format {
        reason: reason.to_string(),
        source: Some(source),
    };
    let version: Version = serde_json::from_str(text).map_err(|error| {
        let fields: Value = serde_json::from_str(text).unwrap_or_default();
        let reason = match fields.get("not_covered") {
            Some(_) => "is a privacy statement, not a ledger; give ledger.json of the run",
            None => "is not a privacy ledger",
        };
        format_error(reason, error)
    })?;
    if !READABLE.contains(&version.format_version) {
        return Err(AccountantError::Format {
            reason: format!(
                "the ledger has format version {}, this program reads 1 to \
                 {LEDGER_FORMAT_VERSION}; use the program that wrote it, or a newer one",
                version.format_version
            ),
            source: None,
        });
    }
    let read = strict_json::read::<Read>(text).map_err(|error| {
        let reason = "the ledger contains an unknown event or field, and nothing may be skipped";
        format_error(reason, error)
    })?;
    Ok((read.header, read.entries))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::event::{DpEvent, RunCount};
    use crate::ledger::{NoiseProvenance, PrivacyLedger, UnitOfPrivacy};
    use crate::relation::NeighboringRelation;

    fn ledger() -> PrivacyLedger {
        let header = LedgerHeader::new(UnitOfPrivacy::User, NeighboringRelation::ReplaceOne)
            .with_sampler("Poisson")
            .with_noise_source(NoiseProvenance::Insecure { reason: "test".into() })
            .with_fact("dataset_size", 60_000);
        let mut ledger = PrivacyLedger::new(header);
        let gaussian = || Box::new(DpEvent::gaussian(1.0 / 3.0));
        let runs = RunCount::TruncatedNegativeBinomial { mean: 10.0, shape: 0.0 };
        for event in [
            DpEvent::dp_sgd_step(0.1 + 0.2, 1.1),
            DpEvent::JointGaussian { noise_multipliers: vec![1.0, 2.0] },
            DpEvent::SampledWithoutReplacement {
                dataset_size: 10,
                sample_size: 3,
                event: gaussian(),
            },
            DpEvent::RepeatAndSelect { event: gaussian(), runs },
            DpEvent::Composed { events: vec![DpEvent::NonPrivate, DpEvent::gaussian(2.0)] },
            DpEvent::Unsupported { reason: "weighted sampler".into() },
        ] {
            ledger.record_many(&event, 3).unwrap();
        }
        ledger
    }

    #[test]
    fn ledger_survives_the_file_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.json");
        ledger().save(&path).unwrap();
        ledger().save(&path).unwrap();
        assert_eq!(PrivacyLedger::load(&path).unwrap(), ledger());
    }

    #[test]
    fn unknown_version_is_refused() {
        for version in [0, 4] {
            let text = as_version(version);
            let error = PrivacyLedger::from_json(&text).unwrap_err().to_string();
            assert!(error.contains(&format!("format version {version}")), "{error}");
        }
    }

    #[test]
    fn older_version_is_read_and_written_as_the_newest() {
        for version in [1, 2] {
            let read = PrivacyLedger::from_json(&as_version(version)).unwrap();
            assert_eq!(read, ledger());
            assert!(read.to_json().unwrap().contains("\"format_version\": 3"));
        }
    }

    fn as_version(version: u32) -> String {
        let newest = format!("\"format_version\": {LEDGER_FORMAT_VERSION}");
        let text = ledger().to_json().unwrap();
        assert!(text.contains(&newest), "{text}");
        text.replace(&newest, &format!("\"format_version\": {version}"))
    }

    #[test]
    fn unknown_events_and_fields_are_refused() {
        let text = ledger().to_json().unwrap();
        let event = text.replace("\"non_private\"", "\"shuffled\"");
        assert!(matches!(PrivacyLedger::from_json(&event), Err(AccountantError::Format { .. })));
        let field = text.replace("\"sampler\"", "\"sample\"");
        assert!(matches!(PrivacyLedger::from_json(&field), Err(AccountantError::Format { .. })));
        let inside = text.replace("\"sampling_probability\"", "\"q\": 1, \"sampling_probability\"");
        assert!(matches!(PrivacyLedger::from_json(&inside), Err(AccountantError::Format { .. })));
    }

    #[test]
    fn a_repeated_field_is_refused_also_in_a_file_that_contains_the_ledger() {
        let text = serde_json::to_string(&ledger()).unwrap();
        assert_eq!(serde_json::from_str::<PrivacyLedger>(&text).unwrap(), ledger());
        for (field, repeated) in [
            ("\"count\":3", "\"count\":3,\"count\":1"),
            ("\"dataset_size\":\"60000\"", "\"dataset_size\":\"60000\",\"dataset_size\":\"1\""),
        ] {
            let text = text.replacen(field, repeated, 1);
            assert!(text.contains(repeated), "{text}");
            assert!(serde_json::from_str::<PrivacyLedger>(&text).is_err());
            assert!(PrivacyLedger::from_json(&text).is_err());
        }
        let secure = text.replace("\"insecure\"", "\"secure\"");
        assert!(serde_json::from_str::<PrivacyLedger>(&secure).is_err());
    }

    #[test]
    fn impossible_parameters_in_a_file_are_refused() {
        let text = ledger().to_json().unwrap().replace("1.1", "-1.1");
        assert!(matches!(
            PrivacyLedger::from_json(&text),
            Err(AccountantError::InvalidArgument { .. })
        ));
    }

    #[test]
    fn missing_file_is_named() {
        let error = PrivacyLedger::load("no-such-ledger.json").unwrap_err().to_string();
        assert!(error.contains("no-such-ledger.json"), "{error}");
    }
}
