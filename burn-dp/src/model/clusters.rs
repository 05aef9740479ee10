//! Optimal clusters of numbers.

/// Returns the cluster of each value, of at most `count`: sorted by value, they are split so that
/// the sum of squared deviations of the logarithms is minimal.
///
/// # Arguments
///
/// - `values`: positive and finite
pub(super) fn clusters(values: &[f64], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let sorted: Vec<f64> = order.iter().map(|&group| values[group].ln()).collect();
    let mut label = vec![0; values.len()];
    for (part, range) in least_squares_parts(&sorted, count).into_iter().enumerate() {
        range.for_each(|position| label[order[position]] = part);
    }
    label
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
