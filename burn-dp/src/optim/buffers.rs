//! The check that buffers of the model do not change.

use burn::module::Module;

use crate::DpError;
use crate::model::for_each_parameter;

/// Compares, between the first two backward passes of a run, the float values that are not trained.
///
/// # Privacy
///
/// A buffer that a forward pass changes (running statistics of a layer that is not Burn's
/// BatchNorm) holds private data without noise and would leave with the model. Two observations are
/// compared, no more, because each reads the frozen part of the model.
#[derive(Debug, Default)]
pub(crate) struct BufferCheck {
    first: Option<Vec<(String, blake3::Hash)>>,
    done: bool,
}

impl BufferCheck {
    /// Returns whether the first observation was made.
    pub(crate) fn has_begun(&self) -> bool {
        self.first.is_some()
    }

    /// Returns whether both observations were made.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Makes the first observation, or compares the second one with it.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::UnsupportedModel`] if a value changed.
    pub(crate) fn observe<M: Module>(&mut self, model: &M) -> Result<(), DpError> {
        if self.done {
            return Ok(());
        }
        let mut digests = Vec::new();
        for_each_parameter(model, |path, parameter| {
            if !parameter.is_trained {
                // The bytes as they are stored, also if they are packed.
                let hash = blake3::hash(parameter.value.data().as_bytes());
                digests.push((path.to_string(), hash));
            }
        });
        let Some(first) = &self.first else {
            self.first = Some(digests);
            return Ok(());
        };
        // What was trained at the first observation is not in it.
        let changed = |(path, digest): &&(String, blake3::Hash)| {
            first.iter().any(|(observed, before)| observed == path && before != digest)
        };
        if let Some((path, _)) = digests.iter().find(changed) {
            return Err(DpError::UnsupportedModel {
                path: path.clone(),
                reason:
                    "it is not trained, but it changed: what a forward pass stores of the examples \
                     would be published without noise; remove the layer, or put it into \
                     evaluation mode"
                        .into(),
            });
        }
        self.done = true;
        Ok(())
    }
}
