use burn::train::metric::{NumericEntry, SerializedEntry, format_float};

/// A number of which the last one counts, not a mean over the epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct LastValue(Option<f64>);

impl LastValue {
    /// Keeps a new value; without one the last stays.
    pub(super) fn update(&mut self, value: Option<f64>) -> SerializedEntry {
        self.0 = value.or(self.0);
        self.entry(NumericEntry::Value)
    }

    pub(super) fn compute(&self) -> SerializedEntry {
        self.entry(NumericEntry::Final)
    }

    fn entry(&self, entry: fn(f64) -> NumericEntry) -> SerializedEntry {
        match self.0 {
            Some(value) => SerializedEntry::new(format_float(value, 4), entry(value).serialize()),
            None => SerializedEntry::not_available(None),
        }
    }

    pub(super) fn value(&self) -> Option<NumericEntry> {
        self.0.map(NumericEntry::Value)
    }

    pub(super) fn final_value(&self) -> NumericEntry {
        NumericEntry::Final(self.0.unwrap_or(f64::NAN))
    }
}
