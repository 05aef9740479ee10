//! JSON in which nothing may be skipped.

use serde::de::{DeserializeOwned, Error};
use serde_json::Value;

/// Variants without fields. `deny_unknown_fields` does not hold for them if their name is a field.
const WITHOUT_FIELDS: [(&str, &str); 5] = [
    ("kind", "identity"),
    ("kind", "optimal_toeplitz"),
    ("kind", "tree"),
    ("source", "secure"),
    ("type", "non_private"),
];

/// Reads a value whose types deny unknown fields.
///
/// # Errors
///
/// Returns the error of the parser, or an unknown field of a variant without fields.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    let read = serde_json::from_str(text)?;
    check(&serde_json::from_str(text)?)?;
    Ok(read)
}

fn check(value: &Value) -> Result<(), serde_json::Error> {
    if let Value::Object(fields) = value {
        let is_alone = |(tag, name): &(&str, &str)| fields.get(*tag).is_some_and(|it| it == name);
        if let Some((tag, name)) = WITHOUT_FIELDS.into_iter().find(is_alone)
            && let Some(field) = fields.keys().find(|field| *field != tag)
        {
            return Err(serde_json::Error::custom(format!("unknown field `{field}` of `{name}`")));
        }
        return fields.values().try_for_each(check);
    }
    value.as_array().map_or(Ok(()), |values| values.iter().try_for_each(check))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::correlated_noise::Strategy;
    use crate::{DpEvent, LedgerHeader, NeighboringRelation, PrivacyLedger, UnitOfPrivacy};

    #[test]
    fn a_field_of_a_variant_without_fields_is_refused() {
        let header = LedgerHeader::new(UnitOfPrivacy::Example, NeighboringRelation::ReplaceOne);
        let mut ledger = PrivacyLedger::new(header);
        ledger.record(&DpEvent::NonPrivate).unwrap();
        let text = ledger.to_json().unwrap();
        assert!(PrivacyLedger::from_json(&text).is_ok());
        for name in ["secure", "non_private"] {
            let name = format!("\"{name}\"");
            assert_eq!(text.matches(&name).count(), 1, "{text}");
            let text = text.replace(&name, &format!("{name}, \"reason\": \"fixed seed\""));
            let error = PrivacyLedger::from_json(&text).unwrap_err().to_string();
            assert!(error.contains("unknown field `reason`"), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("strategy.json");
        Strategy::identity(4).unwrap().save(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"identity\"", "\"identity\", \"bands\": 2")).unwrap();
        let error = Strategy::load(&path).unwrap_err().to_string();
        assert!(error.contains("unknown field `bands` of `identity`"), "{error}");
    }
}
