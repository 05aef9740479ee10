//! Noise that is drawn before its sums are known.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use zeroize::Zeroizing;

use super::gaussian::standard_normal;
use crate::random::NoiseStream;
use crate::random::keystream::{GROUP_WORDS, Keystream};

/// Groups in a piece: few, because the model's own work waits for a piece to be drawn.
const PIECE_GROUPS: usize = 8;
/// Values in a piece.
pub(super) const PIECE_VALUES: usize = PIECE_GROUPS * GROUP_WORDS;
/// Values that are drawn ahead at most, 32 MiB of doubles; the rest is drawn when it is needed.
const LIMIT: usize = 1 << 22;

/// The standard normal values of a step, which idle threads draw while the model computes.
///
/// They are the values that the streams of the step give when they are used, bit for bit, so whether
/// and how far they were drawn ahead makes no difference to a release but its time. What is not drawn
/// yet is drawn by whoever asks for it.
///
/// # Privacy
///
/// The values are kept in memory between two steps and erased with it. They are used by a stream of
/// the same key only: a step whose noise is [bound](super::NoiseStep::bound_to) to its sums has another
/// key, and draws anew.
pub(crate) struct NoiseAhead {
    key: Zeroizing<[u8; 32]>,
    /// Number of values and pieces of each parameter, in order.
    parameters: Vec<(usize, Range<usize>)>,
    pieces: Arc<Pieces>,
}

/// The pieces of all parameters, and the next that no thread has begun.
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

type Normal = Zeroizing<Vec<f64>>;

impl NoiseAhead {
    /// Begins to draw the first values of the streams 0, 1, … under `key`, of parameters with so many
    /// values.
    ///
    /// The memory of the step before is used again.
    pub(crate) fn begin(
        key: Zeroizing<[u8; 32]>,
        lengths: &[usize],
        before: Option<NoiseAhead>,
    ) -> Self {
        let before = before.and_then(|before| Arc::into_inner(before.pieces));
        let mut memory =
            before.into_iter().flat_map(|before| before.pieces).map(Piece::into_normal);
        let (mut parameters, mut pieces, mut total) = (Vec::new(), Vec::new(), 0);
        for (parameter, &length) in (0..).zip(lengths) {
            total += length;
            if total > LIMIT {
                break;
            }
            let keystream = Arc::new(Keystream::new(&key, parameter));
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
        // One thread is the caller's, which has a step to make.
        let threads = rayon::current_num_threads().saturating_sub(1).max(1);
        for _ in 0..threads.min(pieces.pieces.len()) {
            let pieces = Arc::clone(&pieces);
            rayon::spawn(move || pieces.draw());
        }
        Self { key, parameters, pieces }
    }

    /// The pieces of the `length` values of a stream, if they are drawn ahead.
    pub(super) fn of(&self, stream: &NoiseStream, length: usize) -> Option<&[Piece]> {
        let (parameter, key) = stream.identity();
        let (known, pieces) = self.parameters.get(usize::try_from(parameter).ok()?)?;
        (*known == length && *key == *self.key).then(|| &self.pieces.pieces[pieces.clone()])
    }
}

impl Pieces {
    /// Draws pieces until all were begun.
    fn draw(&self) {
        while let Some(piece) = self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            piece.normal();
            // The model's own work goes first.
            while rayon::yield_now() == Some(rayon::Yield::Executed) {}
        }
    }
}

impl Piece {
    /// The values, drawn now if they are not.
    pub(super) fn normal(&self) -> &[f64] {
        self.normal.get_or_init(|| {
            let memory = self.memory.lock().ok().and_then(|mut memory| memory.take());
            let mut normal = match memory {
                Some(normal) if normal.len() == self.values => normal,
                _ => Zeroizing::new(vec![0.0; self.values]),
            };
            standard_normal(&self.keystream, self.first_group, &mut normal);
            normal
        })
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
    use crate::random::{NoiseSource, Purpose};

    const LENGTHS: [usize; 5] = [2 * PIECE_VALUES + 77, 0, 1, PIECE_VALUES, LIMIT];

    /// What a step releases for zeros.
    fn release(source: &mut NoiseSource, ahead: Option<&NoiseAhead>) -> Vec<Vec<f32>> {
        let mechanism = GaussianMechanism::new(1.5, 0.25).unwrap();
        let mut sums: Vec<Vec<f32>> = LENGTHS.iter().map(|&length| vec![0.0; length]).collect();
        let step = source.begin_step(Purpose::Gradient, 4).unwrap();
        let mut step = step.bound_to(sums.iter().map(Vec::as_slice));
        let parameters = (0..).zip(&mut sums).map(|(parameter, sums)| {
            (mechanism, step.stream(parameter).unwrap(), sums.as_mut_slice())
        });
        let parameters = parameters.collect();
        GaussianMechanism::release_with(parameters, ahead).unwrap();
        sums
    }

    fn ahead(source: &NoiseSource) -> Option<NoiseAhead> {
        source.draw_ahead(Purpose::Gradient, 4, &LENGTHS, None)
    }

    fn twins() -> [NoiseSource; 2] {
        [0, 1].map(|_| NoiseSource::insecure(crate::random::InsecureSeed(3)))
    }

    #[test]
    fn a_release_has_the_same_bits_whether_its_noise_was_drawn_ahead_or_not() {
        let [mut one, mut other] = twins();
        let drawn = ahead(&one).unwrap();
        assert_eq!(drawn.parameters.len(), 4, "the last parameter is beyond the limit");
        assert_eq!(release(&mut one, Some(&drawn)), release(&mut other, None));
    }

    #[test]
    fn noise_that_was_drawn_ahead_is_what_is_added() {
        // Without this, the test above would hold for a program that draws everything twice.
        let [mut one, mut other] = twins();
        let mut drawn = ahead(&one).unwrap();
        for piece in &drawn.pieces.pieces {
            piece.normal();
        }
        while Arc::strong_count(&drawn.pieces) > 1 {
            std::thread::yield_now();
        }
        let pieces = Arc::get_mut(&mut drawn.pieces).unwrap();
        pieces.pieces[0].normal = OnceLock::from(Zeroizing::new(vec![8.0; PIECE_VALUES]));
        let (with, without) = (release(&mut one, Some(&drawn)), release(&mut other, None));
        assert!(with[0][..PIECE_VALUES].iter().all(|&value| value == 8.0 * 1.5 * 0.25));
        assert_eq!(with[0][PIECE_VALUES..], without[0][PIECE_VALUES..]);
        assert_eq!(with[1..], without[1..]);
    }

    #[test]
    fn noise_that_was_drawn_ahead_is_not_used_once_somebody_else_may_have_the_key() {
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
        assert_ne!(stream.identity(), (0, &*drawn.key), "the noise is bound to the sums");
    }

    #[test]
    fn nothing_is_drawn_ahead_for_a_step_that_was_made() {
        let [mut source, _] = twins();
        release(&mut source, None);
        assert!(ahead(&source).is_none());
        assert!(source.draw_ahead(Purpose::Gradient, 5, &LENGTHS, None).is_some());
    }
}
