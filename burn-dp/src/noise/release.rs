//! The release of many sums, on several threads and with the vector unit of the machine.

use std::sync::atomic::{AtomicBool, Ordering};

use pulp::{Arch, Simd, WithSimd};
use zeroize::Zeroize;

use super::ahead::{NoiseAhead, PIECE_GROUPS, PIECE_VALUES, Piece};
use super::correlated_step::{CorrelatedParameter, Correlation, Values};
use super::grid::Grid;
use super::standard_normal::NormalGroup;
use crate::random::{GROUP_WORDS, Keystream, Stream, share};

/// Number of groups that one task computes.
const TASK_GROUPS: usize = 32;
/// Number of values that one task computes.
pub(super) const TASK_VALUES: usize = TASK_GROUPS * GROUP_WORDS;
/// A release of at most this many values whose noise was drawn ahead runs on the calling thread,
/// because waking another one takes longer.
const SINGLE_THREAD_VALUES: usize = 1 << 19;

/// The sums of one parameter, with the source of their noise and what correlates it.
pub(super) type GridSums<'a> = (Grid, Stream, &'a mut [f32], Option<CorrelatedParameter<'a>>);

/// Replaces the sums of each parameter with their noisy, scaled values.
///
/// Returns whether all sums were finite. If not, all of them are set to zero.
///
/// # Arguments
///
/// - `parameters`: each with the state that combines its noise with the noise of earlier steps, on
///   the host
pub(super) fn release(parameters: Vec<GridSums<'_>>, ahead: Option<&NoiseAhead>) -> bool {
    let (mut jobs, mut sums, mut correlated) = (Vec::new(), Vec::new(), Vec::new());
    let (mut drawn, mut to_draw) = (0, 0);
    for (grid, stream, values, parameter) in parameters {
        let pieces = ahead.and_then(|ahead| ahead.pieces(&stream, values.len()));
        *if pieces.is_some() { &mut drawn } else { &mut to_draw } += values.len();
        jobs.push((grid, stream.into_keystream(), pieces));
        sums.push(values);
        correlated.push(parameter);
    }
    let is_correlated = correlated.iter().any(Option::is_some);
    let mut tasks = Vec::new();
    let parameters = jobs.iter().zip(&mut sums).zip(&mut correlated);
    for ((&(grid, ref keystream, pieces), sums), correlated) in parameters {
        let groups = if pieces.is_some() { PIECE_GROUPS } else { TASK_GROUPS };
        let mut correlated = correlated.as_mut().map(|parameter| parameter.parts(groups));
        let mut correlation = || correlated.as_mut().and_then(Iterator::next);
        match pieces {
            Some(pieces) => {
                let parts = sums.chunks_mut(PIECE_VALUES).zip(pieces);
                tasks.extend(parts.map(|(values, piece)| {
                    let noise = Noise::Ahead(piece);
                    Task { grid, noise, correlation: correlation(), values }
                }));
            }
            None => {
                let parts = sums.chunks_mut(TASK_VALUES).zip((0..).step_by(TASK_GROUPS));
                tasks.extend(parts.map(|(values, first)| {
                    let noise = Noise::Stream { keystream, first };
                    Task { grid, noise, correlation: correlation(), values }
                }));
            }
        }
    }
    // The threads that draw ahead begin with the first values; this one begins with the last.
    tasks.reverse();
    let finite = AtomicBool::new(true);
    let run = |task: Task| {
        finite.fetch_and(task.run(), Ordering::Relaxed);
    };
    if to_draw == 0 && drawn <= SINGLE_THREAD_VALUES && !is_correlated {
        tasks.into_iter().for_each(run);
    } else {
        share(tasks, run);
    }
    let finite = finite.into_inner();
    if !finite {
        sums.iter_mut().for_each(|sums| sums.zeroize());
    }
    finite
}

/// Some values of one parameter.
struct Task<'a> {
    grid: Grid,
    noise: Noise<'a>,
    correlation: Option<Correlation<'a>>,
    values: &'a mut [f32],
}

/// Where the noise of a task comes from.
enum Noise<'a> {
    /// Drawn by the task, from group `first` on.
    Stream { keystream: &'a Keystream, first: u64 },
    /// Drawn ahead.
    Ahead(&'a Piece),
}

impl Task<'_> {
    /// Returns whether all sums were finite.
    ///
    /// Not inlined, so that there is one compiled instance for all calls.
    #[inline(never)]
    fn run(self) -> bool {
        Arch::new().dispatch(self)
    }
}

impl WithSimd for Task<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        if let Some(correlation) = self.correlation {
            return release_correlated(simd, self.grid, &self.noise, correlation, self.values);
        }
        match self.noise {
            Noise::Ahead(piece) => self.grid.release(self.values, piece.normal()),
            Noise::Stream { keystream, first } => {
                let (grid, mut finite) = (self.grid, true);
                let mut group = NormalGroup::new();
                group.draw_all(simd, keystream, first, self.values, |values, normal| {
                    // The loop is compiled for whole groups, and once more for the rest.
                    finite &= match <&mut [f32; GROUP_WORDS]>::try_from(&mut *values) {
                        Ok(values) => grid.release(values, normal),
                        Err(_) => grid.release(values, normal),
                    };
                });
                finite
            }
        }
    }
}

/// Releases values with correlated noise. Returns whether all sums were finite.
#[inline(always)]
fn release_correlated<S: Simd>(
    simd: S,
    grid: Grid,
    noise: &Noise<'_>,
    mut correlation: Correlation<'_>,
    sums: &mut [f32],
) -> bool {
    let (mut group, mut noises) = (NormalGroup::new(), Values([0; GROUP_WORDS]));
    let mut finite = true;
    for (index, sums) in sums.chunks_mut(GROUP_WORDS).enumerate() {
        let normal: &[i64] = match *noise {
            Noise::Ahead(piece) => &piece.normal()[index * GROUP_WORDS..][..sums.len()],
            Noise::Stream { keystream, first } => group.draw(simd, keystream, first + index as u64),
        };
        noises.0[..normal.len()].copy_from_slice(normal);
        // Even if a sum is not finite: the noise of later steps contains the noise of this one.
        correlation.group(simd, index, &mut noises);
        finite &= grid.release_any(sums, &noises.0);
    }
    finite
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::random::{InsecureSeed, NoiseSource, Purpose, architectures};

    fn stream() -> Stream {
        let mut source = NoiseSource::insecure(InsecureSeed(1));
        source.begin_step(Purpose::Gradient, 0).unwrap().stream(0).unwrap()
    }

    fn sums(length: usize) -> Vec<f32> {
        (0..length).map(|i| ((i * 7919) % 1000) as f32 * 0.013 - 6.5).collect()
    }

    fn released(sums: &[f32]) -> Vec<u32> {
        let mut values = sums.to_vec();
        assert!(release(vec![(Grid::new(1.1, 0.01), stream(), &mut values, None)], None));
        bits(&values)
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    #[test]
    fn a_release_does_not_depend_on_threads_or_length() {
        let sums = sums(5 * TASK_VALUES + 77);
        let reference = released(&sums);
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert!(pool.install(|| released(&sums)) == reference);
        }
        for length in [0, 1, 15, 16, 17, 127, 128, 129, 1000, TASK_VALUES, TASK_VALUES + 1] {
            assert!(released(&sums[..length]) == reference[..length], "{length}");
        }
    }

    #[test]
    fn a_release_does_not_depend_on_the_vector_unit() {
        let sums = sums(TASK_VALUES - 5);
        let reference = released(&sums);
        for arch in architectures() {
            let mut values = sums.clone();
            let keystream = stream().into_keystream();
            assert!(arch.dispatch(Task {
                grid: Grid::new(1.1, 0.01),
                noise: Noise::Stream { keystream: &keystream, first: 0 },
                correlation: None,
                values: &mut values,
            }));
            assert!(bits(&values) == reference, "{arch:?}");
        }
    }

    #[test]
    fn sums_that_are_not_finite_are_reported_and_erased() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for (length, at) in [(1, 0), (300, 299), (3 * TASK_VALUES, 2 * TASK_VALUES + 5)] {
                let mut values = vec![1.0; length];
                values[at] = bad;
                assert!(!release(vec![(Grid::new(1.0, 1.0), stream(), &mut values, None)], None));
                assert!(values.iter().all(|&value| value == 0.0));
            }
        }
    }
}
