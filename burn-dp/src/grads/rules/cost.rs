/// Costs of the ways to reach a norm, for one example.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    /// Floating-point operations of the ghost norm beyond what the weighted sum costs; `None` where
    /// the rule has no ghost norm.
    pub(crate) ghost_flops: Option<f64>,
    /// Values of the temporaries that the ghost norm needs.
    pub(crate) ghost_temporary: usize,
    /// Values of the per-example gradient.
    pub(crate) values: usize,
    /// Values of the temporaries that instantiation needs.
    pub(crate) temporary: usize,
}
