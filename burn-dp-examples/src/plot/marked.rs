//! A linear coordinate with given marks.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;

/// Positions in a range, with marks and grid lines at some of them.
pub(super) struct Marked {
    coordinate: RangedCoordf64,
    marks: Vec<f64>,
}

impl Marked {
    /// Creates a coordinate.
    pub(super) fn new(range: Range<f64>, marks: Vec<f64>) -> Self {
        Self { coordinate: range.into(), marks }
    }

    /// Returns the marks.
    #[cfg(test)]
    pub(super) fn marks(&self) -> &[f64] {
        &self.marks
    }
}

impl Ranged for Marked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.coordinate.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.coordinate.range()
    }
}
