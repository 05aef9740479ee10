//! The lower convex hull of a piecewise linear hockey-stick divergence, on its masses.

/// Replaces the divergence `α -> Σ m_i (1 - α/α_i)^+`, `α_i = e^{i·width}`, of signed masses by a
/// lower one with non-negative masses on the same grid. The result is nowhere above the larger of
/// the original and 0.
///
/// A negative mass is a concave kink. The chord between its neighbors, which lies below, replaces
/// it (Graham's scan). The leftmost point is joined to `α = 0`, where a kink has no effect.
///
/// Returns the number of kinks that were removed: each adds to the mass of its neighbors, which
/// rounds them once.
pub(crate) fn lower_hull(mass: &mut [f64], width: f64) -> usize {
    if mass.iter().all(|&m| m >= 0.0) {
        return 0;
    }
    let mut removed = 0;
    let size = mass.len();
    let mut hull: Vec<usize> = Vec::with_capacity(size);
    for next in 0..size {
        if mass[next] == 0.0 && next + 1 < size {
            continue;
        }
        while let Some(&top) = hull.last() {
            if mass[top] >= 0.0 {
                break;
            }
            hull.pop();
            let below = hull.last().copied();
            remove(mass, below, top, next, width);
            removed += 1;
        }
        hull.push(next);
    }
    removed + close_at_zero(mass, &hull, width)
}

/// Removes the kink at `middle` by the chord between `left` (or `α = 0`) and `right`.
fn remove(mass: &mut [f64], left: Option<usize>, middle: usize, right: usize, width: f64) {
    let moved = std::mem::replace(&mut mass[middle], 0.0);
    let share = left.map_or(0.0, |left| {
        let a = (middle - left) as f64 * width;
        let b = (right - middle) as f64 * width;
        // e^{-a} (e^b - 1)/(e^b - e^{-a}), free of overflow.
        (-a).exp() * -(-b).exp_m1() / -(-(a + b)).exp_m1()
    });
    if let Some(left) = left {
        mass[left] += moved * share;
    }
    mass[right] += moved * (1.0 - share);
}

/// Makes the right end non-negative: a chord that reaches 0 one grid point earlier replaces the
/// negative part of the divergence. Returns the number of kinks that were removed.
fn close_at_zero(mass: &mut [f64], hull: &[usize], width: f64) -> usize {
    let Some(&last) = hull.last() else { return 0 };
    if mass[last] >= 0.0 {
        return 0;
    }
    // Value of the divergence at grid point i, from the right: v_i = Σ_{j>i} m_j (1 - e^{-(j-i)h}),
    // hence v_i = e^-h v_{i+1} + (1 - e^-h) Σ_{j>i} m_j.
    let (shrink, shrunk) = ((-width).exp(), -(-width).exp_m1());
    let (mut total, mut value) = (0.0, 0.0);
    let mut values = Vec::new();
    let mut zero_at = None;
    for i in (0..last).rev() {
        total += mass[i + 1];
        value = shrink * value + shrunk * total;
        values.push(value);
        // Two values in a row are needed: at the new end and one point before it.
        if values.len() >= 2 && values[values.len() - 2] > 0.0 {
            zero_at = Some((i + 1, values[values.len() - 2], value));
            break;
        }
    }
    let Some((end, value_end, value_before)) = zero_at else {
        mass.fill(0.0);
        return 0;
    };
    mass[end..].fill(0.0);
    let before = end - 1;
    // In masses under P: Q-mass times α.
    mass[end] = value_before / shrunk;
    mass[before] -= value_end / width.exp_m1();
    let mut kept: Vec<usize> = hull.iter().copied().filter(|&i| i < before).collect();
    let mut removed = 0;
    if mass[before] < 0.0 {
        removed += 1;
        remove(mass, kept.last().copied(), before, end, width);
        while let Some(&top) = kept.last() {
            if mass[top] >= 0.0 {
                break;
            }
            kept.pop();
            removed += 1;
            remove(mass, kept.last().copied(), top, end, width);
        }
    }
    // Remaining negative masses are rounding of a removed kink.
    for m in mass.iter_mut() {
        if *m < 0.0 {
            *m = 0.0;
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divergence(mass: &[f64], width: f64, alpha: f64) -> f64 {
        let terms = mass
            .iter()
            .enumerate()
            .map(|(i, m)| m * (1.0 - alpha * (-(i as f64) * width).exp()).max(0.0));
        terms.sum()
    }

    #[test]
    fn hull_is_a_nonnegative_lower_bound_of_the_signed_divergence() {
        let width = 0.3;
        let cases: [&[f64]; 5] = [
            &[0.1, 0.3, -0.05, 0.4, 0.2],
            &[0.1, 0.3, 0.4, 0.2, -0.05],
            &[-0.1, 0.3, 0.4, -0.2, 0.1],
            &[0.2, -0.3, 0.1, 0.5, -0.2],
            &[0.5, 0.5, -0.4, 0.3, 0.1],
        ];
        for signed in cases {
            let mut hull = signed.to_vec();
            lower_hull(&mut hull, width);
            assert!(hull.iter().all(|&m| m >= 0.0), "{signed:?} -> {hull:?}");
            assert!(hull.iter().sum::<f64>() > 0.0, "{signed:?} became nothing");
            for k in 0..60 {
                let alpha = 0.05 * f64::from(k);
                let (new, old) =
                    (divergence(&hull, width, alpha), divergence(signed, width, alpha));
                assert!(new <= old.max(0.0) + 1e-15, "{signed:?} -> {hull:?} at {alpha}");
            }
        }
    }
}
