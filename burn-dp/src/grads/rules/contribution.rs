use super::Rule;
use super::outer::OuterProducts;
use super::sum::Summed;

/// The contribution of one use of a layer to one parameter.
// There are a few per layer, and each is moved once, so a box would only cost an allocation.
#[allow(clippy::large_enum_variant)]
pub(in crate::grads) enum Contribution {
    /// Outer products over positions; all uses of the parameter form one sum.
    Outer(OuterProducts),
    /// Any other rule.
    Other(Box<dyn Rule>),
}

impl Contribution {
    /// Returns the rule of only this use.
    pub(in crate::grads) fn rule(&self) -> &dyn Rule {
        match self {
            Self::Outer(outer) => outer,
            Self::Other(rule) => &**rule,
        }
    }
}

/// Combines all uses of one parameter into one rule.
pub(in crate::grads) fn combine(
    contributions: Vec<Contribution>,
    group_size: usize,
) -> Box<dyn Rule> {
    let (mut outer, mut uses) = (Vec::new(), Vec::new());
    for contribution in contributions {
        match contribution {
            Contribution::Outer(part) => outer.push(part),
            Contribution::Other(rule) => uses.push(rule),
        }
    }
    if let Some(outer) = OuterProducts::concatenate(outer) {
        uses.push(Box::new(outer) as Box<dyn Rule>);
    }
    match uses.len() {
        1 if group_size == 1 => uses.remove(0),
        1 if let Some(rule) = uses[0].regroup(group_size) => rule,
        _ => Box::new(Summed { uses, group_size }),
    }
}
