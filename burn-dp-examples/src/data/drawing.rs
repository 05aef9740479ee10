//! The generator of synthetic digits.

use super::dice::Dice;
use super::stroke::{self, Point};
use super::{CLASSES, PIXELS, SIDE, glyphs};

/// Draws one image. Returns its pixels, row by row, and its class.
///
/// The image depends on the seed and on the sum of offset and index, the class on the index.
pub(super) fn draw(seed: u64, offset: u64, index: u64) -> ([u8; PIXELS], u16) {
    let mut dice = Dice::new(seed, offset + index);
    let label = (index % CLASSES as u64) as u16;
    let lines = glyphs::lines(label as u8, dice.below(glyphs::variants(label as u8)));
    let hand = Hand::random(&mut dice);

    let mut ink = [0.0; PIXELS];
    for line in lines {
        let line: Vec<_> = line.into_iter().map(|point| hand.place(point)).collect();
        stroke::draw(&mut ink, &line, hand.radius);
    }
    stray_line(&mut ink, &mut dice);

    let darkness = dice.between(150.0, 255.0);
    let grain = dice.between(8.0, 32.0);
    let image = ink.map(|cover| (cover * darkness + grain * dice.normal()).clamp(0.0, 255.0) as u8);
    (image, label)
}

/// A handwriting: maps the unit square to the grid of pixels.
struct Hand {
    /// Half the width of the pen.
    radius: f32,
    /// Rows of the linear map.
    map: [[f32; 2]; 2],
    /// Position of the middle of the digit.
    middle: Point,
    /// Amplitude, frequencies and phase of the bend in each direction.
    bend: [[f32; 4]; 2],
}

impl Hand {
    fn random(dice: &mut Dice) -> Self {
        let (width, height) = (dice.between(13.0, 21.0), dice.between(16.0, 22.0));
        let slant = dice.between(-0.35, 0.35);
        let (sin, cos) = dice.between(-0.26, 0.26).sin_cos();
        // Scale, then slant, then turn.
        let map = [
            [cos * width, cos * slant * height - sin * height],
            [sin * width, sin * slant * height + cos * height],
        ];
        let center = (SIDE as f32 - 1.0) / 2.0;
        let mut bend = || {
            [
                dice.between(0.0, 1.4),
                dice.between(2.0, 6.0),
                dice.between(2.0, 6.0),
                dice.between(0.0, std::f32::consts::TAU),
            ]
        };
        let bend = [bend(), bend()];
        Self {
            radius: dice.between(0.6, 1.9),
            map,
            middle: [center + dice.between(-3.0, 3.0), center + dice.between(-3.0, 3.0)],
            bend,
        }
    }

    fn place(&self, [x, y]: Point) -> Point {
        let (x, y) = (x - 0.5, y - 0.5);
        [0, 1].map(|axis| {
            let [amplitude, along_x, along_y, phase] = self.bend[axis];
            let bend = amplitude * (along_x * x + along_y * y + phase).sin();
            self.middle[axis] + self.map[axis][0] * x + self.map[axis][1] * y + bend
        })
    }
}

/// A short thin line somewhere on two of three images, like dirt on the paper.
fn stray_line(ink: &mut [f32; PIXELS], dice: &mut Dice) {
    if dice.below(3) == 0 {
        return;
    }
    let side = SIDE as f32;
    let from = [dice.between(0.0, side), dice.between(0.0, side)];
    let (sin, cos) = dice.between(0.0, std::f32::consts::TAU).sin_cos();
    let length = dice.between(3.0, 9.0);
    let to = [from[0] + length * cos, from[1] + length * sin];
    stroke::draw(ink, &[from, to], dice.between(0.3, 0.9));
}
