//! A comparison of the loss and the gradient of each unit between different batches.

use std::collections::{BTreeMap, BTreeSet};

use burn::module::Module;
use burn::tensor::Tensor;

use super::observed::Observed;
use super::rounding::Rounding;
use crate::DpError;
use crate::device_read::read_f64;
use crate::grads::PrivateBackward;
use crate::grads::directions::Directions;
use crate::model::{ParameterGroups, private_copy};
use crate::sampling::RecordIdentity;

/// Maximum number of units that are also computed alone.
const ALONE: usize = 16;

/// Number of units from which on it is no accident that all have equal values, and how much equal
/// values may differ, relative to their size: rows of a product are rounded in different ways.
const EQUAL_UNITS: usize = 32;
const EQUAL: f64 = 1e-6;

/// One of this many units appears twice in the larger batch.
const LARGER: usize = 8;

/// Returns the losses of the units at the given positions of a batch, in that order.
pub(crate) type LossesOf<'a, M> = dyn FnMut(&M, &[usize]) -> Result<Tensor<1>, DpError> + 'a;

/// Compares the loss of each unit, and its gradient for each parameter, between a batch and other
/// batches of its units: in reverse order, in two halves, with some units twice, and each of up to
/// sixteen units alone. Returns the losses in the batch, or `None` if there were fewer than two
/// units to compare.
///
/// Gradients are compared by their norms, and by their products with one fixed random vector for
/// each parameter, which detect a gradient of the same norm in another direction.
///
/// Two units, or half of them, must differ by more than [rounding](Rounding), and norms by more
/// than the proven bound of the way that computed them. So no single unit, however large its
/// values, makes honest losses look mixed. The passes use a copy of the model. They take six times
/// the time of the forward and the backward pass of the batch, and the passes of single units.
///
/// # Errors
///
/// Returns [`DpError::NotPerExample`] if two units differ, and the errors of `losses_of` and of
/// [`PrivateBackward::run`].
pub(crate) async fn compare_values<M: Module>(
    model: &M,
    backward: &PrivateBackward,
    units: usize,
    losses_of: &mut LossesOf<'_, M>,
) -> Result<Option<Compared>, DpError> {
    if units < 2 {
        return Ok(None);
    }
    let model = private_copy(model);
    let groups = ParameterGroups::per_parameter(&model)?;
    let all: Vec<usize> = (0..units).collect();
    let mut directions = Directions::default();
    let mut observe = async |model: &M, positions: &[usize]| {
        let losses = losses_of(model, positions)?;
        Observed::new(losses, positions.len(), model, backward, &groups, &mut directions).await
    };
    let batch = observe(&model, &all).await?;
    let rounding = Rounding::of(&model, &batch.precision);
    // A clone would share the running states of the copy.
    let perturbed = observe(&rounding.perturb(private_copy(&model)), &all).await?;
    let again = observe(&model, &all).await?;
    if let Some(quantity) = rounding.repeats(&batch, &again, &perturbed) {
        return Err(random(&name(&groups, backward, quantity)));
    }
    let tolerances = rounding.tolerances(&batch, &perturbed);
    let share_of_half = rounding.share_of_half();

    let comparable = |&unit: &usize| {
        let mut quantities = batch.values.iter().zip(&tolerances);
        quantities.all(|(values, tolerances)| (values[unit] + tolerances[unit]).is_finite())
    };
    if all.iter().filter(|unit| comparable(unit)).count() < 2 {
        return Ok(None);
    }
    let mut two = BTreeMap::new();
    for (arrangement, batches) in arrangements(units) {
        let compared = batches.iter().map(Vec::len).sum::<usize>();
        let mut half = vec![0; batch.values.len()];
        for positions in batches {
            let found = observe(&model, &positions).await?;
            for (quantity, values) in found.values.iter().enumerate() {
                for (place, (value, &unit)) in values.iter().zip(&positions).enumerate() {
                    // The way that computes a norm depends on the batch.
                    let rounding = found.rounding[quantity][place] + batch.rounding[quantity][unit];
                    let differs = |share: f64| {
                        let tolerance = share * tolerances[quantity][unit] + rounding;
                        differs(*value, batch.values[quantity][unit], tolerance)
                    };
                    if differs(1.0) {
                        two.entry(unit).or_insert(quantity);
                    }
                    half[quantity] += usize::from(differs(share_of_half));
                }
            }
        }
        let of_two = if two.len() < 2 { None } else { two.values().min().copied() };
        let of_half = half.iter().position(|&units| units >= compared.div_ceil(2).max(2));
        if let Some(quantity) = of_two.or(of_half) {
            return Err(mixed(&name(&groups, backward, quantity), arrangement));
        }
    }
    let is_one_record = is_one_record(&batch);
    let (mut losses, mut tolerances) = (batch.values, tolerances);
    losses.truncate(backward.group_size());
    tolerances.truncate(backward.group_size());
    Ok(Some(Compared { losses, tolerances, share_of_half, is_one_record }))
}

/// The losses of units that were compared between different batches.
#[derive(Debug)]
pub(crate) struct Compared {
    /// `[copies][units]`
    losses: Vec<Vec<f64>>,
    /// How much each of them may differ: `[copies][units]`.
    tolerances: Vec<Vec<f64>>,
    /// The share of the tolerances by which half of the units may differ.
    share_of_half: f64,
    /// Whether all units have the same loss and the same gradient.
    is_one_record: bool,
}

impl Compared {
    /// Checks that the units are different records, if nothing but the type of their data set says
    /// so.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::NotPerExample`] if all of them, and at least 32, have one loss and one
    /// gradient.
    pub(crate) fn check_records(&self, identity: RecordIdentity) -> Result<(), DpError> {
        if !self.is_one_record || identity != RecordIdentity::Declared {
            return Ok(());
        }
        let units = self.losses[0].len();
        Err(DpError::NotPerExample {
            reason: format!(
                "all {units} compared examples have the same loss and the same gradient: the data \
                 set may return one record under several indices; let `Distinct` compare the \
                 records, or their keys"
            ),
        })
    }

    /// Compares `losses`, `[rows]`, of a pass that begins with the same units. Returns whether it
    /// has a loss for each of them.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::NotPerExample`] if two units differ, or half of them by less, and
    /// [`DpError::Device`] if the losses cannot be read.
    pub(crate) async fn check(&self, losses: &Tensor<1>) -> Result<bool, DpError> {
        let found = read_f64(losses.clone().inner(), "losses").await?;
        let copies = self.losses.len();
        let mut different = BTreeSet::new();
        for (copy, (losses, tolerances)) in self.losses.iter().zip(&self.tolerances).enumerate() {
            let mut half = 0;
            for (unit, (&expected, tolerance)) in losses.iter().zip(tolerances).enumerate() {
                // A missing loss is another error.
                let Some(&value) = found.get(unit * copies + copy) else { return Ok(false) };
                if differs(value, expected, *tolerance) {
                    different.insert(unit);
                }
                half += usize::from(differs(value, expected, self.share_of_half * tolerance));
            }
            if different.len() >= 2 || half >= losses.len().div_ceil(2).max(2) {
                return Err(mixed("the loss", "in the batch that is clipped, padding included"));
            }
        }
        Ok(true)
    }
}

/// Returns whether the units, if they are many, have equal values, none of which is lost in
/// rounding.
fn is_one_record(batch: &Observed) -> bool {
    let equal = |(values, scales): (&Vec<f64>, &Vec<f64>)| {
        let near = |value: &f64| (value - values[0]).abs() <= EQUAL * scales[0];
        values.len() >= EQUAL_UNITS && values.iter().all(near)
    };
    batch.values.iter().zip(&batch.scales).all(equal)
}

/// Returns the name of a quantity for messages.
fn name(groups: &ParameterGroups, backward: &PrivateBackward, quantity: usize) -> String {
    let parameter = quantity.checked_sub(backward.group_size());
    match parameter.map(|index| &groups.names()[index % groups.len()]) {
        Some(path) => format!("the gradient of `{path}`"),
        None => "the loss".to_string(),
    }
}

fn mixed(what: &str, arrangement: &str) -> DpError {
    DpError::NotPerExample {
        reason: format!(
            "{what} of an example differs from its value in the batch when it is computed \
             {arrangement}, by more than rounding: it depends on other examples, even if no \
             gradient shows it; compute each loss from its own example alone, without a mean, sum, \
             rank or mask over the batch (also under `detach`), its number of rows, mixtures of \
             examples, or a padded length that counts"
        ),
    }
}

fn random(what: &str) -> DpError {
    DpError::NotPerExample {
        reason: format!(
            "{what} of an example differs when the same batch is computed again, by more than \
             rounding: something draws random values that belong to no unit; use \
             `Private<Dropout>`, and derive every augmentation from its own item"
        ),
    }
}

/// Returns whether a value differs from the expected one. All values that are not finite are equal.
fn differs(value: f64, expected: f64, tolerance: f64) -> bool {
    match (value.is_finite(), expected.is_finite()) {
        (true, true) => (value - expected).abs() > tolerance,
        (false, false) => false,
        _ => tolerance.is_finite(),
    }
}

/// Returns the other batches of `units` units, at least two, with the name of each kind.
fn arrangements(units: usize) -> Vec<(&'static str, Vec<Vec<usize>>)> {
    let every = |from, step| (from..units).step_by(step).collect::<Vec<usize>>();
    let copies = units - units.div_ceil(LARGER);
    vec![
        ("in the reverse order", vec![(0..units).rev().collect()]),
        ("in a batch with half of the examples", vec![every(0, 2), every(1, 2)]),
        ("in a batch with more examples", vec![(copies..units).chain(0..units).collect()]),
        ("alone", every(0, units.div_ceil(ALONE)).into_iter().map(|unit| vec![unit]).collect()),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::{DType, Device, Int};

    use super::*;
    use crate::device_read::blocking;
    use crate::grads::NormMethod;
    use crate::grads::oracle::numbers;
    use crate::model::groups::three_groups;
    use crate::nn::{IntoPrivate, Private};
    use crate::test_devices::training_devices;

    #[test]
    fn many_equal_units_are_one_record_and_units_that_differ_slightly_are_not() {
        let batch = |units: usize, apart: f64| {
            let values: Vec<f64> = (0..units).map(|i| 500.0 + apart * (i % 2) as f64).collect();
            let (values, scales) = (vec![values], vec![vec![1e3; units]]);
            let rounding = vec![vec![0.0; units]];
            Observed { values, scales, rounding, precision: (DType::F32, Device::flex()) }
        };
        assert!(is_one_record(&batch(EQUAL_UNITS, 0.0)));
        assert!(is_one_record(&batch(EQUAL_UNITS, 0.5 * EQUAL * 1e3)));
        assert!(!is_one_record(&batch(EQUAL_UNITS, 2.0 * EQUAL * 1e3)));
        assert!(!is_one_record(&batch(EQUAL_UNITS - 1, 0.0)));
    }

    // Positions nearly cancel, so that the bound of a ghost norm is far above rounding. Half of the
    // units are short, and have ghost norms where no long one pads them.
    #[test]
    fn norms_that_are_computed_in_two_ways_are_no_mixture() {
        for device in training_devices() {
            let config = LinearConfig::new(96, 96).with_bias(false);
            let layer: Private<Linear> = config.init(&device).private();
            let (units, long, short) = (16, 64, 16);
            let x = numbers([units, 1, 96], 1, &device);
            let signs = (0..long).map(|t| if t % 2 == 0 { 1.0 } else { -0.8 });
            let signs = Tensor::<1>::from_floats(signs.collect::<Vec<f32>>().as_slice(), &device);
            let length = |row: usize| if row.is_multiple_of(2) { long } else { short };
            let backward = PrivateBackward::new();
            let mut losses_of = |layer: &Private<Linear>, rows: &[usize]| {
                let longest = rows.iter().map(|&row| length(row)).max().unwrap_or(0);
                let is_real = rows.iter().flat_map(|&row| {
                    (0..longest).map(move |t| if t < length(row) { 1.0 } else { 0.0 })
                });
                let is_real = is_real.collect::<Vec<f32>>();
                let is_real = Tensor::<1>::from_floats(is_real.as_slice(), &device);
                let is_real = is_real.reshape([rows.len(), longest, 1]);
                let indices: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
                let indices = Tensor::<1, Int>::from_ints(indices.as_slice(), &device);
                let x = x.clone().select(0, indices).repeat_dim(1, longest) * is_real;
                let signs = signs.clone().narrow(0, 0, longest).reshape([1, longest, 1]);
                Ok((layer.forward(x) * signs).sum_dims(&[1, 2]).reshape([-1]))
            };
            for (rows, method) in
                [(&[0, 1][..], NormMethod::Instantiate), (&[1], NormMethod::Ghost)]
            {
                let grads = backward.run(losses_of(&layer, rows).unwrap(), &layer).unwrap();
                assert!(grads.norm_methods().all(|(_, found)| found == method), "{rows:?}");
            }
            let compared = compare_values(&layer, &backward, units, &mut losses_of);
            assert!(blocking(compared, "the comparison").unwrap().is_some());
        }
    }

    #[test]
    fn every_arrangement_has_known_units_and_the_first_three_have_all() {
        for units in [2, 3, 7, 8, 9, 16, 17, 33, 100] {
            for (name, batches) in arrangements(units) {
                let mut seen: Vec<usize> = batches.concat();
                seen.sort_unstable();
                seen.dedup();
                let all = seen.len() == units;
                assert!(all || (name == "alone" && (9..=16).contains(&seen.len())), "{name}");
                assert!(seen.iter().all(|&unit| unit < units), "{name} {units}");
                assert!(batches.iter().all(|batch| !batch.is_empty()));
                let is_larger = batches.iter().any(|batch| batch.len() > units);
                assert_eq!(is_larger, name == "in a batch with more examples", "{name} {units}");
            }
        }
    }

    #[test]
    fn values_that_are_not_finite_are_alike() {
        assert!(!differs(f64::NAN, f64::INFINITY, 0.1));
        assert!(differs(f64::NAN, 1.0, 0.1) && differs(1.0, f64::NAN, 0.1));
        assert!(differs(1.2, 1.0, 0.1) && !differs(1.05, 1.0, 0.1));
        assert!(!differs(f64::NAN, 1.0, f64::INFINITY));
    }

    #[test]
    fn two_units_that_depend_on_their_batch_are_refused_and_one_is_not() {
        let device = training_devices().remove(0);
        let config = LinearConfig::new(3, 1).with_bias(false);
        let layer: Private<Linear> = config.init(&device).private();
        let (units, backward) = (12, PrivateBackward::new());
        let x: Tensor<2> = numbers([units, 3], 1, &device);
        for mixed in 0..4 {
            let mut losses_of = |layer: &Private<Linear>, rows: &[usize]| {
                let depends = |row: usize| row < mixed && rows.len() < units;
                let factor = |&row: &usize| if depends(row) { 2.0 } else { 1.0 };
                let factors: Vec<f32> = rows.iter().map(factor).collect();
                let factors = Tensor::<1>::from_floats(factors.as_slice(), &device);
                let indices: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
                let indices = Tensor::<1, Int>::from_ints(indices.as_slice(), &device);
                let outputs = layer.forward(x.clone().select(0, indices));
                Ok(outputs.reshape([-1]) * factors)
            };
            let compared = compare_values(&layer, &backward, units, &mut losses_of);
            let accepted = blocking(compared, "the comparison").is_ok();
            assert_eq!(accepted, mixed < 2, "{mixed}");
        }
    }

    #[test]
    fn a_pass_differs_by_two_units_or_by_half_of_them_and_not_by_the_copies_of_one() {
        let compared = Compared {
            losses: vec![vec![1.0; 8]; 2],
            tolerances: vec![vec![0.1; 8]; 2],
            share_of_half: 0.1,
            is_one_record: false,
        };
        let check = |changed: &[(usize, f32)], rows: usize| {
            let mut losses = [1f32; 20];
            changed.iter().for_each(|&(row, by)| losses[row] += by);
            let losses = Tensor::<1>::from_floats(&losses[..rows], &Device::flex());
            blocking(compared.check(&losses), "the comparison")
        };
        // Rows 2 and 3 are the copies of unit 1; the last four rows are not compared.
        for changed in [vec![], vec![(2, 0.2), (3, 0.2)], vec![(17, 9.0), (18, 9.0)]] {
            assert!(check(&changed, 20).unwrap(), "{changed:?}");
        }
        assert!(check(&[(2, 0.2), (4, 0.2)], 20).is_err());
        assert!(check(&[(2, 0.2), (5, 0.2)], 20).is_err());
        let half = |units: usize| (0..units).map(|unit| (2 * unit, 0.05)).collect::<Vec<_>>();
        assert!(check(&half(3), 20).unwrap() && check(&half(4), 20).is_err());
        assert!(!check(&[], 15).unwrap());
    }

    #[test]
    fn every_arrangement_finds_what_the_others_do_not() {
        let device = training_devices().remove(0);
        let config = LinearConfig::new(3, 1).with_bias(false);
        let layer: Private<Linear> = config.init(&device).private();
        let (units, backward) = (16, PrivateBackward::new());
        let x: Tensor<2> = numbers([units, 3], 1, &device);
        // Whether the rows of a batch mix.
        let mixtures: [fn(&[usize]) -> bool; 4] = [
            |rows| rows.len() == 16 && rows[0] > rows[15],
            |rows| rows.len() == 8,
            |rows| rows.len() > 16,
            |rows| rows.len() == 1,
        ];
        let names = arrangements(units).into_iter().map(|(name, _)| name);
        for (mixes, name) in mixtures.into_iter().zip(names) {
            let mut losses_of = |layer: &Private<Linear>, rows: &[usize]| {
                let indices: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
                let indices = Tensor::<1, Int>::from_ints(indices.as_slice(), &device);
                let outputs = layer.forward(x.clone().select(0, indices)).reshape([-1]);
                Ok(if mixes(rows) { outputs * 2.0 } else { outputs })
            };
            let compared = compare_values(&layer, &backward, units, &mut losses_of);
            let error = blocking(compared, "the comparison").err().unwrap().to_string();
            assert!(error.contains(&format!("when it is computed {name}, by more")), "{error}");
        }
    }

    #[test]
    fn quantities_are_named_after_the_loss_and_the_parameters() {
        // Two losses, three norms and three products.
        let backward = PrivateBackward::new().with_group_size(2);
        let name = |quantity| name(&three_groups(), &backward, quantity);
        assert_eq!([0, 1].map(name), ["the loss"; 2]);
        for (quantity, path) in [(2, "a"), (4, "c"), (5, "a"), (7, "c")] {
            assert_eq!(name(quantity), format!("the gradient of `{path}`"));
        }
    }
}
