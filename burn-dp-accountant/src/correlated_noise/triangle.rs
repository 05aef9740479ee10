//! Lower triangles: their inverse, and the intervals of the binary tree.

/// Returns the rows of the inverse of a lower triangle.
pub(super) fn inverse_of_rows(rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut inverse: Vec<Vec<f64>> = Vec::with_capacity(rows.len());
    for (i, row) in rows.iter().enumerate() {
        // Row i of the inverse: (e_i - Σ_{k<i} C[i, k] inverse[k]) / C[i, i].
        let mut next = vec![0.0; i + 1];
        next[i] = 1.0;
        for (&entry, known) in row.iter().zip(&inverse) {
            if entry != 0.0 {
                known.iter().zip(&mut next).for_each(|(&value, next)| *next -= entry * value);
            }
        }
        next.iter_mut().for_each(|value| *value /= row[i]);
        inverse.push(next);
    }
    inverse
}

/// Returns the number of steps that row `t` of the binary tree sums; rows count from 1.
pub(super) fn tree_interval(t: u64) -> u64 {
    1 << t.trailing_zeros()
}
