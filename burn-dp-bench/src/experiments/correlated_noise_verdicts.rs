//! Verdicts on the accuracy with correlated noise, of images and of users.

use super::figure::{Figure, FigurePoint};
use super::verdict::{Above, Verdict};

/// Names of the lines: strategy and sampling.
pub(super) const POISSON: &str = "independent, Poisson";
pub(super) const SHUFFLED: &str = "independent, shuffled once";
pub(super) const BUFFERED: &str = "buffered, shuffled once";
pub(super) const BANDED: &str = "banded, cyclic Poisson";

/// Accuracy by which correlated noise may be behind at the largest ε.
const ROOM: f64 = 0.005;

/// The points of a line at the smallest and at the largest ε, with their names in a verdict.
struct Ends([(String, FigurePoint); 2]);

impl Ends {
    fn of(figure: &Figure, line: &str, name: &str) -> Self {
        let points = figure.line(line);
        let ends = [points.first(), points.last()].map(|end| end.copied());
        Self(ends.map(|end| {
            let point = end.unwrap_or(FigurePoint::MISSING);
            (format!("{name} at ε = {}", point.x), point)
        }))
    }

    /// Compares with another line at the smallest (0) or at the largest ε (1).
    fn above<'a>(&'a self, other: &'a Self, end: usize) -> Above<'a> {
        let [larger, smaller] = [self, other].map(|Self(ends)| (ends[end].0.as_str(), ends[end].1));
        Above::new(larger, smaller)
    }
}

/// Compares the smallest and the largest ε.
pub(super) fn judge(figure: &Figure) -> Vec<Verdict> {
    let shuffled = Ends::of(figure, SHUFFLED, "independent");
    let buffered = Ends::of(figure, BUFFERED, "buffered");
    let poisson = Ends::of(figure, POISSON, "Poisson");
    let banded = Ends::of(figure, BANDED, "banded");
    vec![
        Verdict::comparing(
            "Without amplification by sampling, correlated noise beats independent noise at a \
             small ε, and is at most half a point behind it at a large one.",
            &[buffered.above(&shuffled, 0), buffered.above(&shuffled, 1).by(-ROOM)],
        ),
        Verdict::comparing(
            "At a small ε, amplified independent noise beats correlated noise without \
             amplification.",
            &[poisson.above(&buffered, 0)],
        ),
        Verdict::comparing(
            "At a large ε, bands with cyclic Poisson sampling are ahead of independent noise with \
             Poisson sampling, or at most half a point behind.",
            &[banded.above(&poisson, 1).by(-ROOM)],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::figure::FigureSeries;
    use super::super::verdict::held;
    use super::*;

    #[test]
    fn the_ends_of_the_lines_are_compared() {
        let holds = |buffered: [f64; 2], banded: f64| {
            let line =
                |name: &str, [a, b]: [f64; 2]| FigureSeries::exact(name, [(2.0, a), (9.0, b)]);
            let verdicts = judge(&Figure::of_lines([
                line(POISSON, [0.3, 0.4]),
                line(SHUFFLED, [0.2, 0.3]),
                line(BUFFERED, buffered),
                line(BANDED, [0.3, banded]),
            ]));
            held(&verdicts)
        };
        assert_eq!(holds([0.25, 0.3], 0.4), [true, true, true]);
        assert_eq!(holds([0.35, 0.2], 0.3), [false, false, false]);
        assert_eq!(holds([0.2, 0.4], 0.5), [false, true, true]);
        assert!(judge(&Figure::of_lines([])).iter().all(|verdict| !verdict.holds));
    }
}
