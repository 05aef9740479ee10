//! Noise that is drawn before its sums are known.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use zeroize::Zeroizing;

use super::standard_normal::NormalGroup;
use crate::random::{GROUP_WORDS, Key, Keystream, NoiseSource, Purpose, Stream};

/// Groups in a piece: few, because the model's own work waits until a piece is drawn.
pub(super) const PIECE_GROUPS: usize = 8;
/// Values in a piece.
pub(super) const PIECE_VALUES: usize = PIECE_GROUPS * GROUP_WORDS;
/// Number of pieces that a task draws.
const TASK_PIECES: usize = 8;
/// Maximum number of values drawn ahead (32 MiB); the rest is drawn when it is needed.
const LIMIT: usize = 1 << 22;

/// The standard normal values of a step, which idle threads draw while the model computes.
///
/// The values are bit for bit the values of the step's streams, so drawing ahead changes only the
/// time that a release takes. The release draws every value that is not drawn yet.
///
/// # Privacy
///
/// The values are kept in memory between two steps and erased with it. Only a stream of the same
/// key uses them: a step whose noise is [bound](crate::random::NoiseStep::bound_to) to its sums has
/// another key, and its noise is drawn anew.
pub(crate) struct NoiseAhead {
    key: Key,
    /// Number of values and pieces of each parameter, in order.
    parameters: Vec<(usize, Range<usize>)>,
    pieces: Arc<Pieces>,
}

/// The pieces of all parameters, and the next one that no thread has started.
struct Pieces {
    pieces: Vec<Piece>,
    next: AtomicUsize,
}

/// Some consecutive values of one parameter.
pub(super) struct Piece {
    keystream: Arc<Keystream>,
    first_group: u64,
    values: usize,
    normal: OnceLock<Normal>,
    /// Memory for the values.
    memory: Mutex<Option<Normal>>,
}

/// Standard normal values in units of 2^-40.
type Normal = Zeroizing<Vec<i64>>;

impl NoiseAhead {
    /// Starts drawing the noise of a step, for parameters with `lengths` values each, in the memory
    /// of the previous step. Erases the values of the previous step.
    ///
    /// Returns `None` if the step can no longer begin, or if its noise will depend on its sums.
    pub(crate) fn begin(
        source: &NoiseSource,
        purpose: Purpose,
        step: u64,
        lengths: &[usize],
        previous: Option<NoiseAhead>,
    ) -> Option<Self> {
        let key = source.key_of_free_step(purpose, step)?;
        let previous = previous.and_then(|previous| Arc::into_inner(previous.pieces));
        let mut memory =
            previous.into_iter().flat_map(|previous| previous.pieces).map(Piece::into_normal);
        let (mut parameters, mut pieces, mut total) = (Vec::new(), Vec::new(), 0);
        for (parameter, &length) in (0..).zip(lengths) {
            total += length;
            if total > LIMIT {
                break;
            }
            let keystream = Arc::new(Keystream::new(key.bytes(), parameter));
            let begin = pieces.len();
            pieces.extend((0..length.div_ceil(PIECE_VALUES)).map(|piece| Piece {
                keystream: Arc::clone(&keystream),
                first_group: (piece * PIECE_GROUPS) as u64,
                values: (length - piece * PIECE_VALUES).min(PIECE_VALUES),
                normal: OnceLock::new(),
                memory: Mutex::new(memory.next().flatten()),
            }));
            parameters.push((length, begin..pieces.len()));
        }
        let pieces = Arc::new(Pieces { pieces, next: AtomicUsize::new(0) });
        // One thread belongs to the caller, which has a step to compute.
        let threads = rayon::current_num_threads().saturating_sub(1).max(1);
        for _ in 0..threads.min(pieces.pieces.len()) {
            let pieces = Arc::downgrade(&pieces);
            rayon::spawn(move || Pieces::draw(pieces));
        }
        Some(Self { key, parameters, pieces })
    }

    /// Returns the pieces of the `length` values of a stream, if they are drawn ahead.
    pub(super) fn pieces(&self, stream: &Stream, length: usize) -> Option<&[Piece]> {
        let (key, parameter) = stream.identity();
        let (drawn, pieces) = self.parameters.get(usize::try_from(parameter).ok()?)?;
        (*drawn == length && key.bytes() == self.key.bytes())
            .then(|| &self.pieces.pieces[pieces.clone()])
    }
}

impl Pieces {
    /// Draws some pieces, and leaves the others to a new task, until all are started or no release
    /// needs them. Between two tasks, a thread that waits for a part of the model's work learns
    /// that it is done.
    ///
    /// Between two pieces the thread does other work, which can be the pieces of another step.
    /// Their releases draw them instead; otherwise, on a busy machine, the draws of waiting steps
    /// would nest until the stack overflows.
    fn draw(weak: Weak<Self>) {
        thread_local! {
            static IS_DRAWING: Cell<bool> = const { Cell::new(false) };
        }
        if IS_DRAWING.replace(true) {
            return;
        }
        let is_left = Self::draw_some(&weak);
        IS_DRAWING.set(false);
        if is_left {
            rayon::spawn(move || Self::draw(weak));
        }
    }

    /// Draws some pieces. Returns whether others may be left.
    fn draw_some(weak: &Weak<Self>) -> bool {
        // One for all pieces, because creating and erasing it takes a part of the time of a piece.
        let mut group = NormalGroup::new();
        for _ in 0..TASK_PIECES {
            let Some(pieces) = weak.upgrade() else { return false };
            let Some(piece) = pieces.pieces.get(pieces.next.fetch_add(1, Ordering::Relaxed)) else {
                return false;
            };
            piece.normal.get_or_init(|| piece.draw(&mut group));
            drop(pieces);
            // The model's own work has priority.
            while rayon::yield_now() == Some(rayon::Yield::Executed) {}
        }
        true
    }
}

impl Piece {
    /// Returns the values. Draws them now if they are not drawn yet.
    pub(super) fn normal(&self) -> &[i64] {
        self.normal.get_or_init(|| self.draw(&mut NormalGroup::new()))
    }

    fn draw(&self, group: &mut NormalGroup) -> Normal {
        let memory = self.memory.lock().ok().and_then(|mut memory| memory.take());
        let mut normal = match memory {
            Some(normal) if normal.len() == self.values => normal,
            _ => Zeroizing::new(vec![0; self.values]),
        };
        group.fill(&self.keystream, self.first_group, &mut normal);
        normal
    }

    fn into_normal(self) -> Option<Normal> {
        self.normal.into_inner()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::noise::GaussianMechanism;
    use crate::noise::standard_normal::standard_normal;
    use crate::random::InsecureSeed;

    const LENGTHS: [usize; 5] = [2 * PIECE_VALUES + 77, 0, 1, PIECE_VALUES, LIMIT];

    /// Returns the release of a step whose sums are zeros.
    fn release(source: &mut NoiseSource, ahead: Option<&NoiseAhead>) -> Vec<Vec<f32>> {
        let mechanism = GaussianMechanism::new(1.5, 0.25).unwrap();
        let mut sums: Vec<Vec<f32>> = LENGTHS.iter().map(|&length| vec![0.0; length]).collect();
        let step = source.begin_step(Purpose::Gradient, 4).unwrap();
        let mut step = step.bound_to(sums.iter().map(Vec::as_slice));
        let parameters = (0..).zip(&mut sums).map(|(parameter, sums)| {
            (mechanism, step.stream(parameter).unwrap(), sums.as_mut_slice(), None)
        });
        GaussianMechanism::release_parameters(parameters.collect(), ahead).unwrap();
        sums
    }

    fn ahead(source: &NoiseSource) -> Option<NoiseAhead> {
        NoiseAhead::begin(source, Purpose::Gradient, 4, &LENGTHS, None)
    }

    fn twins() -> [NoiseSource; 2] {
        [0, 1].map(|_| NoiseSource::insecure(InsecureSeed(3)))
    }

    #[test]
    fn drawing_ahead_changes_no_bit_of_a_release() {
        let [mut one, mut other] = twins();
        let drawn = ahead(&one).unwrap();
        assert_eq!(drawn.parameters.len(), 4, "the last parameter is beyond the limit");
        assert_eq!(release(&mut one, Some(&drawn)), release(&mut other, None));
    }

    #[test]
    fn a_release_adds_the_noise_that_was_drawn_ahead() {
        // Otherwise the test above would pass for a program that draws everything twice.
        let [mut one, mut other] = twins();
        let mut drawn = ahead(&one).unwrap();
        for piece in &drawn.pieces.pieces {
            piece.normal();
        }
        let pieces = loop {
            if let Some(pieces) = Arc::get_mut(&mut drawn.pieces) {
                break pieces;
            }
            std::thread::yield_now();
        };
        pieces.pieces[0].normal = OnceLock::from(Zeroizing::new(vec![8 << 40; PIECE_VALUES]));
        let (with, without) = (release(&mut one, Some(&drawn)), release(&mut other, None));
        assert!(with[0][..PIECE_VALUES].iter().all(|&value| value == 8.0 * 1.5 * 0.25));
        assert_eq!(with[0][PIECE_VALUES..], without[0][PIECE_VALUES..]);
        assert_eq!(with[1..], without[1..]);
    }

    #[test]
    fn a_piece_does_not_use_memory_of_another_length() {
        let [mut source, _] = twins();
        let mut step = source.begin_step(Purpose::Gradient, 4).unwrap();
        let keystream = Arc::new(step.stream(0).unwrap().into_keystream());
        let mut expected = [0; 77];
        standard_normal(&keystream, 0, &mut expected);
        for length in [0, 76, 77, 78] {
            let piece = Piece {
                keystream: Arc::clone(&keystream),
                first_group: 0,
                values: expected.len(),
                normal: OnceLock::new(),
                memory: Mutex::new(Some(Zeroizing::new(vec![1; length]))),
            };
            assert_eq!(piece.normal(), expected);
        }
    }

    #[test]
    fn noise_drawn_ahead_is_not_used_once_the_key_was_exported() {
        let mut source = NoiseSource::from_os().unwrap();
        let drawn = ahead(&source).unwrap();
        let key = source.export_key();
        assert!(ahead(&source).is_none());
        let mut elsewhere = NoiseSource::resume(key, 4);
        assert!(ahead(&elsewhere).is_none());
        assert_eq!(release(&mut source, Some(&drawn)), release(&mut elsewhere, None));
        let mut bound = NoiseSource::resume(source.export_key(), 4);
        let mut bound = bound.begin_step(Purpose::Gradient, 4).unwrap().bound_to([]);
        let stream = bound.stream(0).unwrap();
        assert_ne!(stream.identity().0.bytes(), drawn.key.bytes(), "bound to the sums");
    }

    #[test]
    fn steps_that_wait_for_a_thread_are_not_drawn_inside_of_each_other() {
        const WAITING: u64 = 2_000;
        // The stack has room for the frames of a few dozen steps.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).stack_size(1 << 18);
        let pool = pool.build().unwrap();
        let source = NoiseSource::insecure(InsecureSeed(3));
        let begin = |step| {
            let lengths = [2 * PIECE_VALUES];
            NoiseAhead::begin(&source, Purpose::Gradient, step, &lengths, None).unwrap()
        };
        let kept: Vec<NoiseAhead> = pool.install(|| (0..WAITING).map(begin).collect());
        // Runs when the thread has nothing else to do.
        pool.broadcast(|_| ());
        let is_begun = |ahead: &NoiseAhead| ahead.pieces.pieces[0].normal.get().is_some();
        assert!(kept.iter().any(is_begun));
    }

    #[test]
    fn nothing_is_drawn_ahead_for_a_step_that_has_begun() {
        let [mut source, _] = twins();
        release(&mut source, None);
        assert!(ahead(&source).is_none());
        assert!(NoiseAhead::begin(&source, Purpose::Gradient, 5, &LENGTHS, None).is_some());
    }
}
