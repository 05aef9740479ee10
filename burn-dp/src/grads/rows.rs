use crate::DpError;

/// The rows of a backward pass: every `group_size` of them are one unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub(super) count: usize,
    pub(super) group_size: usize,
}

impl Rows {
    pub(super) fn units(self) -> usize {
        self.count / self.group_size
    }
}

/// Checks the batch axis of a record.
///
/// # Errors
///
/// Returns [`DpError::NotPerExample`] if a layer was applied to `found` rows and there are `losses`
/// losses.
pub(super) fn check_batch_size(found: usize, losses: usize) -> Result<(), DpError> {
    if found == losses {
        return Ok(());
    }
    Err(DpError::NotPerExample {
        reason: "the input of a private layer has another number of examples on axis 0 than there \
                 are losses; return one loss per example (`[batch_size]`, not their mean) and keep \
                 the examples on axis 0 of every private layer"
            .into(),
    })
}
