//! Tests of the kernels of correlated noise: the same bits as on the host.

#![allow(clippy::unwrap_used)]

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_dp_accountant::correlated_noise::Strategy;

use super::correlated::tests::{release_with, strategies};
use super::{CorrelatedNoise, CorrelatedStep, GaussianMechanism};
use crate::device_read::wait;
use crate::ops::{copied_memories, double_operations, erased_memories, has_release, native_erase};
use crate::random::{Domain, InsecureSeed, NoiseSource, Purpose, Stream};
use crate::test_devices::devices;

/// Pairs of doubles whose exponents differ by every amount that matters, with mantissas that make
/// carries, ties and cancellation likely.
fn pairs() -> Vec<(f64, f64)> {
    let mut words = Stream::new(&InsecureSeed(8).into(), Domain::Sampling, 0, 0).into_words();
    let mut next = || words.next().unwrap();
    let mantissas = [0, 1, 2, 3, (1 << 52) - 1, (1 << 52) - 2, 1 << 51, (1 << 51) - 1, 1 << 26];
    let double = |exponent: u64, mantissa: u64, sign: u64| {
        f64::from_bits((sign << 63) | (exponent << 52) | (mantissa & ((1 << 52) - 1)))
    };
    let mut pairs = Vec::new();
    for round in 0..400u64 {
        for apart in 0..=70 {
            // Around one, where subnormal numbers begin, and where infinity begins.
            let base = [1000, next() % 120, 1960 + next() % 16][(round % 3) as usize];
            let mut mantissa = || match next() % 3 {
                0 => next(),
                1 => mantissas[(next() % mantissas.len() as u64) as usize],
                _ => u64::MAX << (next() % 53),
            };
            let (first, second) = (mantissa(), mantissa());
            let (a, b) =
                (double(base + apart, first, next() % 2), double(base, second, next() % 2));
            pairs.push(if next() % 2 == 0 { (a, b) } else { (b, a) });
        }
        // Products around the smallest numbers, of factors of every size.
        let exponent = next() % 970;
        let a = double(exponent, next(), next() % 2);
        let b = double(970 - exponent + next() % 60, next(), next() % 2);
        pairs.extend([(a, b), (a, -a), (a, a.next_up()), (-a, a.next_down())]);
    }
    let edges = [0.0, -0.0, 5e-324, -5e-324, 2.5e-308, f64::MIN_POSITIVE, 1.0, -1.0, 1.5, 0.1];
    let large = [f64::MAX, -f64::MAX, 2f64.powi(23), 2f64.powi(22).next_down(), 2f64.powi(-41)];
    let edges: Vec<f64> = edges.into_iter().chain(large).collect();
    pairs.extend(edges.iter().flat_map(|&a| edges.iter().map(move |&b| (a, b))));
    pairs
}

#[test]
fn arithmetic_of_a_device_in_double_precision_has_the_bits_of_the_host() {
    let pairs = pairs();
    let bits: Vec<_> = pairs.iter().map(|(a, b)| (a.to_bits(), b.to_bits())).collect();
    let [mut subnormal, mut cancelled, mut infinite] = [0; 3];
    for (found, &(a, b)) in double_operations(&bits).into_iter().zip(&pairs) {
        let (product, sum) = (a * b, a + b);
        assert_eq!(found[0], product.to_bits(), "{a:e} * {b:e} = {product:e}");
        assert_eq!(found[1], sum.to_bits(), "{a:e} + {b:e} = {sum:e}");
        assert_eq!(found[2].cast_signed(), super::grid::from_double(a), "{a:e} as an integer");
        let double = super::grid::to_double(a.to_bits().cast_signed());
        assert_eq!(found[3], double.to_bits(), "{:x} as a double", a.to_bits());
        subnormal += u32::from(product.is_subnormal());
        cancelled += u32::from(sum.abs() < 1e-10 * a.abs());
        infinite += u32::from(product.is_infinite());
    }
    let counts = [subnormal, cancelled, infinite];
    assert!(counts.iter().all(|&count| count > 100), "{counts:?}");
}

#[test]
fn integers_of_noise_become_doubles_and_back() {
    let mut words = Stream::new(&InsecureSeed(9).into(), Domain::Sampling, 0, 0).into_words();
    // Noise of all sizes, and halves between two integers.
    let noise: Vec<f64> = (0..40_000)
        .map(|_| {
            let word = words.next().unwrap().cast_signed();
            super::grid::to_double(word >> (word & 63)) * 0.5
        })
        .collect();
    let bits: Vec<_> = noise.iter().map(|noise| (noise.to_bits(), 0)).collect();
    for (found, noise) in double_operations(&bits).into_iter().zip(noise) {
        assert_eq!(found[2].cast_signed(), super::grid::from_double(noise), "{noise:e}");
    }
}

const STEPS: u64 = 11;
/// The first one has several parts in the memory of a device.
const LENGTHS: [usize; 4] = [6000, 1, 300, 128];

fn on_device() -> impl Iterator<Item = Device> {
    let mut devices = devices().into_iter().filter(has_release).peekable();
    assert!(devices.peek().is_some(), "no device has kernels");
    devices
}

struct Run {
    source: NoiseSource,
    noise: CorrelatedNoise,
    step: u64,
}

/// Where the sums of the parameters are.
type Places = [Option<Device>; LENGTHS.len()];

const HOST: Places = [None, None, None, None];

fn all_on(device: &Device) -> Places {
    std::array::from_fn(|_| Some(device.clone()))
}

impl Run {
    fn new(strategy: &Strategy, limit: usize) -> Self {
        let source = NoiseSource::insecure(InsecureSeed(6));
        Self { source, noise: CorrelatedNoise::new(strategy, limit), step: 0 }
    }

    /// Releases the sums of the next step where they are. Returns the bits.
    fn next(&mut self, places: &Places) -> Vec<Vec<u32>> {
        self.release(places, |at| (at as f32 * 0.37).sin() * 3.0)
    }

    fn release(&mut self, places: &Places, sum: impl Fn(usize) -> f32) -> Vec<Vec<u32>> {
        let mechanism = GaussianMechanism::new(1.1 * self.noise.unit(), 0.25).unwrap();
        let mut noise = self.source.begin_step(Purpose::Gradient, self.step).unwrap();
        let streams: Vec<_> = (0..4).map(|parameter| noise.stream(parameter).unwrap()).collect();
        let sums: Vec<_> = LENGTHS.into_iter().zip(places.clone()).collect();
        wait(self.noise.place(&sums)).unwrap();
        let mut step = self.noise.begin(streams[0].identity().0, &LENGTHS).unwrap();
        let mut parameters = CorrelatedStep::parameters(&mut step);
        let mut released = Vec::new();
        for ((length, place), stream) in sums.into_iter().zip(streams) {
            let mut correlated = parameters.next().unwrap();
            let mut sums: Vec<f32> = (0..length).map(&sum).collect();
            match place {
                None => {
                    let parameter = (mechanism, stream, sums.as_mut_slice(), Some(correlated));
                    let _ = GaussianMechanism::release_parameters(vec![parameter], None);
                }
                Some(device) => {
                    let tensor = Tensor::from_data(TensorData::new(sums, [length]), &device);
                    let tensor = mechanism
                        .release_correlated_on_device(stream, tensor, &mut correlated)
                        .unwrap();
                    sums = tensor.into_data().try_into_vec().unwrap();
                }
            }
            released.push(sums.into_iter().map(f32::to_bits).collect());
        }
        self.step += 1;
        released
    }

    fn all(mut self, places: &Places) -> Vec<Vec<Vec<u32>>> {
        (self.step..STEPS).map(|_| self.next(places)).collect()
    }
}

#[test]
fn a_device_adds_the_correlated_noise_of_the_host() {
    for device in on_device() {
        for strategy in strategies(STEPS) {
            let expected = Run::new(&strategy, usize::MAX).all(&HOST);
            // Once with kept values, and once drawn again where that is possible.
            for limit in [usize::MAX, 0] {
                let found = Run::new(&strategy, limit).all(&all_on(&device));
                assert!(found == expected, "{strategy} {limit}");
            }
        }
    }
}

// In a process of its own, because the copies of all tests are counted together.
#[test]
fn the_memory_of_a_device_is_changed_and_erased_in_place() {
    const CHILD: &str = "BURN_DP_TEST_COUNTS_COPIES";
    if std::env::var_os(CHILD).is_none() {
        let module = module_path!().split_once("::").unwrap().1;
        let name = format!("{module}::the_memory_of_a_device_is_changed_and_erased_in_place");
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", &name]).env(CHILD, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    for device in on_device() {
        let strategy = Strategy::buffered(STEPS, &[0.9, 0.5], &[0.2, 0.1]).unwrap();
        let erased = erased_memories();
        // Ends the run, which erases its memory; nobody reads the zeros.
        Run::new(&strategy, usize::MAX).all(&all_on(&device));
        device.sync().unwrap();
        assert!(erased_memories() - erased >= LENGTHS.len(), "{device:?}");
        assert_eq!(copied_memories(), 0, "{device:?}");
    }
}

#[test]
fn the_memory_follows_the_sums_between_devices() {
    for device in on_device() {
        for strategy in strategies(STEPS) {
            let expected = Run::new(&strategy, usize::MAX).all(&HOST);
            let mut run = Run::new(&strategy, usize::MAX);
            let some = [Some(device.clone()), None, Some(device.clone()), None];
            for (step, expected) in expected.iter().enumerate() {
                let places = [&some, &all_on(&device), &HOST][step / 2 % 3].clone();
                assert!(run.next(&places) == *expected, "{strategy} {step}");
            }
        }
    }
}

#[test]
fn a_saved_memory_continues_on_any_device() {
    for device in on_device() {
        for strategy in strategies(STEPS) {
            let whole = Run::new(&strategy, usize::MAX).all(&HOST);
            for limit in [usize::MAX, 0] {
                for (before, after) in [
                    (all_on(&device), HOST),
                    (HOST, all_on(&device)),
                    (all_on(&device), all_on(&device)),
                ] {
                    let mut run = Run::new(&strategy, limit);
                    (0..5).for_each(|_| drop(run.next(&before)));
                    let (state, memory) = wait(run.noise.save(run.step, &run.source)).unwrap();
                    let mut resumed = Run::new(&strategy, limit);
                    resumed.step = 5;
                    resumed.noise.restore(5, &state, &memory, &run.source).unwrap();
                    assert!(resumed.all(&after) == whole[5..], "{strategy}");
                }
            }
        }
    }
}

#[test]
fn a_step_without_a_finite_sum_still_enters_later_noise_on_a_device() {
    for device in on_device() {
        for strategy in strategies(STEPS) {
            let expected = Run::new(&strategy, usize::MAX).all(&HOST);
            let mut run = Run::new(&strategy, usize::MAX);
            run.next(&all_on(&device));
            run.release(&all_on(&device), |_| f32::NAN);
            assert!(run.all(&all_on(&device)) == expected[2..], "{strategy}");
        }
    }
}

#[test]
fn a_memory_elsewhere_is_an_error_and_no_other_noise() {
    let strategy = Strategy::buffered(STEPS, &[0.9, 0.5], &[0.2, 0.1]).unwrap();
    for device in on_device() {
        let mut run = Run::new(&strategy, usize::MAX);
        run.next(&all_on(&device));
        let mechanism = GaussianMechanism::new(1.0, 1.0).unwrap();
        let mut noise = run.source.begin_step(Purpose::Gradient, 1).unwrap();
        let mut sums = LENGTHS.map(|length| vec![0.0; length]);
        let parameters = (0..).zip(&mut sums).map(|(parameter, sums)| {
            (mechanism, noise.stream(parameter).unwrap(), sums.as_mut_slice())
        });
        let parameters = parameters.collect();
        let error = release_with(parameters, None, &mut run.noise);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("not on the device of its sum"), "{error}");
        assert!(sums.iter().flatten().all(|&sum| sum == 0.0));
    }
}

#[test]
fn erased_memory_is_zero() {
    for device in on_device() {
        let words = TensorData::new((1..=5000).collect::<Vec<i32>>(), [5000]);
        let memory = Tensor::<1, Int>::from_data(words, (&device, DType::I32));
        let erased: Vec<i32> = native_erase(memory).into_data().try_into_vec().unwrap();
        assert_eq!(erased, [0; 5000]);
    }
}
