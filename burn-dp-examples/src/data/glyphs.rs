//! The shapes of the ten digits, several ways of writing each.

use std::f32::consts::PI;

use super::stroke::Point;

/// A part of a digit in the unit square, x to the right and y downwards.
#[derive(Debug, Clone, Copy)]
enum Stroke {
    /// Straight lines through the points.
    Lines(&'static [Point]),
    /// Part of an ellipse: center, radii, and the first and last angle, in degrees clockwise from
    /// the right.
    Arc(Point, Point, [f32; 2]),
}

use Stroke::{Arc, Lines};

/// The ways of writing each digit.
const GLYPHS: [&[&[Stroke]]; 10] = [
    &[
        &[Arc([0.5, 0.5], [0.3, 0.45], [0.0, 360.0])],
        &[Arc([0.5, 0.5], [0.22, 0.44], [-60.0, 300.0])],
    ],
    &[
        &[Lines(&[[0.5, 0.05], [0.5, 0.95]])],
        &[Lines(&[[0.3, 0.25], [0.55, 0.05], [0.55, 0.95]])],
        &[Lines(&[[0.3, 0.25], [0.5, 0.05], [0.5, 0.95]]), Lines(&[[0.3, 0.95], [0.7, 0.95]])],
    ],
    &[
        &[
            Arc([0.5, 0.32], [0.28, 0.27], [-160.0, 35.0]),
            Lines(&[[0.73, 0.475], [0.2, 0.95], [0.82, 0.95]]),
        ],
        &[
            Arc([0.48, 0.3], [0.26, 0.25], [-170.0, 60.0]),
            Lines(&[[0.61, 0.517], [0.25, 0.9]]),
            Arc([0.3, 0.86], [0.09, 0.08], [90.0, 330.0]),
            Lines(&[[0.38, 0.82], [0.6, 0.95], [0.82, 0.88]]),
        ],
    ],
    &[
        &[
            Arc([0.47, 0.28], [0.27, 0.23], [-150.0, 90.0]),
            Arc([0.47, 0.73], [0.3, 0.22], [-90.0, 150.0]),
        ],
        &[
            Lines(&[[0.22, 0.06], [0.75, 0.06], [0.45, 0.42]]),
            Arc([0.45, 0.68], [0.31, 0.26], [-90.0, 150.0]),
        ],
    ],
    &[
        &[Lines(&[[0.62, 0.95], [0.62, 0.05], [0.18, 0.65], [0.85, 0.65]])],
        &[Lines(&[[0.28, 0.08], [0.22, 0.52], [0.75, 0.52]]), Lines(&[[0.72, 0.08], [0.66, 0.95]])],
    ],
    &[
        &[
            Lines(&[[0.75, 0.06], [0.32, 0.06], [0.27, 0.45]]),
            Arc([0.46, 0.67], [0.3, 0.27], [-130.0, 140.0]),
        ],
        &[
            Lines(&[[0.3, 0.1], [0.28, 0.45], [0.45, 0.42]]),
            Arc([0.45, 0.68], [0.28, 0.26], [-90.0, 130.0]),
            Lines(&[[0.3, 0.1], [0.78, 0.06]]),
        ],
    ],
    &[
        &[
            Arc([0.5, 0.68], [0.26, 0.26], [0.0, 360.0]),
            Arc([0.72, 0.6], [0.48, 0.56], [-180.0, -100.0]),
        ],
        &[Lines(&[[0.62, 0.04], [0.3, 0.55]]), Arc([0.48, 0.7], [0.24, 0.24], [-150.0, 210.0])],
    ],
    &[
        &[Lines(&[[0.2, 0.07], [0.8, 0.07], [0.42, 0.95]])],
        &[Lines(&[[0.2, 0.07], [0.8, 0.07], [0.45, 0.95]]), Lines(&[[0.35, 0.5], [0.75, 0.5]])],
        &[Lines(&[[0.2, 0.2], [0.22, 0.07], [0.78, 0.1], [0.55, 0.5], [0.48, 0.95]])],
    ],
    &[
        &[
            Arc([0.5, 0.28], [0.22, 0.22], [0.0, 360.0]),
            Arc([0.5, 0.73], [0.28, 0.23], [0.0, 360.0]),
        ],
        &[
            Lines(&[[0.5, 0.5], [0.69, 0.17]]),
            Arc([0.5, 0.28], [0.22, 0.22], [-30.0, -270.0]),
            Arc([0.5, 0.73], [0.27, 0.23], [-90.0, 270.0]),
        ],
    ],
    &[
        &[
            Arc([0.48, 0.32], [0.26, 0.26], [0.0, 360.0]),
            Arc([0.26, 0.38], [0.48, 0.58], [0.0, 75.0]),
        ],
        &[Arc([0.5, 0.3], [0.24, 0.25], [0.0, 360.0]), Lines(&[[0.74, 0.3], [0.66, 0.95]])],
    ],
];

/// Maximum distance of two adjacent points, so that a bent digit has bent lines.
const SPACING: f32 = 0.06;

/// Returns the number of ways of writing a digit.
pub(super) fn variants(digit: u8) -> usize {
    GLYPHS[usize::from(digit)].len()
}

/// Returns the lines of a digit in the unit square, as closely spaced points.
pub(super) fn lines(digit: u8, variant: usize) -> Vec<Vec<Point>> {
    GLYPHS[usize::from(digit)][variant].iter().map(points).collect()
}

fn points(stroke: &Stroke) -> Vec<Point> {
    match *stroke {
        Lines(corners) => {
            let mut points = vec![corners[0]];
            for pair in corners.windows(2) {
                let [from, to] = [pair[0], pair[1]];
                let length = (to[0] - from[0]).hypot(to[1] - from[1]);
                points.extend(spaced(length).map(|share| {
                    [from[0] + share * (to[0] - from[0]), from[1] + share * (to[1] - from[1])]
                }));
            }
            points
        }
        Arc(center, radii, [from, to]) => {
            let at = |share: f32| {
                let angle = (from + share * (to - from)) * PI / 180.0;
                [center[0] + radii[0] * angle.cos(), center[1] + radii[1] * angle.sin()]
            };
            let length = (to - from).abs() * PI / 180.0 * radii[0].max(radii[1]);
            std::iter::once(at(0.0)).chain(spaced(length).map(at)).collect()
        }
    }
}

/// Returns shares of a length up to 1, with at most [`SPACING`] between them.
fn spaced(length: f32) -> impl Iterator<Item = f32> {
    let steps = (length / SPACING).ceil().max(1.0) as usize;
    (1..=steps).map(move |step| step as f32 / steps as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_stays_in_the_unit_square_with_closely_spaced_points() {
        for digit in 0..10 {
            for variant in 0..variants(digit) {
                for line in lines(digit, variant) {
                    assert!(line.len() > 1);
                    for &[x, y] in &line {
                        let inside = (0.0..=1.0).contains(&x) && (0.0..=1.0).contains(&y);
                        assert!(inside, "digit {digit}, variant {variant}: {x}, {y}");
                    }
                    for pair in line.windows(2) {
                        let gap = (pair[1][0] - pair[0][0]).hypot(pair[1][1] - pair[0][1]);
                        assert!(gap <= SPACING * 1.001, "digit {digit}, variant {variant}: {gap}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_arc_begins_and_ends_at_its_angles() {
        let line = points(&Arc([0.5, 0.5], [0.2, 0.4], [0.0, 90.0]));
        let close = |a: Point, b: Point| (a[0] - b[0]).abs() < 1e-6 && (a[1] - b[1]).abs() < 1e-6;
        assert!(close(line[0], [0.7, 0.5]));
        assert!(close(line[line.len() - 1], [0.5, 0.9]));
    }
}
