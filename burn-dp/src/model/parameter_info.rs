use burn::module::ParamId;

/// One trained parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Identity of the parameter.
    pub id: ParamId,
    /// Path in the module tree, for example `encoder.fc.weight`; the first path of a tied
    /// parameter.
    pub path: String,
    /// Shape of the parameter.
    pub shape: Vec<usize>,
}

impl ParameterInfo {
    /// Returns the number of values.
    pub fn num_values(&self) -> usize {
        self.shape.iter().product()
    }
}
