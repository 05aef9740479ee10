//! Maxima over the patterns of participation: at most `times` steps, at least `separation` apart,
//! or exactly `separation` apart in a fixed order.

/// The participations of one unit in `steps` steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patterns {
    pub(super) steps: usize,
    pub(super) times: usize,
    pub(super) separation: usize,
    /// Whether the steps of a unit are all steps of one class modulo `separation`.
    pub(super) in_fixed_order: bool,
}

impl Patterns {
    /// Returns the patterns of the first `steps` steps. `times` is lowered to the number that fits.
    pub(super) fn new(steps: usize, times: u64, separation: u64) -> Self {
        let separation = usize::try_from(separation).unwrap_or(usize::MAX).max(1);
        let fits = steps.div_ceil(separation);
        let times = usize::try_from(times).unwrap_or(usize::MAX).min(fits);
        Self { steps, times, separation, in_fixed_order: false }
    }

    /// Returns the patterns of the first `steps` steps in which a unit takes part exactly every
    /// `period` steps.
    pub(super) fn in_fixed_order(steps: usize, period: u64) -> Self {
        Self { in_fixed_order: true, ..Self::new(steps, u64::MAX, period) }
    }

    /// Returns the patterns of a run of another length.
    pub(super) fn with_steps(&self, steps: usize) -> Self {
        let separation = self.separation as u64;
        match self.in_fixed_order {
            true => Self::in_fixed_order(steps, separation),
            false => Self::new(steps, self.times as u64, separation),
        }
    }

    /// Returns the sum of the values at the steps of the class of `step`.
    fn sum_of_class(&self, step: usize, values: &[f64]) -> f64 {
        values.iter().skip(step % self.separation).step_by(self.separation).sum()
    }

    /// Returns whether only the separation limits the number of participations.
    fn is_limited_by_separation_alone(&self) -> bool {
        self.times >= self.steps.div_ceil(self.separation)
    }

    /// Returns the order of the number of operations of [`largest_sum`](Self::largest_sum).
    pub(super) fn work_of_sum(&self) -> usize {
        let rounds = if self.is_limited_by_separation_alone() { 1 } else { self.times };
        self.steps.saturating_mul(rounds)
    }

    /// Returns the largest number of participations in `length` consecutive steps.
    pub(super) fn within(&self, length: usize) -> usize {
        length.div_ceil(self.separation).min(self.times)
    }

    /// Returns `best[m][i]`: the largest sum of at most `m` values at allowed steps below `i`. If
    /// only the separation limits the number, there is one line, for all `m`.
    fn best_before(&self, values: impl Fn(usize) -> f64) -> Vec<Vec<f64>> {
        let alone = self.is_limited_by_separation_alone();
        let mut lines: Vec<Vec<f64>> = vec![vec![0.0; self.steps + 1]];
        for m in 1..=if alone { 1 } else { self.times } {
            let mut line = vec![0.0; self.steps + 1];
            for i in 0..self.steps {
                let before = (i + 1).saturating_sub(self.separation);
                let rest = if alone { line[before] } else { lines[m - 1][before] };
                line[i + 1] = f64::max(line[i], values(i) + rest);
            }
            lines.push(line);
        }
        if alone {
            lines.swap_remove(0);
        }
        lines
    }

    /// Returns the largest sum of non-negative values at the steps of one pattern.
    pub(super) fn largest_sum(&self, values: &[f64]) -> f64 {
        if self.in_fixed_order {
            let classes = 0..self.separation.min(self.steps);
            return classes.map(|first| self.sum_of_class(first, values)).fold(0.0, f64::max);
        }
        let lines = self.best_before(|i| values[i]);
        lines.last().and_then(|line| line.last()).copied().unwrap_or(0.0)
    }

    /// Returns an upper bound on `Σ_{i,j ∈ π} gram[i, j]` over all patterns π, for a symmetric
    /// matrix without negative entries: the sum over `i ∈ π` of the largest sum of row `i` over all
    /// patterns that contain `i`.
    pub(super) fn largest_quadratic_bound(&self, gram: &[f64]) -> f64 {
        let n = self.steps;
        let rows: Vec<f64> =
            (0..n).map(|i| self.largest_sum_with(i, &gram[i * n..(i + 1) * n])).collect();
        self.largest_sum(&rows)
    }

    /// Returns the number of patterns with at least one step.
    pub(super) fn number(&self) -> f64 {
        if self.in_fixed_order {
            return self.separation.min(self.steps) as f64;
        }
        let of_size = |m: usize| {
            // The pauses between the steps are left out.
            let free = self.steps - (m - 1) * (self.separation - 1);
            (0..m).map(|j| (free - j) as f64 / (m - j) as f64).product::<f64>()
        };
        (1..=self.times).map(of_size).sum()
    }

    /// Returns the largest `Σ_{i,j ∈ π} gram[i, j]` over all patterns π of a symmetric matrix
    /// without negative entries, by trying all [`number`](Self::number) patterns. Not for a fixed
    /// order, where [`largest_quadratic_bound`](Self::largest_quadratic_bound) is attained.
    pub(super) fn largest_quadratic(&self, gram: &[f64]) -> f64 {
        let n = self.steps;
        let mut largest = 0.0f64;
        // The steps of a pattern, and the sums of its beginnings.
        let (mut pattern, mut sums) = (Vec::new(), vec![0.0]);
        let mut next = 0;
        loop {
            if next < n && pattern.len() < self.times {
                let row = &gram[next * n..(next + 1) * n];
                let others: f64 = pattern.iter().map(|&step: &usize| row[step]).sum();
                let sum = sums[pattern.len()] + row[next] + 2.0 * others;
                largest = largest.max(sum);
                pattern.push(next);
                sums.push(sum);
                next += self.separation;
            } else if let Some(last) = pattern.pop() {
                sums.pop();
                next = last + 1;
            } else {
                return largest;
            }
        }
    }

    /// Returns the largest sum over the patterns that contain step `i`.
    fn largest_sum_with(&self, i: usize, values: &[f64]) -> f64 {
        if self.in_fixed_order {
            return self.sum_of_class(i, values);
        }
        let n = self.steps;
        let before = self.best_before(|j| values[j]);
        let after = self.best_before(|j| values[n - 1 - j]);
        let first = (i + 1).saturating_sub(self.separation);
        let last = (n - i).saturating_sub(self.separation);
        let rest = if before.len() == 1 {
            before[0][first] + after[0][last]
        } else {
            let others = self.times - 1;
            (0..=others).map(|m| before[m][first] + after[others - m][last]).fold(0.0, f64::max)
        };
        values[i] + rest
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns all patterns with at least one step.
    pub(in super::super) fn all(patterns: Patterns) -> Vec<Vec<usize>> {
        if patterns.in_fixed_order {
            let Patterns { steps, separation, .. } = patterns;
            let class = |first: usize| (first..steps).step_by(separation).collect();
            return (0..separation.min(steps)).map(class).collect();
        }
        let mut found = Vec::new();
        let mut open: Vec<Vec<usize>> = (0..patterns.steps).map(|i| vec![i]).collect();
        while let Some(pattern) = open.pop() {
            if pattern.len() < patterns.times {
                let next = pattern[pattern.len() - 1] + patterns.separation;
                open.extend((next..patterns.steps).map(|i| [&pattern[..], &[i]].concat()));
            }
            found.push(pattern);
        }
        found
    }

    #[test]
    fn largest_sums_agree_with_all_patterns() {
        let value = |i: usize| ((i * 7919 + 13) % 101) as f64;
        for (steps, times, separation) in [(9, 3, 2), (10, 9, 3), (7, 2, 1), (5, 1, 1), (8, 3, 9)] {
            let free = Patterns::new(steps, times, separation);
            for patterns in [free, Patterns::in_fixed_order(steps, separation)] {
                let values: Vec<f64> = (0..steps).map(value).collect();
                let sum = |pattern: &Vec<usize>| pattern.iter().map(|&i| values[i]).sum::<f64>();
                let all = all(patterns);
                assert_eq!(patterns.number(), all.len() as f64, "{patterns:?}");
                let largest = all.iter().map(sum).fold(0.0, f64::max);
                assert_eq!(patterns.largest_sum(&values), largest, "{patterns:?}");
                for i in 0..steps {
                    let with = all.iter().filter(|pattern| pattern.contains(&i)).map(sum);
                    let largest = with.fold(0.0, f64::max);
                    assert_eq!(patterns.largest_sum_with(i, &values), largest, "{patterns:?} {i}");
                }
            }
        }
    }
}
