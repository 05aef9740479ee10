//! Settings as text, which a resumed run compares.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::TrainError;

/// Returns settings as text, by option. Settings that are not set are left out.
///
/// # Errors
///
/// Returns [`TrainError::Record`] if a setting cannot be serialized.
pub(super) fn compared(settings: &impl Serialize) -> Result<BTreeMap<String, String>, TrainError> {
    let value = serde_json::to_value(settings).map_err(|error| TrainError::Record {
        path: "settings".into(),
        reason: error.to_string(),
    })?;
    let Value::Object(settings) = value else { return Ok(BTreeMap::new()) };
    let mut texts = BTreeMap::new();
    for (name, value) in settings {
        // A name with spaces is not an option.
        let name = if name.contains(' ') { name } else { format!("--{name}") };
        insert(&mut texts, name, value);
    }
    Ok(texts)
}

/// Returns each setting that differs, with both values.
pub(super) fn differences(
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let differs = |name: &&String| before.get(*name) != now.get(*name);
    let both = |name: &String| {
        let [before, now] = [before, now].map(|settings| settings.get(name));
        let [before, now] = [before, now].map(|value| value.map_or("not set", String::as_str));
        format!("{name} was {before} and is now {now}")
    };
    names.into_iter().filter(differs).map(both).collect()
}

/// Inserts a setting, or the parts of one: each part is compared by itself.
fn insert(texts: &mut BTreeMap<String, String>, name: String, value: Value) {
    let text = match value {
        Value::Null => return,
        Value::Object(parts) => {
            for (part, value) in parts {
                insert(texts, format!("{name}, {part}"), value);
            }
            return;
        }
        Value::String(text) => text,
        Value::Number(number) => number.to_string().trim_end_matches(".0").to_string(),
        Value::Array(values) if values.iter().all(Value::is_string) => {
            values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    };
    texts.insert(name, text);
}
