//! Sums with small rounding.

/// A compensated sum (Neumaier 1974), whose rounding does not grow with the number of terms.
#[derive(Default)]
pub(crate) struct CompensatedSum {
    sum: f64,
    lost: f64,
}

impl CompensatedSum {
    pub(crate) fn add(&mut self, term: f64) {
        let next = self.sum + term;
        self.lost += if self.sum.abs() >= term.abs() {
            (self.sum - next) + term
        } else {
            (term - next) + self.sum
        };
        self.sum = next;
    }

    pub(crate) fn value(&self) -> f64 {
        self.sum + self.lost
    }
}
