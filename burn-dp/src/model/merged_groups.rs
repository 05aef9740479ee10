//! Merging of groups with similar norms.

use std::collections::BTreeMap;

use crate::DpError;
use crate::error::positive;
use crate::model::ParameterGroups;

impl ParameterGroups {
    /// Merges groups with similar norms into at most `count` groups: sorted by norm, they are split
    /// so that the sum of squared deviations of the logarithms is minimal.
    ///
    /// # Arguments
    ///
    /// - `norms`: the norm of each group
    /// - `origin`: the public data that the norms were measured on
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if there is not one norm for each group, if a norm is
    /// not positive and finite, or if `count` is 0.
    pub(crate) fn merged_by_norm(
        &self,
        norms: &[f64],
        count: usize,
        origin: &str,
    ) -> Result<Self, DpError> {
        if norms.len() != self.len() {
            let reason =
                format!("must be one for each of {} groups, got {}", self.len(), norms.len());
            return Err(DpError::invalid("norms", reason));
        }
        norms.iter().try_for_each(|&norm| positive("norms", norm))?;
        if count == 0 {
            return Err(DpError::invalid("count", "must be at least 1, got 0"));
        }
        let mut order: Vec<usize> = (0..norms.len()).collect();
        order.sort_by(|&a, &b| norms[a].total_cmp(&norms[b]));
        let sorted: Vec<f64> = order.iter().map(|&group| norms[group].ln()).collect();
        // Merged groups are in the order of their first members.
        let mut label = vec![0; norms.len()];
        for (part, range) in least_squares_parts(&sorted, count).into_iter().enumerate() {
            range.for_each(|position| label[order[position]] = part);
        }
        let mut names: Vec<String> = Vec::new();
        let mut new_of: Vec<usize> = Vec::with_capacity(norms.len());
        let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
        for (name, part) in self.names.iter().zip(label) {
            let index = *seen.entry(part).or_insert_with(|| {
                names.push(String::new());
                names.len() - 1
            });
            new_of.push(index);
            if !names[index].is_empty() {
                names[index].push('+');
            }
            names[index].push_str(name);
        }
        let of = self
            .of
            .as_ref()
            .map(|of| of.iter().map(|(path, &group)| (path.clone(), new_of[group])).collect());
        let origin = match &self.origin {
            Some(before) if before != origin => format!("{before} and {origin}"),
            _ => origin.to_string(),
        };
        Ok(Self { names, of, origin: Some(origin) })
    }
}

/// Splits sorted values into at most `count` ranges so that the sum of squared deviations from the
/// means of the ranges is minimal.
fn least_squares_parts(sorted: &[f64], count: usize) -> Vec<std::ops::Range<usize>> {
    let n = sorted.len();
    let count = count.min(n);
    let cost = |start: usize, end: usize| {
        let part = &sorted[start..end];
        let mean = part.iter().sum::<f64>() / part.len() as f64;
        part.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
    };
    // best[k][end]: minimum cost of the first `end` values in k + 1 parts, and start of the last
    // part.
    let impossible = (f64::INFINITY, 0);
    let first = (0..=n).map(|end| if end == 0 { impossible } else { (cost(0, end), 0) });
    let mut best: Vec<Vec<(f64, usize)>> = vec![first.collect()];
    while best.len() < count {
        let k = best.len();
        let before = &best[k - 1];
        let least = |end: usize| {
            let cuts = (k..end).map(|start| (before[start].0 + cost(start, end), start));
            cuts.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or(impossible)
        };
        let row = (0..=n).map(least).collect();
        best.push(row);
    }
    let (mut end, mut ranges) = (n, Vec::new());
    for row in best.iter().rev() {
        let start = row[end].1;
        ranges.push(start..end);
        end = start;
    }
    ranges.reverse();
    ranges
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::model::groups::three_groups;

    #[test]
    fn groups_are_cut_at_the_gaps_between_norms() {
        let layers = three_groups();
        let merge = |norms: &[f64], count| layers.merged_by_norm(norms, count, "drawings");
        let merged = merge(&[10.0, 0.1, 9.0], 2).unwrap();
        assert_eq!(merged.public_data(), Some("drawings"));
        assert_eq!(merged.names(), ["a+c", "b"]);
        assert_eq!(merged.index_of("c").unwrap(), 0);
        assert_eq!(merge(&[1.0, 1.0, 1.0], 9).unwrap().len(), 3);
        assert_eq!(merge(&[1.0, 2.0, 3.0], 1).unwrap().len(), 1);
        assert!(merge(&[1.0, 0.0, 3.0], 2).is_err());
        assert!(merge(&[1.0], 2).is_err());
    }
}
