use burn::tensor::Tensor;

use super::{Cost, Magnitudes, Restriction, Rule, ghost};
use crate::ops::row_squared_norms;

/// The sum of several uses of a parameter, or of the rows of one unit. They are added before the
/// norm, because their cross terms enter it.
///
/// There is no ghost norm: the gradients are instantiated for as many units at a time as the memory
/// bound allows.
#[derive(Debug)]
pub(in crate::grads) struct Summed {
    /// At least one; each has `units · group_size` rows.
    pub(in crate::grads) uses: Vec<Box<dyn Rule>>,
    /// Number of rows of one unit.
    pub(in crate::grads) group_size: usize,
}

impl Summed {
    /// Adds the rows of each unit: `[units · group_size, values]` to `[units, values]`.
    fn units(&self, rows: Tensor<2>) -> Tensor<2> {
        if self.group_size == 1 {
            return rows;
        }
        let [count, values] = rows.dims();
        let units = count / self.group_size;
        rows.reshape([units, self.group_size, values]).sum_dim(1).reshape([units, values])
    }
}

impl Rule for Summed {
    fn kept_values(&self) -> usize {
        self.uses.iter().map(|part| part.kept_values()).sum()
    }

    fn batch_size(&self) -> usize {
        self.uses.first().map_or(0, |part| part.batch_size()) / self.group_size
    }

    fn cost(&self) -> Cost {
        let costs: Vec<Cost> = self.uses.iter().map(|part| part.cost()).collect();
        let values = costs.iter().map(|cost| cost.values).max().unwrap_or(0);
        let temporary = costs.iter().map(|cost| cost.temporary).max().unwrap_or(0);
        Cost { values, temporary: self.group_size * (values + temporary), ..Cost::default() }
    }

    fn magnitudes(&self) -> Option<Magnitudes> {
        let (mut lengths, mut roundings): (Vec<Tensor<1>>, usize) = (Vec::new(), 0);
        for part in &self.uses {
            let part = part.magnitudes().unwrap_or_else(|| Magnitudes {
                squared: row_squared_norms(part.instantiate()),
                roundings: ghost::sum_roundings(1),
            });
            lengths.push(part.squared.sqrt());
            roundings = roundings.max(part.roundings);
        }
        let lengths = lengths.into_iter().reduce(|sum, lengths| sum + lengths)?;
        let [count] = lengths.dims();
        let units = count / self.group_size;
        Some(Magnitudes {
            squared: self.units(lengths.reshape([count, 1])).square().reshape([units]),
            // The weighted sum can add the terms of all rows one after another, then the uses.
            roundings: roundings * self.group_size + self.uses.len(),
        })
    }

    fn instantiate(&self) -> Tensor<2> {
        let rows = self.uses.iter().map(|part| self.units(part.instantiate()));
        match rows.reduce(|sum, rows| sum + rows) {
            Some(sum) => sum,
            None => unreachable!("a parameter has at least one use"),
        }
    }

    fn weighted_sum(&self, coefficients: Tensor<1>) -> Tensor<1> {
        let [units] = coefficients.dims();
        let coefficients = coefficients
            .reshape([units, 1])
            .repeat_dim(1, self.group_size)
            .reshape([units * self.group_size]);
        let sums = self.uses.iter().map(|part| part.weighted_sum(coefficients.clone()));
        match sums.reduce(|sum, part| sum + part) {
            Some(sum) => sum,
            None => unreachable!("a parameter has at least one use"),
        }
    }

    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule> {
        let restrict = |examples: &Restriction| -> Box<dyn Rule> {
            let uses = self.uses.iter().map(|part| part.restrict(examples)).collect();
            Box::new(Self { uses, group_size: self.group_size })
        };
        match examples {
            Restriction::All => restrict(&Restriction::All),
            Restriction::Range { start, length } => restrict(&Restriction::Range {
                start: start * self.group_size,
                length: length * self.group_size,
            }),
            Restriction::Keep(keep) => restrict(&Restriction::Keep(&keep.repeat(self.group_size))),
        }
    }
}
