//! Axes of figures.

use plotters::coord::ranged1d::Ranged;
use plotters::coord::types::RangedCoordf64;

use super::marked::Marked;

/// Ratio of the largest to the smallest value above which an axis is logarithmic.
const LOGARITHMIC: f64 = 100.0;

/// Ratio of the largest to the smallest place below which a horizontal axis is linear.
const FACTORS: f64 = 8.0;

/// Maximum number of labels on an axis.
const LABELS: usize = 10;

/// Maximum number of places that are all labels.
const PLACES: usize = 8;

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

    /// Creates the horizontal axis of lines with these places, at least one. It is logarithmic if
    /// the places grow by factors, like 16, 32, 64, rather than by differences.
    pub(super) fn of_places(values: impl Iterator<Item = f64> + Clone) -> Self {
        match grow_by_factors(&distinct(values.clone())) {
            true => Self::logarithmic(values),
            false => Self::of(values, false),
        }
    }

    /// Returns the axis as a coordinate with its labels: of a logarithmic one the places
    /// themselves, if there are few, and otherwise 1, 2 and 5 times powers of ten.
    pub(super) fn coordinate(&self, values: impl Iterator<Item = f64>) -> Marked {
        let range = self.range();
        let marks = if self.logarithmic {
            let places = distinct(values);
            let powers = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let round = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|x| x * 10f64.powi(power)));
            let marks = if places.len() <= PLACES { places } else { round.collect() };
            marks.into_iter().map(f64::log10).filter(|mark| range.contains(mark)).collect()
        } else {
            RangedCoordf64::from(range.clone()).key_points(self.labels())
        };
        Marked::new(range, marks)
    }

    /// Returns the label of a mark of [`coordinate`](Self::coordinate).
    pub(super) fn mark(&self, place: f64) -> String {
        if !self.logarithmic {
            return self.label(place);
        }
        let value = 10f64.powf(place);
        if !(1e-4..1e6).contains(&value) {
            return format!("{value:.0e}");
        }
        // Three significant digits, and whole numbers completely.
        trimmed(format!("{value:.*}", (2.0 - place.floor()).max(0.0) as usize))
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
                trimmed(format!("{place:.fine$}"))
            }
        }
    }
}

/// Returns a number without zeros at the end of its decimal places.
fn trimmed(text: String) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// Returns the values in order, each once.
fn distinct(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// Returns whether the ratios of neighbors vary less than their differences.
fn grow_by_factors(places: &[f64]) -> bool {
    let [first, _, .., last] = places else { return false };
    if *first <= 0.0 || last / first < FACTORS {
        return false;
    }
    // The mean square over the square of the mean.
    let variation = |at: fn(f64) -> f64| {
        let gaps = places.windows(2).map(|pair| at(pair[1]) - at(pair[0]));
        let squares: f64 = gaps.map(|gap| gap * gap).sum();
        squares / (at(*last) - at(*first)).powi(2)
    };
    variation(f64::ln) < variation(|place| place)
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
    fn places_that_grow_by_factors_are_placed_by_their_logarithm() {
        let labels = |places: &[f64]| {
            let axis = Axis::of_places(places.iter().copied());
            let marks = axis.coordinate(places.iter().copied()).marks().to_vec();
            let labels = marks.into_iter().map(|mark| axis.mark(mark)).collect::<Vec<_>>();
            (axis.logarithmic, labels.join(" "))
        };
        let batches = [32.0, 64.0, 128.0, 256.0, 1024.0];
        assert_eq!(labels(&batches), (true, "32 64 128 256 1024".into()));
        let factors = [0.005, 0.01, 0.02, 0.04, 0.08];
        assert_eq!(labels(&factors), (true, "0.005 0.01 0.02 0.04 0.08".into()));
        let many: Vec<f64> = (0..20).map(|i| 0.35 * 1.18f64.powi(i)).collect();
        assert_eq!(labels(&many), (true, "0.5 1 2 5".into()));
        assert_eq!(labels(&[1e-9, 1e-8, 1e-7]), (true, "1e-9 1e-8 1e-7".into()));
        // Epochs, depths, and places with zero.
        assert_eq!(labels(&[2.0, 4.0, 6.0, 8.0]), (false, "2 3 4 5 6 7 8".into()));
        assert!(!labels(&(1..=50).map(f64::from).collect::<Vec<_>>()).0);
        assert!(!labels(&[0.0, 1.0, 10.0, 100.0]).0 && !labels(&[1.0, 100.0]).0);
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
