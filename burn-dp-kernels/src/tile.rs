//! The loops that multiply: sums of a few rows and a few vectors of columns stay in registers.

use pulp::{Arch, Simd, WithSimd};

/// Number of rows in a tile.
pub(crate) const TILE_ROWS: usize = 6;

/// Number of terms that are added in registers: a panel of this depth stays in the cache of a core.
pub const DEPTH: usize = 256;

/// Returns the number of values of a vector.
pub(crate) fn lanes() -> usize {
    Arch::new().dispatch(Lanes)
}

struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

/// Vectors of a panel: with the rows of a tile they fit into the registers, 32 of 16 values or 16
/// of fewer.
pub(crate) const fn panel_vectors(lanes: usize) -> usize {
    if lanes == 16 { 4 } else { 2 }
}

/// The left factor of a product on one core, whose values are read one by one.
pub(crate) trait Left: Copy {
    /// Returns the number of rows.
    fn count(self) -> usize;

    /// Adds the product of [`TILE_ROWS`], four or two rows from `first` on, or of one.
    fn add_rows<S: Simd, const VECTORS: usize>(
        self,
        simd: S,
        rows: usize,
        first: usize,
        right: Vectors,
        sums: &mut Sums,
    );
}

/// Rows of consecutive values, in one or more runs.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) values: &'a [f32],
    /// Start of each row.
    pub(crate) starts: &'a [usize],
    /// A row has this many runs of this many consecutive values.
    pub(crate) runs: usize,
    pub(crate) length: usize,
    /// Number of values between the starts of two runs.
    pub(crate) pitch: usize,
}

impl<'a> Rows<'a> {
    #[inline(always)]
    fn run(&self, row: usize, run: usize) -> &'a [f32] {
        &self.values[self.starts[row] + run * self.pitch..][..self.length]
    }
}

/// Rows whose values of one term are consecutive: the columns of a matrix in memory, which are read
/// in place.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(crate) values: &'a [f32],
    /// Number of columns of the matrix that are rows of the product.
    pub(crate) count: usize,
    /// Number of values between two terms.
    pub(crate) stride: usize,
}

/// The right factor of a product on one core: vectors that are read as a whole.
#[derive(Clone, Copy)]
pub(crate) struct Vectors<'a> {
    pub(crate) values: &'a [f32],
    /// Start of the vectors of each term.
    pub(crate) starts: &'a [usize],
}

/// The columns of the sums that a product is added to.
pub(crate) struct Sums<'a> {
    pub(crate) values: &'a mut [f32],
    pub(crate) start: usize,
    pub(crate) columns: usize,
    /// Number of columns of all sums.
    pub(crate) stride: usize,
}

/// Adds a product with as many columns as a tile has, or fewer.
#[inline(always)]
pub(crate) fn add_vectors<S: Simd>(simd: S, left: impl Left, right: Vectors, sums: &mut Sums) {
    match sums.columns.div_ceil(S::F32_LANES) {
        1 => add_panel::<S, 1>(simd, left, right, sums),
        2 => add_panel::<S, 2>(simd, left, right, sums),
        3 => add_panel::<S, 3>(simd, left, right, sums),
        _ => add_panel::<S, 4>(simd, left, right, sums),
    }
}

#[inline(always)]
fn add_panel<S: Simd, const VECTORS: usize>(
    simd: S,
    left: impl Left,
    right: Vectors,
    sums: &mut Sums,
) {
    let rows = left.count();
    let whole = rows - rows % TILE_ROWS;
    for row in (0..whole).step_by(TILE_ROWS) {
        left.add_rows::<S, VECTORS>(simd, TILE_ROWS, row, right, sums);
    }
    // The rest in as few steps as possible: a step of one row waits for each of its additions.
    let rest = rows - whole;
    if rest & 4 != 0 {
        left.add_rows::<S, VECTORS>(simd, 4, whole, right, sums);
    }
    if rest & 2 != 0 {
        left.add_rows::<S, VECTORS>(simd, 2, whole + (rest & 4), right, sums);
    }
    if rest & 1 != 0 {
        left.add_rows::<S, VECTORS>(simd, 1, rows - 1, right, sums);
    }
}

/// Adds the products of all terms to the sums of some rows. One variable for the sums of each row:
/// they stay in registers at every level of optimization, which an array of arrays does not.
macro_rules! add_terms {
    (Rows, $left:ident, $simd:ident, $first:ident, $right:ident, $count:literal:
        $($index:literal $row:ident $sums:ident),+) => {
        for run in 0..$left.runs {
            $(let $row = $left.run($first + $index, run);)+
            let starts = &$right.starts[run * $left.length..][..$left.length];
            for (term, &start) in starts.iter().enumerate() {
                let vectors = $right.of::<S, VECTORS>(start);
                $($sums = multiply_add($simd, $row[term], vectors, $sums);)+
            }
        }
    };
    (Columns, $left:ident, $simd:ident, $first:ident, $right:ident, $count:literal:
        $($index:literal $row:ident $sums:ident),+) => {
        for (term, &start) in $right.starts.iter().enumerate() {
            let values = &$left.values[term * $left.stride + $first..][..$count];
            let vectors = $right.of::<S, VECTORS>(start);
            $($sums = multiply_add($simd, values[$index], vectors, $sums);)+
        }
    };
}

/// Defines a method that adds the product of some rows.
macro_rules! tile {
    ($left:ident, $name:ident, $count:literal: $($index:literal $row:ident $sums:ident),+) => {
        #[inline(always)]
        fn $name<S: Simd, const VECTORS: usize>(
            self,
            simd: S,
            first: usize,
            right: Vectors,
            sums: &mut Sums,
        ) {
            $(let mut $sums = [simd.splat_f32s(0.0); VECTORS];)+
            add_terms!($left, self, simd, first, right, $count: $($index $row $sums),+);
            $(sums.add(simd, first + $index, $sums);)+
        }
    };
}

macro_rules! left {
    ($left:ident: $count:item) => {
        impl $left<'_> {
            tile! {
                $left, add_tile, 6: 0 row_0 sums_0, 1 row_1 sums_1, 2 row_2 sums_2, 3 row_3 sums_3,
                4 row_4 sums_4, 5 row_5 sums_5
            }

            tile! {
                $left, add_four, 4: 0 row_0 sums_0, 1 row_1 sums_1, 2 row_2 sums_2, 3 row_3 sums_3
            }

            tile! { $left, add_two, 2: 0 row_0 sums_0, 1 row_1 sums_1 }

            tile! { $left, add_row, 1: 0 row sums_of_row }
        }

        impl Left for $left<'_> {
            #[inline(always)]
            $count

            // The number of rows is constant where this is inlined.
            #[inline(always)]
            fn add_rows<S: Simd, const VECTORS: usize>(
                self,
                simd: S,
                rows: usize,
                first: usize,
                right: Vectors,
                sums: &mut Sums,
            ) {
                match rows {
                    TILE_ROWS => self.add_tile::<S, VECTORS>(simd, first, right, sums),
                    4 => self.add_four::<S, VECTORS>(simd, first, right, sums),
                    2 => self.add_two::<S, VECTORS>(simd, first, right, sums),
                    _ => self.add_row::<S, VECTORS>(simd, first, right, sums),
                }
            }
        }
    };
}

left! {
    Rows: fn count(self) -> usize {
        self.starts.len()
    }
}

left! {
    Columns: fn count(self) -> usize {
        self.count
    }
}

impl<'a> Vectors<'a> {
    /// Returns the vectors of the term that starts here.
    #[inline(always)]
    fn of<S: Simd, const VECTORS: usize>(&self, start: usize) -> &'a [S::f32s; VECTORS] {
        let values = &self.values[start..][..VECTORS * S::F32_LANES];
        &S::as_simd_f32s(values).0.as_chunks::<VECTORS>().0[0]
    }
}

#[inline(always)]
fn multiply_add<S: Simd, const VECTORS: usize>(
    simd: S,
    value: f32,
    vectors: &[S::f32s; VECTORS],
    mut sums: [S::f32s; VECTORS],
) -> [S::f32s; VECTORS] {
    let value = simd.splat_f32s(value);
    for (sum, &vector) in sums.iter_mut().zip(vectors) {
        *sum = simd.mul_add_e_f32s(value, vector, *sum);
    }
    sums
}

impl Sums<'_> {
    /// Adds the sums of row `row`.
    #[inline(always)]
    fn add<S: Simd, const VECTORS: usize>(
        &mut self,
        simd: S,
        row: usize,
        sums: [S::f32s; VECTORS],
    ) {
        let start = row * self.stride + self.start;
        let mut to = &mut self.values[start..start + self.columns];
        for sum in sums {
            let lanes = S::F32_LANES.min(to.len());
            let (vector, rest) = to.split_at_mut(lanes);
            let before = simd.partial_load_f32s(vector);
            simd.partial_store_f32s(vector, simd.add_f32s(before, sum));
            to = rest;
        }
    }
}
