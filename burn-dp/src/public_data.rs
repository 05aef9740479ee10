use crate::DpError;

/// A named source of public data: the only way to create [`PublicData`].
///
/// # Privacy
///
/// A declaration, which no program can check: everything that is computed from the data is used
/// without noise. A held-out part of the private data set is as private as the rest. The privacy
/// statement names the source.
///
/// # Example
///
/// ```
/// use burn_dp::PublicSource;
///
/// # fn main() -> Result<(), burn_dp::DpError> {
/// let reviews = PublicSource::published("Large Movie Review Dataset").data(vec!["good", "bad"])?;
/// assert_eq!(reviews.to_string(), "Large Movie Review Dataset (published, 2 items)");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicSource {
    name: String,
    kind: &'static str,
}

impl PublicSource {
    /// Names a data set that anyone can read, and that is not part of the private data.
    pub fn published(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: "published" }
    }

    /// Names data that a program generated without private data, for example synthetic images.
    pub fn generated(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: "generated" }
    }

    /// Names data of people who agreed that it needs no protection.
    pub fn consented(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: "consented" }
    }

    /// Names data of people whom the guarantee does not cover, for example users of the data set
    /// who are held out for the evaluation. Tell them.
    pub fn not_protected(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: "not protected" }
    }

    /// Returns the public items of this source.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the name is blank, or has a line break or a
    /// semicolon, or if there is no item.
    pub fn data<T>(self, items: Vec<T>) -> Result<PublicData<T>, DpError> {
        let origin = self.origin(items.len())?;
        Ok(PublicData { origin, items })
    }

    /// Returns the description of `size` items of this source.
    pub(crate) fn origin(self, size: usize) -> Result<String, DpError> {
        let is_one_line = |c: char| !c.is_control() && c != ';';
        if self.name.trim().is_empty() || !self.name.chars().all(is_one_line) {
            return Err(DpError::invalid(
                "name",
                format!(
                    "must be one line without a semicolon, because the privacy statement contains \
                     it, got {:?}",
                    self.name
                ),
            ));
        }
        if size == 0 {
            return Err(DpError::invalid(
                "items",
                format!(
                    "must have at least one item, and {} has none; give another source, or use a \
                     clipping policy without public data",
                    self.name
                ),
            ));
        }
        let items = if size == 1 { "item" } else { "items" };
        Ok(format!("{} ({}, {size} {items})", self.name, self.kind))
    }
}

/// Returns the description of public data that was read from a file, if it has a name, a kind and a
/// size. The name may contain further descriptions.
pub(crate) fn checked_origin(text: String) -> Result<String, DpError> {
    let described = || {
        let (name, rest) = text.strip_suffix(')')?.rsplit_once(" (")?;
        let (kind, items) = rest.split_once(", ")?;
        let known = ["published", "generated", "consented", "not protected"];
        let kind = known.into_iter().find(|&known| known == kind);
        let size = items.split(' ').next()?.parse().ok()?;
        PublicSource { name: name.into(), kind: kind? }.origin(size).ok()
    };
    if described().as_ref() == Some(&text) {
        return Ok(text);
    }
    let reason = format!(
        "must be the name, kind and size of a public source, as it was saved, got {text:?}"
    );
    Err(DpError::invalid("public_data", reason))
}

/// Items that need no protection, with the name of their source and their number; created by
/// [`PublicSource::data`]. It is displayed as in the privacy statement.
///
/// [`PublicNorms`](crate::clipping::PublicNorms) and
/// [`public_statistics`](crate::updates::public_statistics) accept nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct PublicData<T> {
    origin: String,
    items: Vec<T>,
}

impl<T> PublicData<T> {
    /// Returns the items, at least one.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// Returns the items in batches of at most `size`, and of at least one. The description still
    /// has the number of single items.
    pub fn batches(&self, size: usize) -> PublicData<Vec<T>>
    where
        T: Clone,
    {
        let items = self.items.chunks(size.max(1)).map(<[T]>::to_vec).collect();
        PublicData { origin: self.origin.clone(), items }
    }

    /// Returns the result of `of` for each item, with the same description.
    pub fn map<U>(self, of: impl FnMut(T) -> U) -> PublicData<U> {
        PublicData { origin: self.origin, items: self.items.into_iter().map(of).collect() }
    }

    /// Keeps the first `len` items, and at least one. The description still has the number of all
    /// items, because all of them were declared public.
    pub fn truncated(mut self, len: usize) -> Self {
        self.items.truncate(len.max(1));
        self
    }

    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }
}

impl<T> std::fmt::Display for PublicData<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.origin)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn public_data_is_named_with_its_size() {
        for (source, kind) in [
            (PublicSource::published("letters"), "published"),
            (PublicSource::generated("letters"), "generated"),
            (PublicSource::consented("letters"), "consented"),
            (PublicSource::not_protected("letters"), "not protected"),
        ] {
            let data = source.data(vec![1, 2, 3]).unwrap();
            assert_eq!(data.to_string(), format!("letters ({kind}, 3 items)"));
            assert_eq!(checked_origin(data.to_string()).unwrap(), data.to_string());
            let batches = data.batches(2);
            assert_eq!(batches.to_string(), data.to_string());
            assert_eq!(batches.items(), [vec![1, 2], vec![3]]);
            let first = batches.truncated(0);
            assert_eq!((first.to_string(), first.items().len()), (data.to_string(), 1));
        }
    }

    #[test]
    fn a_source_without_a_name_or_items_is_refused() {
        for name in ["", " ", "two\nlines", "two; names"] {
            let error = PublicSource::published(name).data(vec![1]).unwrap_err().to_string();
            assert!(error.contains("name must be one line"), "{error}");
        }
        let error = PublicSource::published("letters").data::<u8>(vec![]).unwrap_err().to_string();
        assert!(error.contains("letters has none") && error.contains("without public"), "{error}");
    }
}
