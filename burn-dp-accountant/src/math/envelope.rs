//! The largest of several lines.

/// The upper envelope of lines: a convex, piecewise linear function.
#[derive(Debug, Clone)]
pub(crate) struct UpperEnvelope {
    /// `(slope, value at 0)`, slopes ascending.
    lines: Vec<(f64, f64)>,
    /// Where each line but the first begins to be the largest.
    begins: Vec<f64>,
}

impl UpperEnvelope {
    /// Creates the envelope of lines `(slope, value at 0)`.
    pub(crate) fn new(mut given: Vec<(f64, f64)>) -> Self {
        given.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut lines: Vec<(f64, f64)> = Vec::with_capacity(given.len());
        let mut begins: Vec<f64> = Vec::new();
        for line in given {
            // Of parallel lines the last one is the highest.
            if lines.last().is_some_and(|last| last.0 == line.0) {
                lines.pop();
                begins.pop();
            }
            while let Some(&last) = lines.last() {
                let crossing = (last.1 - line.1) / (line.0 - last.0);
                if begins.last().is_none_or(|begin| crossing > *begin) {
                    begins.push(crossing);
                    break;
                }
                lines.pop();
                begins.pop();
            }
            lines.push(line);
        }
        Self { lines, begins }
    }

    /// Returns the largest value at `x`; negative infinity without lines.
    pub(crate) fn at(&self, x: f64) -> f64 {
        let last = self.begins.partition_point(|begin| *begin <= x);
        self.lines.get(last).map_or(f64::NEG_INFINITY, |(slope, value)| slope * x + value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random::Generator;

    #[test]
    fn the_envelope_is_the_largest_of_all_lines() {
        let mut generator = Generator::new(3, 0);
        for size in 1..40 {
            let mut lines: Vec<(f64, f64)> =
                (0..size).map(|_| (generator.normal(), generator.normal())).collect();
            lines.extend(lines.first().map(|line| (line.0, line.1 - 1.0)));
            let envelope = UpperEnvelope::new(lines.clone());
            for _ in 0..50 {
                let x = 3.0 * generator.normal();
                let values = lines.iter().map(|(slope, value)| slope * x + value);
                let largest = values.fold(f64::NEG_INFINITY, f64::max);
                assert!((envelope.at(x) - largest).abs() < 1e-12, "{size} {x}");
            }
        }
        assert_eq!(UpperEnvelope::new(Vec::new()).at(0.0), f64::NEG_INFINITY);
    }
}
