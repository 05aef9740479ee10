//! The products of two distributions, added up in the cells of a grid.

use super::super::side::Side;

/// Atoms that are composed together.
const CHUNK: usize = 16;
/// Rows whose products are added up apart, so that sums stay short.
const BLOCK_ROWS: usize = 16;

/// Places the atoms of the other factor at `start + f · rest`.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) start: f64,
    pub(super) rest: f64,
}

/// Sums of the products whose positions are in each cell: their masses, and their distances from
/// the lower end of the cell times their masses.
///
/// The cell of a product is looked for from the one that the same atom had in the row before. Two
/// cells further are tried without a branch, which could not be predicted.
pub(super) struct Products {
    side: Side,
    /// The lower ends of the cells, and infinity.
    edges: Vec<f64>,
    cells: Vec<[f64; 2]>,
    /// The sums of the rows since the last full block.
    block: Vec<[f64; 2]>,
    rows: usize,
    /// For each atom, the cell of its last product.
    last_cells: Vec<usize>,
}

impl Products {
    /// Begins the products with `others` atoms of the other factor.
    pub(super) fn new(side: Side, grid: &[f64], others: usize) -> Self {
        let edges = grid.iter().copied().chain([f64::INFINITY]).collect();
        let none = vec![[0.0; 2]; grid.len()];
        Self { side, edges, cells: none.clone(), block: none, rows: 0, last_cells: vec![0; others] }
    }

    /// Adds the products of a mass with atoms of the other factor, in ascending order.
    ///
    /// # Arguments
    ///
    /// - `first`: the index of the first of the atoms
    pub(super) fn add(
        &mut self,
        first: usize,
        row: Row,
        factor: f64,
        positions: &[f64],
        masses: &[f64],
    ) {
        let last_cells = &mut self.last_cells[first..];
        let chunks = positions.chunks(CHUNK).zip(masses.chunks(CHUNK));
        for ((positions, masses), last) in chunks.zip(last_cells.chunks_mut(CHUNK)) {
            let (mut places, mut products) = ([0.0; CHUNK], [0.0; CHUNK]);
            for (((place, product), f), p) in
                places.iter_mut().zip(&mut products).zip(positions).zip(masses)
            {
                *place = (row.start + f * row.rest).min(1.0);
                *product = factor * p;
            }
            let length = positions.len();
            let (places, products) = (&places[..length], &products[..length]);
            // Below the grid a mass is raised to its lower end, or dropped.
            let mut below = 0;
            if places[0] < self.edges[0] {
                below = places.partition_point(|place| *place < self.edges[0]);
                if self.side == Side::Upper {
                    self.block[0][0] += products[..below].iter().sum::<f64>();
                }
            }
            if below < length {
                add_chunk(
                    &self.edges,
                    &mut self.block,
                    &places[below..],
                    &products[below..],
                    &mut last[below..],
                );
            }
        }
    }

    /// Ends the products with one mass.
    pub(super) fn end_row(&mut self) {
        self.rows += 1;
        if self.rows.is_multiple_of(BLOCK_ROWS) {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        for (cell, block) in self.cells.iter_mut().zip(&mut self.block) {
            cell[0] += block[0];
            cell[1] += block[1];
            *block = [0.0; 2];
        }
    }

    /// Returns the sums of each cell, and a bound of the number of roundings of each.
    ///
    /// A row adds to one cell at most one sum for each chunk, and the single products of two
    /// chunks, of which the cell is an end.
    pub(super) fn finish(mut self) -> (Vec<[f64; 2]>, f64) {
        self.end_block();
        let a_row = self.last_cells.len().div_ceil(CHUNK) + 3 * CHUNK;
        let terms = BLOCK_ROWS * a_row + self.rows / BLOCK_ROWS + 2 * CHUNK;
        (self.cells, terms as f64)
    }
}

/// Adds products at places of the grid.
#[inline(always)]
fn add_chunk(
    edges: &[f64],
    sums: &mut [[f64; 2]],
    places: &[f64],
    products: &[f64],
    last_cells: &mut [usize],
) {
    let (lowest, highest) = (places[0], places[places.len() - 1]);
    let cell = cell_of(edges, last_cells[0], lowest);
    if highest < edges[cell + 1] {
        let (low, mut mass, mut distance) = (edges[cell], 0.0, 0.0);
        for (place, product) in places.iter().zip(products) {
            mass += product;
            distance += product * (place - low);
        }
        sums[cell][0] += mass;
        sums[cell][1] += distance;
        last_cells.fill(cell);
        return;
    }
    for ((&place, product), last) in places.iter().zip(products).zip(last_cells) {
        let cell = cell_of(edges, *last, place);
        *last = cell;
        let distance = product * (place - edges[cell]);
        let sums = &mut sums[cell];
        *sums = [sums[0] + product, sums[1] + distance];
    }
}

/// Returns the cell of a place of the grid.
#[inline(always)]
fn cell_of(edges: &[f64], before: usize, place: f64) -> usize {
    let mut cell = before;
    cell += usize::from(place >= edges[cell + 1]);
    cell += usize::from(place >= edges[cell + 1]);
    if place < edges[cell + 1] && place >= edges[cell] {
        return cell;
    }
    far_cell_of(edges, cell, place)
}

#[cold]
#[inline(never)]
fn far_cell_of(edges: &[f64], before: usize, place: f64) -> usize {
    // Most often a few cells further.
    let next = &edges[before..edges.len().min(before + 8)];
    let near = next.partition_point(|low| *low <= place);
    if near > 0 && near < next.len() {
        return before + near - 1;
    }
    edges.partition_point(|low| *low <= place).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_in_the_cells_of_a_search() {
        // A grid whose cells differ by orders of magnitude, and atoms that are denser in the
        // middle, so that chunks are within a cell, across a few and across many.
        let grid: Vec<f64> =
            (0..900).map(|i| -0.2 + 1.2 * (f64::from(i) / 899.0).powi(3)).collect();
        let others: Vec<f64> = (0..500)
            .map(|i| (f64::from(i) - 250.0) / 250.0)
            .map(|x| x * x * x * 0.9 + 1e-3 * x)
            .collect();
        let masses: Vec<f64> = (0..500).map(|i| 1.0 + f64::from(i % 7)).collect();
        // Rows whose positions also decrease.
        let rows = [-0.5, -0.3, 0.0, 1e-4, 0.1, 0.05, 0.4, 0.9, 1.0, 0.2];
        for side in [Side::Lower, Side::Upper] {
            let mut products = Products::new(side, &grid, others.len());
            let mut expected = vec![(0.0, 0.0); grid.len()];
            for (i, &start) in rows.iter().cycle().take(40).enumerate() {
                let (row, factor) = (Row { start, rest: 1.0 - start }, 1.0 + i as f64);
                let first = 7 * (i % 3);
                products.add(first, row, factor, &others[first..], &masses[first..]);
                products.end_row();
                for (f, p) in others[first..].iter().zip(&masses[first..]) {
                    let place = (start + f * (1.0 - start)).min(1.0);
                    let cell = grid.partition_point(|low| *low <= place);
                    let mass = factor * p;
                    match (cell, side) {
                        (0, Side::Lower) => {}
                        (0, Side::Upper) => expected[0].0 += mass,
                        _ => {
                            expected[cell - 1].0 += mass;
                            expected[cell - 1].1 += mass * (place - grid[cell - 1]);
                        }
                    }
                }
            }
            let (cells, terms) = products.finish();
            let close = |x: f64, y: f64| (x - y).abs() <= terms * f64::EPSILON * y;
            for (cell, (found, expected)) in cells.iter().zip(&expected).enumerate() {
                let are_close = close(found[0], expected.0) && close(found[1], expected.1);
                assert!(are_close, "{side:?} {cell}: {found:?} {expected:?}");
            }
        }
    }
}
