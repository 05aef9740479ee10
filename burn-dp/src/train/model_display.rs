//! A private model is displayed as the wrapped model.

use std::fmt;

use burn::module::{Content, DisplaySettings, ModuleDisplay, ModuleDisplayDefault};

use super::{PrivateModel, PrivateTrainStep};

impl<M: PrivateTrainStep> fmt::Debug for PrivateModel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PrivateModel").field(self.inner()).finish()
    }
}

impl<M: PrivateTrainStep + fmt::Display> fmt::Display for PrivateModel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.inner(), f)
    }
}

impl<M: PrivateTrainStep + ModuleDisplay> ModuleDisplayDefault for PrivateModel<M> {
    fn content(&self, content: Content) -> Option<Content> {
        self.inner().content(content)
    }

    fn num_params(&self) -> usize {
        ModuleDisplayDefault::num_params(self.inner())
    }
}

impl<M: PrivateTrainStep + ModuleDisplay> ModuleDisplay for PrivateModel<M> {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        self.inner().custom_settings()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        self.inner().custom_content(content)
    }
}
