//! Fewer groups from norms that are alike.

use std::collections::BTreeMap;

use crate::DpError;
use crate::error::positive;
use crate::model::ParameterGroups;

impl ParameterGroups {
    /// Merges groups of similar norms into at most `count`: fewer groups are less noise in each.
    ///
    /// The groups are sorted by norm and cut where the sum of squared deviations of the logarithms
    /// within the parts is least, which is found exactly.
    ///
    /// # Arguments
    ///
    /// - `norms`: one norm for each group, from public data
    ///
    /// # Errors
    ///
    /// Refuses another number of norms than groups, a norm that is not positive and finite, and a
    /// count of zero.
    ///
    /// # References
    ///
    /// Nguyen et al., Batch clipping and adaptive layerwise clipping for differential private
    /// stochastic gradient descent, 2023, appendix B.2 (62 layers to about 4 groups).
    pub fn merged_by_norm(&self, norms: &[f64], count: usize) -> Result<Self, DpError> {
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
        // Merged groups keep the order of the first of their members in the model.
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
        Ok(Self { names, of })
    }
}

/// Cuts sorted values into at most `count` ranges with the least sum of squared deviations from their
/// means.
fn least_squares_parts(sorted: &[f64], count: usize) -> Vec<std::ops::Range<usize>> {
    let n = sorted.len();
    let count = count.min(n);
    let cost = |start: usize, end: usize| {
        let part = &sorted[start..end];
        let mean = part.iter().sum::<f64>() / part.len() as f64;
        part.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
    };
    // best[k][end]: least cost of the first `end` values in k + 1 parts, and where the last begins.
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
    fn similar_norms_are_merged_where_the_gaps_are() {
        let layers = three_groups();
        let merged = layers.merged_by_norm(&[10.0, 0.1, 9.0], 2).unwrap();
        assert_eq!(merged.names(), ["a+c", "b"]);
        assert_eq!(merged.index_of("c").unwrap(), 0);
        assert_eq!(layers.merged_by_norm(&[1.0, 1.0, 1.0], 9).unwrap().len(), 3);
        assert_eq!(layers.merged_by_norm(&[1.0, 2.0, 3.0], 1).unwrap().len(), 1);
        assert!(layers.merged_by_norm(&[1.0, 0.0, 3.0], 2).is_err());
        assert!(layers.merged_by_norm(&[1.0], 2).is_err());
    }
}
