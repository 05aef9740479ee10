//! Axes of figures.

/// Ratio of the largest to the smallest value above which an axis is logarithmic.
const LOGARITHMIC: f64 = 100.0;

/// Maximum number of labels on an axis.
const LABELS: usize = 10;

/// Position and labels of values on an axis.
pub(super) struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    whole: bool,
}

impl Axis {
    /// Creates an axis for these values, at least one.
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone, may_be_logarithmic: bool) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.clone().fold(f64::NEG_INFINITY, f64::max);
        let logarithmic = may_be_logarithmic && low > 0.0 && high > LOGARITHMIC * low;
        let mut whole = values.map(|value| value == value.round());
        Self { low, high, logarithmic, whole: !logarithmic && whole.all(|whole| whole) }
    }

    /// Creates a logarithmic axis for these positive values, at least one.
    pub(super) fn logarithmic(values: impl Iterator<Item = f64> + Clone) -> Self {
        Self { logarithmic: true, whole: false, ..Self::of(values, true) }
    }

    /// Returns the position of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        if self.logarithmic { value.log10() } else { value }
    }

    /// Returns the positions that the axis shows.
    pub(super) fn range(&self) -> std::ops::Range<f64> {
        let (low, high) = (self.at(self.low), self.at(self.high));
        let margin = match high - low {
            // One value: a margin of half of it on each side, or of one half if it is zero.
            0.0 if low == 0.0 || self.whole => 0.5,
            0.0 => 0.5 * low.abs(),
            width => 0.05 * width,
        };
        low - margin..high + margin
    }

    /// Returns the position of a value as a fraction of the axis.
    pub(super) fn part(&self, value: f64) -> f64 {
        let range = self.range();
        (self.at(value) - range.start) / (range.end - range.start)
    }

    /// Returns the number of labels.
    pub(super) fn labels(&self) -> usize {
        let width = self.at(self.high) - self.at(self.low);
        match self.whole || self.logarithmic {
            true => LABELS.min(width.ceil() as usize + 1),
            false => LABELS,
        }
    }

    /// Returns the label of a position; empty between whole numbers, or between powers of ten.
    pub(super) fn label(&self, place: f64) -> String {
        let nearest = place.round();
        if (self.whole || self.logarithmic) && (place - nearest).abs() > 1e-9 {
            return String::new();
        }
        match (self.logarithmic, self.whole) {
            (true, _) if (-4.0..=5.0).contains(&nearest) => format!("{}", 10f64.powf(nearest)),
            (true, _) => format!("1e{nearest:.0}"),
            (false, true) => format!("{nearest:.0}"),
            (false, false) => {
                let width = self.range().end - self.range().start;
                let fine = (1.0 - width.log10().floor()).clamp(0.0, 8.0) as usize;
                let text = format!("{place:.fine$}");
                match text.contains('.') {
                    true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
                    false => text,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(values: &[f64]) -> Axis {
        Axis::of(values.iter().copied(), true)
    }

    #[test]
    fn whole_numbers_are_written_as_such_and_nothing_between_them() {
        let epochs = axis(&[1.0, 2.0]);
        assert_eq!((epochs.labels(), epochs.label(2.0).as_str()), (2, "2"));
        assert_eq!(epochs.label(1.5), "");
        let one = axis(&[1.0]);
        assert_eq!(one.range(), 0.5..1.5);
        assert_eq!(axis(&[0.16, 0.04]).label(0.1), "0.1");
        assert_eq!(axis(&[0.16, 0.161]).label(0.1604), "0.1604");
    }

    #[test]
    fn values_over_orders_of_magnitude_are_placed_by_their_logarithm() {
        let thresholds = axis(&[1e-3, 0.5, 1e3]);
        assert_eq!(thresholds.at(10.0), 1.0);
        assert_eq!(thresholds.label(-2.0), "0.01");
        assert_eq!(thresholds.label(0.5), "");
        assert!((thresholds.part(1.0) - 0.5).abs() < 1e-12);
        // Not with a zero.
        assert_eq!(axis(&[0.0, 1e3]).at(10.0), 10.0);
    }
}
