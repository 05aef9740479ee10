use std::any::Any;
use std::fmt;

/// A backend primitive with an erased type. It carries a tensor from a backward step to a rule.
pub struct Slot(Box<dyn Any + Send>);

impl Slot {
    /// Stores a primitive.
    pub fn new<T: Send + 'static>(primitive: T) -> Self {
        Self(Box::new(primitive))
    }

    /// Returns the primitive if it has this type.
    pub(super) fn try_take<T: 'static>(self) -> Result<T, Self> {
        self.0.downcast::<T>().map(|primitive| *primitive).map_err(Self)
    }

    /// Returns the primitive.
    ///
    /// # Panics
    ///
    /// Panics if the primitive belongs to another backend, which means that one model mixes
    /// backends.
    pub fn take<T: 'static>(self) -> T {
        match self.try_take() {
            Ok(primitive) => primitive,
            Err(_) => panic!(
                "a recorded tensor belongs to another backend than the losses; keep the model and \
                 its losses on one backend"
            ),
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot")
    }
}
