//! The check that buffers of the model do not change.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

use crate::DpError;

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
    /// Returns whether both observations were made.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    pub(crate) fn observe<M: Module>(&mut self, model: &M) -> Result<(), DpError> {
        if self.done {
            return Ok(());
        }
        let mut digests = Digests::default();
        model.visit(&mut digests);
        let Some(first) = &self.first else {
            self.first = Some(digests.found);
            return Ok(());
        };
        // What was trained at the first observation is not in it.
        let changed = |(path, digest): &&(String, blake3::Hash)| {
            first.iter().any(|(observed, before)| observed == path && before != digest)
        };
        if let Some((path, _)) = digests.found.iter().find(changed) {
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

#[derive(Default)]
struct Digests {
    path: Vec<String>,
    found: Vec<(String, blake3::Hash)>,
}

impl ModuleVisitor for Digests {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.base();
        if tensor.is_require_grad() {
            return;
        }
        // The bytes as they are stored, also those of a packed weight.
        let hash = blake3::hash(tensor.into_data().as_bytes());
        self.found.push((self.path.join("."), hash));
    }
}
