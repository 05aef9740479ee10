use std::any::Any;
use std::fmt;

/// A backend primitive whose type has been erased, on its way from a backward step to a rule.
pub struct Slot(Box<dyn Any + Send>);

impl Slot {
    /// Stores a primitive.
    pub fn new<T: Send + 'static>(primitive: T) -> Self {
        Self(Box::new(primitive))
    }

    /// Takes the primitive out.
    ///
    /// # Panics
    ///
    /// Panics if the primitive belongs to another backend, which means that one model mixes
    /// backends.
    pub fn take<T: 'static>(self) -> T {
        match self.0.downcast::<T>() {
            Ok(primitive) => *primitive,
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
