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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::grads::oracle::{assert_equal, host, numbers};
    use crate::grads::rules::OuterProducts;
    use crate::ops::weighted_rows;
    use crate::test_devices::devices;

    #[test]
    fn terms_of_all_rows_and_uses_of_a_unit_are_added() {
        for device in devices() {
            let dense = |positions, seed| {
                let left = numbers([4, positions, 2], seed, &device);
                OuterProducts::dense(left, numbers([4, positions, 3], seed + 1, &device))
            };
            let (first, second) = (dense(3, 1), dense(2, 5));
            let lengths =
                [&first, &second].map(|part| host(part.magnitudes().unwrap().squared.sqrt()));
            let summed = Summed { uses: vec![Box::new(first), Box::new(second)], group_size: 2 };
            assert_eq!(summed.batch_size(), 2);
            let magnitudes = summed.magnitudes().unwrap();
            // A term of the first use has 4 roundings; it is added in two rows and two uses.
            assert_eq!(magnitudes.roundings, 4 * 2 + 2);
            for (unit, found) in host(magnitudes.squared).into_iter().enumerate() {
                let rows = lengths.iter().flat_map(|rows| &rows[2 * unit..][..2]);
                let expected = rows.sum::<f64>().powi(2);
                assert!((found / expected - 1.0).abs() < 1e-5, "{found} {expected}");
            }
            let coefficients = numbers([2], 9, &device);
            let expected = weighted_rows(coefficients.clone(), summed.instantiate());
            assert_equal(summed.weighted_sum(coefficients), expected, 1e-5);
        }
    }
}
