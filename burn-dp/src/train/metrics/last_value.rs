use burn::train::metric::{NumericEntry, SerializedEntry, format_float};

/// Implements Burn's traits for a metric with a field `name` and a [`LastValue`] in its field
/// `last`. Each item, and the end of each epoch, provides a new value or none.
macro_rules! last_value_metric {
    ($metric:ty, $input:ty, $description:literal, higher_is_better: $higher:literal,
     |$this:ident, $item:ident| $value:expr) => {
        last_value_metric!(
            $metric,
            $input,
            $description,
            higher_is_better: $higher,
            |$this, $item| $value,
            at_end: |_this| None
        );
    };
    ($metric:ty, $input:ty, $description:literal, higher_is_better: $higher:literal,
     |$this:ident, $item:ident| $value:expr, at_end: |$that:ident| $settled:expr) => {
        impl burn::train::metric::Metric for $metric {
            type Input = $input;

            fn name(&self) -> burn::train::metric::MetricName {
                self.name.clone()
            }

            fn description(&self) -> Option<String> {
                Some($description.into())
            }

            fn attributes(&self) -> burn::train::metric::MetricAttributes {
                let attributes = burn::train::metric::NumericAttributes {
                    unit: None,
                    higher_is_better: $higher,
                };
                attributes.into()
            }

            fn update(
                &mut self,
                $item: &Self::Input,
                _: &burn::train::metric::MetricMetadata,
            ) -> Result<burn::train::metric::SerializedEntry, burn::tensor::TensorReadError> {
                let $this = &mut *self;
                let value = $value;
                Ok(self.last.update(value))
            }

            fn compute(
                &mut self,
            ) -> Result<burn::train::metric::SerializedEntry, burn::tensor::TensorReadError> {
                let $that = &mut *self;
                let value = $settled;
                Ok(self.last.compute(value))
            }

            /// Keeps the last value, which does not belong to an epoch.
            fn clear(&mut self) {}
        }

        impl burn::train::metric::Numeric for $metric {
            fn value(&self) -> Option<burn::train::metric::NumericEntry> {
                self.last.value()
            }

            fn running_value(&self) -> Option<burn::train::metric::NumericEntry> {
                self.last.value()
            }

            fn final_value(&self) -> burn::train::metric::NumericEntry {
                self.last.final_value()
            }
        }
    };
}
pub(super) use last_value_metric;

/// A number whose last value the dashboard shows, not its mean over the epoch.
#[derive(Clone, Debug, Default)]
pub(super) struct LastValue(Option<f64>);

impl LastValue {
    /// Replaces the value, if there is a new one.
    pub(super) fn update(&mut self, value: Option<f64>) -> SerializedEntry {
        self.0 = value.or(self.0);
        self.entry(NumericEntry::Value)
    }

    /// Returns the last value, or a newer one, as the value of the epoch.
    pub(super) fn compute(&mut self, value: Option<f64>) -> SerializedEntry {
        self.0 = value.or(self.0);
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
