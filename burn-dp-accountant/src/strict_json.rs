//! JSON in which nothing may be skipped.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

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
/// Returns the error of the parser, or an unknown field of a variant without fields, or a field
/// that is repeated.
pub fn read<T: DeserializeOwned>(json: impl AsRef<[u8]>) -> Result<T, serde_json::Error> {
    let read = serde_json::from_slice(json.as_ref())?;
    let Unrepeated(value) = serde_json::from_slice(json.as_ref())?;
    check(&value)?;
    Ok(read)
}

/// A JSON value without repeated fields, of which a [`Value`] keeps the last one.
#[derive(Debug)]
pub struct Unrepeated(pub Value);

impl<'de> Deserialize<'de> for Unrepeated {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReadValue).map(Self)
    }
}

struct ReadValue;

impl<'de> Visitor<'de> for ReadValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let mut found = Vec::new();
        while let Some(Unrepeated(value)) = values.next_element()? {
            found.push(value);
        }
        Ok(found.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut found = Map::new();
        while let Some((name, Unrepeated(value))) = fields.next_entry::<String, _>()? {
            if found.contains_key(&name) {
                return Err(A::Error::custom(format!("field `{name}` is repeated")));
            }
            found.insert(name, value);
        }
        Ok(found.into())
    }
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

    use super::Unrepeated;
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

    #[test]
    fn a_repeated_field_is_refused_at_any_depth() {
        let text = r#"{"a": [null, true, -1, 18446744073709551615, 1.5, "x", {"b": {}}]}"#;
        let Unrepeated(value) = serde_json::from_str(text).unwrap();
        assert_eq!(value, serde_json::from_str::<serde_json::Value>(text).unwrap());
        for text in [r#"{"a": 1, "a": 1}"#, r#"[{"b": {"c": 1, "d": 2, "c": 1}}]"#] {
            assert!(serde_json::from_str::<Unrepeated>(text).is_err(), "{text}");
        }
    }
}
