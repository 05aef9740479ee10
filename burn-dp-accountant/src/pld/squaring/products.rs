//! The products of two distributions, added up in the cells of a grid.

use std::ops::Range;

use crate::math::side::Side;

/// Atoms that are composed together.
const CHUNK: usize = 16;
/// Rows whose products are added up apart, so that sums stay short.
const BLOCK_ROWS: usize = 16;

/// Cells behind the last one of an atom that are tried before a search.
const AHEAD: usize = 3;

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
/// cells further are tried without a branch, which could not be predicted. A chunk of atoms whose
/// products are all in one cell is one product with the sums of the chunk.
pub(super) struct Products<'a> {
    side: Side,
    /// The atoms of the other factor, ascending.
    positions: &'a [f64],
    masses: &'a [f64],
    chunks: Vec<Chunk>,
    /// The cells with the sums of the rows since the last full block, and [`AHEAD`] behind the last
    /// that begin at infinity.
    block: Vec<Cell>,
    /// The sums of all full blocks.
    totals: Vec<[f64; 2]>,
    rows: usize,
    /// For each atom, the cell of its last product.
    last_cells: Vec<usize>,
}

/// A cell, with its mass and the distances from its lower end times their masses.
#[derive(Clone, Copy)]
struct Cell {
    low: f64,
    mass: f64,
    distance: f64,
}

impl Cell {
    #[inline(always)]
    fn add(&mut self, place: f64, product: f64) {
        self.mass += product;
        self.distance += product * (place - self.low);
    }
}

/// The sums of [`CHUNK`] atoms whose products are all in one cell.
struct Chunk {
    mass: f64,
    /// Distance from the first atom, times the mass.
    distance: f64,
    /// Whether the first atom is not much farther from 0 than any other. The rounding of the place
    /// of the first is then covered by the distance by which each of them was moved.
    is_close: bool,
}

impl Chunk {
    fn new(positions: &[f64], masses: &[f64]) -> Self {
        let (first, last) = (positions[0], positions[positions.len() - 1]);
        let atoms = positions.iter().zip(masses);
        Self {
            mass: masses.iter().sum(),
            distance: atoms.map(|(f, p)| p * (f - first)).sum(),
            is_close: first >= 0.0 || first >= 1.25 * last,
        }
    }
}

impl<'a> Products<'a> {
    /// Begins the products with the atoms of the other factor.
    pub(super) fn new(side: Side, grid: &[f64], positions: &'a [f64], masses: &'a [f64]) -> Self {
        let chunks = positions.chunks_exact(CHUNK).zip(masses.chunks_exact(CHUNK));
        let lows = grid.iter().copied().chain([f64::INFINITY; AHEAD]);
        Self {
            side,
            positions,
            masses,
            chunks: chunks.map(|(f, p)| Chunk::new(f, p)).collect(),
            block: lows.map(|low| Cell { low, mass: 0.0, distance: 0.0 }).collect(),
            totals: vec![[0.0; 2]; grid.len()],
            rows: 0,
            last_cells: vec![0; positions.len()],
        }
    }

    /// Adds the products of a mass with some atoms of the other factor.
    pub(super) fn add(&mut self, atoms: Range<usize>, row: Row, factor: f64) {
        let mut start = atoms.start;
        while start < atoms.end {
            let end = atoms.end.min((start / CHUNK + 1) * CHUNK);
            if end - start < CHUNK || !self.add_whole(start, row, factor) {
                self.add_each(start..end, row, factor);
            }
            start = end;
        }
    }

    /// Adds the products with the chunk that begins at an atom, if all are in one cell.
    #[inline(always)]
    fn add_whole(&mut self, start: usize, row: Row, factor: f64) -> bool {
        let chunk = &self.chunks[start / CHUNK];
        let lowest = row.start + self.positions[start] * row.rest;
        let highest = row.start + self.positions[start + CHUNK - 1] * row.rest;
        if !chunk.is_close || lowest < self.block[0].low || highest >= 1.0 {
            return false;
        }
        let index = cell_of(&self.block, self.last_cells[start], lowest);
        if highest >= self.block[index + 1].low {
            return false;
        }
        let cell = &mut self.block[index];
        let distance = (lowest - cell.low) * chunk.mass + row.rest * chunk.distance;
        cell.mass += factor * chunk.mass;
        cell.distance += factor * distance;
        self.last_cells[start..start + CHUNK].fill(index);
        true
    }

    /// Adds the products with atoms of one chunk, one by one.
    fn add_each(&mut self, atoms: Range<usize>, row: Row, factor: f64) {
        let (mut places, mut products) = ([0.0; CHUNK], [0.0; CHUNK]);
        let length = atoms.len();
        let (positions, masses) = (&self.positions[atoms.clone()], &self.masses[atoms.clone()]);
        for (((place, product), f), p) in
            places.iter_mut().zip(&mut products).zip(positions).zip(masses)
        {
            *place = (row.start + f * row.rest).min(1.0);
            *product = factor * p;
        }
        let (places, products) = (&places[..length], &products[..length]);
        // Below the grid a mass is raised to its lower end, or dropped.
        let mut below = 0;
        let first = &mut self.block[0];
        if places[0] < first.low {
            below = places.partition_point(|place| *place < first.low);
            if self.side == Side::Upper {
                first.mass += products[..below].iter().sum::<f64>();
            }
        }
        let last_cells = &mut self.last_cells[atoms];
        let singles = places.iter().zip(products).zip(last_cells).skip(below);
        for ((&place, &product), last) in singles {
            if let Some(near) = self.block[*last..].first_chunk_mut::<{ AHEAD + 1 }>()
                && place >= near[0].low
                && place < near[AHEAD].low
            {
                let next = usize::from(place >= near[1].low) + usize::from(place >= near[2].low);
                *last += next;
                near[next].add(place, product);
            } else {
                *last = far_cell_of(&self.block, *last, place);
                self.block[*last].add(place, product);
            }
        }
    }

    /// Raises the mass of some products of a row to an infinite loss, or drops it.
    pub(super) fn raise(&mut self, mass: f64) {
        if self.side == Side::Upper {
            let last = self.totals.len() - 1;
            self.block[last].mass += mass;
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
        for (total, cell) in self.totals.iter_mut().zip(&mut self.block) {
            total[0] += cell.mass;
            total[1] += cell.distance;
            (cell.mass, cell.distance) = (0.0, 0.0);
        }
    }

    /// Returns the sums of each cell, and a bound of the number of roundings of each.
    ///
    /// A row adds to one cell at most one sum for each chunk, the single products of the chunks at
    /// its ends, at 1, and that are not close, and a mass that is raised.
    pub(super) fn finish(mut self) -> (Vec<[f64; 2]>, f64) {
        self.end_block();
        let singles = 4 + self.chunks.iter().filter(|chunk| !chunk.is_close).count();
        let a_row = self.chunks.len() + singles * CHUNK + 1;
        let terms = BLOCK_ROWS * a_row + self.rows / BLOCK_ROWS + 2 * CHUNK;
        (self.totals, terms as f64)
    }
}

/// Returns the cell of a place of the grid.
#[inline(always)]
fn cell_of(cells: &[Cell], before: usize, place: f64) -> usize {
    if place >= cells[before].low && place < cells[before + 1].low {
        return before;
    }
    far_cell_of(cells, before, place)
}

#[cold]
#[inline(never)]
fn far_cell_of(cells: &[Cell], before: usize, place: f64) -> usize {
    // Most often a few cells further.
    let next = &cells[before..cells.len().min(before + 8)];
    let near = next.partition_point(|cell| cell.low <= place);
    if near > 0 && near < next.len() {
        return before + near - 1;
    }
    cells.partition_point(|cell| cell.low <= place).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_loss_and_many_small_ones_are_few_products() {
        // Where the products are of chunks, a composition costs a fraction.
        let grid: Vec<f64> = (0..2000).map(|i| -0.02 + 5.1e-4 * f64::from(i)).collect();
        let small: Vec<f64> = (0..800).map(|i| 1e-5 * (f64::from(i) - 400.0)).collect();
        let masses = vec![1e-3; small.len()];
        let mut products = Products::new(Side::Upper, &grid, &small, &masses);
        let row = Row { start: 0.3, rest: 0.7 };
        let whole = (0..small.len() / CHUNK).filter(|c| products.add_whole(c * CHUNK, row, 0.5));
        let whole = whole.count();
        assert!(whole >= 30, "{whole} of 50 chunks");
    }

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
            let mut products = Products::new(side, &grid, &others, &masses);
            let mut expected = vec![(0.0, 0.0); grid.len()];
            for (i, &start) in rows.iter().cycle().take(40).enumerate() {
                let (row, factor) = (Row { start, rest: 1.0 - start }, 1.0 + i as f64);
                let first = 7 * (i % 3);
                products.add(first..others.len(), row, factor);
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
