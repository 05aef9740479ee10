use crate::updates::UnitUpdate;

/// The result of a closure for units: an update, or an update and the output for metrics.
pub trait UnitOutput<O>: sealed::Sealed {
    #[doc(hidden)]
    fn into_parts(self) -> (UnitUpdate, Option<O>);
}

impl<O> UnitOutput<O> for UnitUpdate {
    fn into_parts(self) -> (UnitUpdate, Option<O>) {
        (self, None)
    }
}

impl<O> UnitOutput<O> for (UnitUpdate, O) {
    fn into_parts(self) -> (UnitUpdate, Option<O>) {
        (self.0, Some(self.1))
    }
}

mod sealed {
    use crate::updates::UnitUpdate;

    pub trait Sealed {}

    impl Sealed for UnitUpdate {}

    impl<O> Sealed for (UnitUpdate, O) {}
}
