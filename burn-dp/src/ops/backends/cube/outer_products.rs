//! The weighted sum of outer products, without copies that are scaled or that leave out examples.

use burn::tensor::{DType, Shape};
use burn_cubecl::cubecl;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;

use super::{bits_of, is_processor};

/// Number of units in a group.
const UNITS: usize = 32;

/// The largest number of values of an axis that one load takes.
const VECTOR: usize = 4;

/// Returns the number of rows and of columns of the sum that one unit computes, at least `VECTOR`.
/// One unit keeps their sums while it adds the terms.
pub(super) fn tile_size(client: &Client) -> usize {
    if is_processor(client) { 16 } else { 8 }
}

/// Returns the sums of `KernelOps::native_selected_outer_products`.
pub(super) fn launch(
    left: CubeTensor,
    right: CubeTensor,
    coefficients: CubeTensor,
    tile_size: usize,
) -> CubeTensor {
    let (left, right) = (into_contiguous(left), into_contiguous(right));
    let coefficients = bits_of(coefficients);
    let (client, device) = (left.client.clone(), left.device.clone());
    let [examples, positions, height] = [0, 1, 2].map(|axis| left.meta.shape()[axis]);
    let width = right.meta.shape()[2];
    let shape = Shape::new([height, width]);
    let sums = empty_device_contiguous_dtype(client.clone(), device, shape, DType::F32);
    let vector = |features: usize| 1 << features.trailing_zeros().min(VECTOR.trailing_zeros());
    let vectors = [height, width].map(vector);
    let [tall, wide] = vectors.map(|vector| tile_size / vector);
    let column_tiles = width.div_ceil(tile_size);
    let tiles = height.div_ceil(tile_size) * column_tiles;
    selected_outer_products::launch(
        &client,
        CubeCount::Static(tiles.div_ceil(UNITS) as u32, 1, 1),
        CubeDim::new_1d(UNITS as u32),
        vectors[0],
        vectors[1],
        left.into_buffer_arg(),
        right.into_buffer_arg(),
        coefficients.into_buffer_arg(),
        sums.clone().into_buffer_arg(),
        examples,
        positions,
        height / vectors[0],
        width / vectors[1],
        column_tiles,
        tall,
        wide,
    );
    sums
}

/// Computes `Σ coefficients[i] left[i, t]ᵀ right[i, t]`, `[height, width]`, over examples and
/// positions. Examples with coefficient zero are not read. One unit computes one tile.
///
/// - left: `[examples, positions, height]`
/// - right: `[examples, positions, width]`
/// - coefficients: their bits
/// - height, width: in vectors
/// - column_tiles: number of tiles next to each other
/// - tall, wide: the size of a tile, in vectors
#[cube(launch)]
pub fn selected_outer_products<L: Size, R: Size>(
    left: &[Vector<f32, L>],
    right: &[Vector<f32, R>],
    coefficients: &[u32],
    sums: &mut [Vector<f32, R>],
    examples: usize,
    positions: usize,
    height: usize,
    width: usize,
    column_tiles: usize,
    #[comptime] tall: usize,
    #[comptime] wide: usize,
) {
    let first_row = ABSOLUTE_POS / column_tiles * tall;
    let first_column = ABSOLUTE_POS % column_tiles * wide;
    if first_row < height {
        let rows_of_vector = L::value().comptime();
        // Vectors after the last ones are not stored.
        let last_row = height - 1;
        let last_column = width - 1;
        let mut totals = Array::<Vector<f32, R>>::new(comptime!(tall * rows_of_vector * wide));
        #[unroll]
        for place in 0..comptime!(tall * rows_of_vector * wide) {
            totals[place] = Vector::new(0.0);
        }
        for example in 0..examples {
            let coefficient = coefficients[example];
            if coefficient != 0 {
                let coefficient = Vector::<f32, R>::new(f32::reinterpret(coefficient));
                for position in example * positions..(example + 1) * positions {
                    let mut factors = Array::<Vector<f32, R>>::new(wide);
                    #[unroll]
                    for column in 0..wide {
                        let place = min(first_column + column, last_column);
                        factors[column] = coefficient * right[position * width + place];
                    }
                    #[unroll]
                    for vector in 0..tall {
                        let values = left[position * height + min(first_row + vector, last_row)];
                        #[unroll]
                        for row in 0..rows_of_vector {
                            let value = Vector::new(values.extract(row));
                            let first = comptime!((vector * rows_of_vector + row) * wide);
                            #[unroll]
                            for column in 0..wide {
                                totals[first + column] += value * factors[column];
                            }
                        }
                    }
                }
            }
        }
        #[unroll]
        for vector in 0..tall {
            #[unroll]
            for column in 0..wide {
                if first_row + vector < height && first_column + column < width {
                    #[unroll]
                    for row in 0..rows_of_vector {
                        let place = comptime!((vector * rows_of_vector + row) * wide + column);
                        let row = (first_row + vector) * rows_of_vector + row;
                        sums[row * width + first_column + column] = totals[place];
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_cubecl::CubeDevice;

    use super::*;
    use crate::ops::backends::cube::upload;

    #[test]
    fn sums_do_not_depend_on_the_size_of_the_tiles() {
        let device = CubeDevice::default();
        let client = device.client();
        let tensor = |seed: f32, shape: &[usize]| {
            let number = |place: usize| (place as f32 * 0.37 + seed).sin().to_bits();
            let bits: Vec<u32> = (0..shape.iter().product()).map(number).collect();
            let handle = upload(&client, &device, &bits).handle;
            let shape = Shape::from(shape.to_vec());
            CubeTensor::new_contiguous(client.clone(), device.clone(), shape, handle, DType::F32)
        };
        for [height, width] in [[20, 36], [7, 10], [33, 4]] {
            let sums = [8, 16].map(|size| {
                let (left, right) = (tensor(0.2, &[5, 3, height]), tensor(0.7, &[5, 3, width]));
                client.read_one_unchecked(launch(left, right, tensor(0.1, &[5]), size).handle)
            });
            assert_eq!(sums[0], sums[1]);
        }
    }
}
