//! The gradients of one parameter, for each example.

use burn::tensor::{DType, Device, Tensor};

use super::clock::shortest;
use super::explanation::ExplainedParameter;
use super::planner::{NormMethod, Plan, Planner};
use super::rules::{
    Factors, Keep, MatrixOrder, Restriction, Rounding, Rule, SquaredNorms, Transposed,
};
use crate::DpError;
use crate::model::ParameterInfo;
use crate::ops::{row_squared_norms, row_sums, weighted_rows};

/// Memory for gradients that are instantiated for a product. The gradient of a single example may
/// be larger.
const PRODUCT_BYTES: usize = 64 << 20;

/// The per-example gradients of one parameter, instantiated or not.
#[derive(Debug)]
pub(super) struct ParameterGradients {
    pub(super) info: ParameterInfo,
    pub(super) plan: Plan,
    pub(super) explained: ExplainedParameter,
    source: Source,
}

/// The source of the gradients of one parameter.
// There is one per parameter.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum Source {
    /// The record of the backward pass, and its rule.
    Rule(Box<dyn Rule>),
    /// The gradients themselves, `[batch_size, values]`, and the order of their values if the
    /// parameter has another one.
    Instantiated(Tensor<2>, Option<MatrixOrder>),
}

impl Source {
    /// Instantiates the gradients of all examples, for `chunk` examples at a time where this needs
    /// temporary tensors.
    fn instantiated(rule: &dyn Rule, chunk: usize) -> Self {
        match rule.instantiate_at_once() {
            Some(Transposed { gradients, order }) => Self::Instantiated(gradients, Some(order)),
            None => Self::Instantiated(instantiate(rule, chunk), None),
        }
    }
}

impl ParameterGradients {
    /// Prepares the gradients of `uses` uses in the way that the planner chooses.
    pub(super) fn planned(
        info: &ParameterInfo,
        uses: usize,
        rule: Box<dyn Rule>,
        planner: &mut Planner,
    ) -> Self {
        let plan = planner.plan(&*rule);
        let explained = explained(info, uses, &*rule, plan, planner);
        let source = match plan.method {
            // The record is dropped.
            NormMethod::Instantiate => Source::instantiated(&*rule, plan.chunk),
            _ => Source::Rule(rule),
        };
        Self { info: info.clone(), plan, explained, source }
    }

    /// Instantiates the gradients of `uses` uses.
    pub(super) fn form(
        info: &ParameterInfo,
        uses: usize,
        rule: &dyn Rule,
        planner: &Planner,
    ) -> Self {
        let chunk = planner.formation_chunk(rule);
        let plan = Plan { method: NormMethod::Instantiate, chunk };
        Self {
            info: info.clone(),
            plan,
            explained: explained(info, uses, rule, plan, planner),
            source: Source::instantiated(rule, chunk),
        }
    }

    /// Adds the gradients of `uses` further uses.
    pub(super) fn plus(mut self, uses: usize, rule: &dyn Rule, planner: &Planner) -> Self {
        let chunk = planner.formation_chunk(rule);
        let Source::Instantiated(rows, order) = self.source else {
            unreachable!("the gradients of the uses before are formed");
        };
        let rows = in_order(rows, order);
        let sum = match chunk < rule.batch_size() {
            true => match rule.instantiate_at_once() {
                Some(added) => rows + added.in_order(),
                None => rows + instantiate(rule, chunk),
            },
            false => rule.add_to(rows),
        };
        self.source = Source::Instantiated(sum, None);
        let plan = Plan { method: NormMethod::Instantiate, chunk };
        self.explained = self.explained.plus(explained(&self.info, uses, rule, plan, planner));
        self
    }

    /// Returns the planner's choice with the time that the norms and the weighted sum of `units`
    /// units take.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::Device`] if the device fails.
    pub(super) fn measured(
        self,
        units: usize,
        device: &Device,
    ) -> Result<ExplainedParameter, DpError> {
        let coefficients = Tensor::<1>::ones([units], (device, DType::F32));
        let norms = shortest(device, || self.squared_norms(&mut Factors::default()))?;
        let sum = shortest(device, || match &self.source {
            Source::Rule(rule) => rule.weighted_sum(coefficients.clone()),
            Source::Instantiated(rows, _) => weighted_rows(coefficients.clone(), rows.clone()),
        })?;
        let measured_seconds = norms.zip(sum).map(|(norms, sum)| norms + sum);
        Ok(ExplainedParameter { measured_seconds, ..self.explained })
    }

    /// Returns the squared norms, `[batch_size]`.
    ///
    /// - factors: intermediate results from the norms of other parameters
    pub(super) fn squared_norms(&self, factors: &mut Factors) -> SquaredNorms {
        let rule = match &self.source {
            Source::Rule(rule) => rule,
            Source::Instantiated(rows, _) => {
                let known = factors.norms_of(rows);
                let values = known.unwrap_or_else(|| row_squared_norms(rows.clone()));
                return SquaredNorms { values, rounding: Rounding::Relative };
            }
        };
        let parts = chunks(&**rule, self.plan.chunk).map(|part| {
            let ghost = match self.plan.method {
                NormMethod::Ghost => part.ghost_norms(factors),
                _ => None,
            };
            ghost.unwrap_or_else(|| SquaredNorms {
                values: row_squared_norms(part.instantiate()),
                rounding: part.magnitudes().map_or(Rounding::Relative, Rounding::Reordered),
            })
        });
        SquaredNorms::concatenate(parts.collect())
    }

    /// Returns the product of each gradient with `direction`, `[batch_size]`. Gradients that it
    /// needs are instantiated for some examples at a time.
    pub(super) fn products(&self, direction: Tensor<1>) -> Tensor<1> {
        if let Source::Rule(rule) = &self.source
            && let Some(products) = rule.products(direction.clone())
        {
            return products;
        }
        let direction = match &self.source {
            Source::Instantiated(_, Some(order)) => order.apply(direction.unsqueeze()),
            _ => direction.unsqueeze::<2>(),
        };
        // Added up without a matrix product, whose precision may be lower.
        let products = |rows: Tensor<2>| row_sums(rows * direction.clone());
        let chunk = |values: usize| (PRODUCT_BYTES / (values * size_of::<f32>()).max(1)).max(1);
        let parts: Vec<Tensor<1>> = match &self.source {
            Source::Instantiated(rows, _) => {
                let parts = rows.clone().split(chunk(rows.dims()[1]), 0);
                parts.into_iter().map(products).collect()
            }
            Source::Rule(rule) => {
                let (cost, rule) = (rule.cost(), &**rule);
                let parts = chunks(rule, chunk(cost.values + cost.temporary));
                parts.map(|part| products(part.instantiate())).collect()
            }
        };
        Tensor::cat(parts, 0)
    }

    /// Returns `Σ_i coefficients[i] · gradient_i`, `[values]`; examples that `keep` excludes count
    /// as zero.
    pub(super) fn weighted_sum(self, coefficients: Tensor<1>, keep: Option<&Keep>) -> Tensor<1> {
        match (self.source, keep) {
            (Source::Instantiated(rows, order), keep) => {
                let sum = match keep {
                    Some(keep) => keep.weighted_rows(coefficients, rows),
                    None => weighted_rows(coefficients, rows),
                };
                in_order(sum.unsqueeze(), order).squeeze_dim(0)
            }
            (Source::Rule(rule), Some(keep)) => rule.kept_sum(coefficients, keep),
            (Source::Rule(rule), None) => rule.weighted_sum(coefficients),
        }
    }
}

/// Puts rows of values into the order of the parameter.
fn in_order(rows: Tensor<2>, order: Option<MatrixOrder>) -> Tensor<2> {
    match order {
        Some(order) => order.restore(rows),
        None => rows,
    }
}

/// Splits the rule into rules for `chunk` examples each.
fn chunks(rule: &dyn Rule, chunk: usize) -> impl Iterator<Item = Box<dyn Rule>> {
    let batch_size = rule.batch_size();
    let chunk = chunk.clamp(1, batch_size.max(1));
    (0..batch_size).step_by(chunk).map(move |start| {
        let length = chunk.min(batch_size - start);
        rule.restrict(&match length == batch_size {
            true => Restriction::All,
            false => Restriction::Range { start, length },
        })
    })
}

/// Returns the gradients of all examples, `[batch_size, values]`, instantiated for `chunk` examples
/// at a time.
fn instantiate(rule: &dyn Rule, chunk: usize) -> Tensor<2> {
    let mut parts: Vec<Tensor<2>> = chunks(rule, chunk).map(|part| part.instantiate()).collect();
    if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(parts, 0) }
}

/// Explains the planner's choice for one parameter, based only on shapes.
fn explained(
    info: &ParameterInfo,
    uses: usize,
    rule: &dyn Rule,
    plan: Plan,
    planner: &Planner,
) -> ExplainedParameter {
    let (cost, units, size) = (rule.cost(), rule.batch_size(), size_of::<f32>());
    let gradient_bytes = units * info.num_values() * size;
    let recorded_bytes = rule.kept_values() * size;
    let kept_bytes = match plan.method {
        NormMethod::Instantiate => gradient_bytes,
        _ => recorded_bytes,
    };
    let temporary = match plan.method {
        NormMethod::Instantiate => cost.temporary,
        NormMethod::Ghost => cost.ghost_temporary,
        NormMethod::InstantiateInChunks(_) => cost.values + cost.temporary,
    };
    ExplainedParameter {
        info: info.clone(),
        rule: Some(rule.name()),
        uses,
        method: Some(plan.method),
        ghost_flops: cost.ghost_flops.map(|flops| flops * units as f64),
        gradient_bytes,
        recorded_bytes,
        kept_bytes,
        temporary_bytes: plan.chunk.min(units) * temporary * size,
        estimated_seconds: planner.estimate(rule, plan),
        measured_seconds: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grads::oracle::{assert_equal, numbers};
    use crate::grads::rules::OuterProducts;
    use crate::test_devices::devices;

    #[test]
    fn parts_of_a_batch_hold_each_example_once() {
        for device in devices() {
            let (left, right) = (numbers([5, 3, 4], 1, &device), numbers([5, 3, 2], 2, &device));
            let rule = OuterProducts::dense(left, right);
            for (chunk, sizes) in [(0, vec![1; 5]), (2, vec![2, 2, 1]), (5, vec![5]), (9, vec![5])]
            {
                let found: Vec<_> = chunks(&rule, chunk).map(|part| part.batch_size()).collect();
                assert_eq!(found, sizes);
                assert_equal(instantiate(&rule, chunk), rule.instantiate(), 1e-6);
            }
        }
    }
}
