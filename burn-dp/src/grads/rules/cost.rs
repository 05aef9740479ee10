/// Costs of the ways to compute a norm, for one example.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    /// Floating-point operations of the ghost norm, without the weighted sum; `None` if the rule
    /// has no ghost norm.
    pub(crate) ghost_flops: Option<f64>,
    /// Values in the temporaries of the ghost norm.
    pub(crate) ghost_temporary: usize,
    /// Floating-point operations of instantiation, in addition to moving its values.
    pub(crate) formation_flops: f64,
    /// Values of the per-example gradient.
    pub(crate) values: usize,
    /// Values in the temporaries of instantiation.
    pub(crate) temporary: usize,
}
