//! `Debug` of types that hold private or secret values.

/// Implements `Debug`, which shows the given values and leaves out all others.
macro_rules! opaque_debug {
    (
        $type:ident $(<$($parameter:ident),+>)?
        $(, |$this:ident| $($field:ident: $value:expr),+)?
    ) => {
        impl $(<$($parameter),+>)? std::fmt::Debug for $type $(<$($parameter),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(let $this = self;)?
                f.debug_struct(stringify!($type))
                    $($(.field(stringify!($field), &$value))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}
