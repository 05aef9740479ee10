//! A pen on a grid of pixels.

use super::{PIXELS, SIDE};

/// A point, x to the right and y downwards.
pub(super) type Point = [f32; 2];

/// Draws a line through the points, `radius` pixels wide to each side, with soft edges.
///
/// Points are in pixels. Where lines meet, the darker ink is kept.
pub(super) fn draw(ink: &mut [f32; PIXELS], points: &[Point], radius: f32) {
    for pair in points.windows(2) {
        segment(ink, pair[0], pair[1], radius);
    }
}

fn segment(ink: &mut [f32; PIXELS], from: Point, to: Point, radius: f32) {
    let reach = radius + 1.0;
    let range = |axis: usize| {
        let (low, high) = (from[axis].min(to[axis]) - reach, from[axis].max(to[axis]) + reach);
        (low.floor().max(0.0) as usize)..(high.ceil() + 1.0).clamp(0.0, SIDE as f32) as usize
    };
    for row in range(1) {
        for column in range(0) {
            let distance = distance([column as f32, row as f32], from, to);
            let cover = (radius + 0.5 - distance).clamp(0.0, 1.0);
            let pixel = &mut ink[row * SIDE + column];
            *pixel = pixel.max(cover);
        }
    }
}

/// Returns the distance of a point from a segment.
fn distance(point: Point, from: Point, to: Point) -> f32 {
    let along = [to[0] - from[0], to[1] - from[1]];
    let offset = [point[0] - from[0], point[1] - from[1]];
    let length = along[0] * along[0] + along[1] * along[1];
    let dot = along[0] * offset[0] + along[1] * offset[1];
    let share = if length > 0.0 { (dot / length).clamp(0.0, 1.0) } else { 0.0 };
    (offset[0] - share * along[0]).hypot(offset[1] - share * along[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_to_the_segment_and_not_to_its_line() {
        assert_eq!(distance([1.0, 2.0], [0.0, 0.0], [4.0, 0.0]), 2.0);
        assert_eq!(distance([7.0, 4.0], [0.0, 0.0], [4.0, 0.0]), 5.0);
        assert_eq!(distance([3.0, 4.0], [0.0, 0.0], [0.0, 0.0]), 5.0);
    }

    #[test]
    fn a_line_covers_the_pixels_within_its_radius() {
        let mut ink = [0.0; PIXELS];
        draw(&mut ink, &[[5.0, 10.0], [20.0, 10.0]], 1.0);
        assert_eq!(ink[10 * SIDE + 12], 1.0);
        assert_eq!(ink[11 * SIDE + 12], 0.5);
        assert_eq!(ink[12 * SIDE + 12], 0.0);
        assert_eq!(ink[10 * SIDE + 23], 0.0);
    }

    #[test]
    fn a_line_that_leaves_the_grid_is_cut() {
        let mut ink = [0.0; PIXELS];
        draw(&mut ink, &[[-9.0, -9.0], [40.0, 40.0]], 1.0);
        assert_eq!((ink[0], ink[PIXELS - 1]), (1.0, 1.0));
        let mut ink = [0.0; PIXELS];
        draw(&mut ink, &[[-30.0, 5.0], [-20.0, 5.0], [50.0, -20.0]], 1.0);
        assert_eq!(ink.iter().filter(|&&pixel| pixel > 0.0).count(), 0);
    }
}
