//! Whether the independence of the examples was tested in a run.

use std::fmt;

use serde::{Deserialize, Serialize};

pub(crate) use super::loss_function::LossFunction;
use crate::grads::Probe;
use crate::random::NoiseSource;

/// When a run tests that loss i depends on example i alone.
///
/// | test | where | cost |
/// |---|---|---|
/// | by value: each loss and each gradient is the same in other batches | one physical batch, if the library calls the forward pass | six forward and backward passes of that batch, and one for each of up to 16 single units; the gradients of each pass are instantiated, some at a time |
/// | by gradient: no loss reaches the rows of other examples | every backward pass of the step | one number for each example and layer |
///
/// Neither test changes the result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndependenceCheck {
    /// No test.
    Never,
    /// Both tests in the first step of a process, and in the next steps until each was conclusive.
    /// The test by value again for every other function of losses, for other
    /// [`LogicalBatches`](crate::sampling::LogicalBatches), another number of copies of a unit and
    /// another precision. The test by gradient not in a step that a resumed run repeats, unless its
    /// first computation was tested too.
    #[default]
    FirstStep,
    /// Both tests like [`FirstStep`](Self::FirstStep), and again in every step whose number is a
    /// multiple of this one; 0 counts as 1. The test by value only in batches of at least half of
    /// the usual size.
    Every(u64),
}

impl IndependenceCheck {
    /// Returns whether a step is tested, whatever was tested before.
    fn repeats_in(self, step: u64) -> bool {
        matches!(self, Self::Every(steps) if step.is_multiple_of(steps.max(1)))
    }
}

/// `true` is [`FirstStep`](IndependenceCheck::FirstStep), `false` is
/// [`Never`](IndependenceCheck::Never).
impl From<bool> for IndependenceCheck {
    fn from(enabled: bool) -> Self {
        if enabled { Self::FirstStep } else { Self::Never }
    }
}

/// The result of testing the assumption that loss i depends on example i alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Independence {
    /// Not tested: disabled, or no batch so far was conclusive.
    NotChecked,
    /// Every unit is computed separately: there is no batch in which examples could mix.
    ByConstruction,
    /// No gradient of a loss reached another example on the batches of that step, and on those
    /// that later steps and processes tested. Values were not compared, or only in part of the run.
    ByGradient {
        /// The first such step.
        step: u64,
    },
    /// Each loss and each gradient was the same in other batches, in that step and in the other
    /// steps in which it was tested: gradients by their norms, and by their products with one
    /// random vector for each parameter. All backward passes of the run used functions that were
    /// tested, in every process of the run, on the batches and with the options of the test.
    /// Functions are told apart by their type and by the place of the call, so function pointers
    /// and trait objects of one type count as one function.
    ByValue {
        /// The first such step.
        step: u64,
    },
}

impl Independence {
    /// Returns the sentence about what is not covered.
    pub(crate) fn not_covered(self) -> &'static str {
        match self {
            Self::NotChecked => {
                "A loss of one example that depends on other examples: this was not checked. \
                 Neither was that each loss was computed from the drawn unit, and from nothing \
                 that the program keeps from earlier batches."
            }
            Self::ByConstruction => {
                "An update of one unit that depends on other units, through what its program \
                 keeps, how it loads a batch, or random values: this was not checked."
            }
            Self::ByGradient { .. } => {
                "A loss of one example that depends on other examples: the check of gradients \
                 cannot show a dependence of values (a normalizer that is detached, the number of \
                 rows, a rank, a padded length), one before the first private layer, one on \
                 batches or in functions or processes that were not checked, one on what the \
                 program keeps from earlier batches, one that reaches fewer than a quarter of the \
                 examples, or random values that depend on other examples. That loss i was \
                 computed from unit i of the batch (rows in the order of the units, copies of a \
                 unit in consecutive rows, padding last) was not checked."
            }
            Self::ByValue { .. } => {
                "A loss of one example that depends on other examples: a check cannot show a \
                 dependence on batches that were not checked, on what the program keeps from \
                 earlier ones, or on anything else that the function of losses holds (the number \
                 of drawn units, other records), one in a function behind a pointer of the type of \
                 another one that was checked, a weak one (in single precision, of about a \
                 thousandth of most losses, or a hundredth of a few, and more where rounding moves \
                 a loss by more), or one that reaches a single example of a batch."
            }
        }
    }
}

impl fmt::Display for Independence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotChecked => "not checked",
            Self::ByConstruction => "every unit is computed by itself",
            // Without the step, so that a resumed run has the same statement.
            Self::ByGradient { .. } => "checked by gradient alone on some batches, not by value",
            Self::ByValue { .. } => "checked by value on some batches",
        })
    }
}

/// The findings about the examples of a run so far, for its checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeenIndependence {
    /// Whether units were computed one by one, not as rows of a batch.
    units: bool,
    /// Whether any batch went through a backward pass.
    batches: bool,
    /// Whether a batch came as losses, without the function that computed them, or with a function
    /// that was not tested.
    losses: bool,
    /// The first step whose gradients were conclusive.
    gradient: Option<u64>,
    /// The first step whose values were conclusive.
    values: Option<u64>,
}

/// The outcome of a comparison of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Each value was the same in other batches.
    Same,
    /// The batch shows nothing; the next one is compared.
    Inconclusive,
    /// A value depends on other examples, or could not be compared.
    Refused,
}

/// The tests of a run.
///
/// The test by gradient runs in the first step of each process, in the next steps until it is
/// conclusive, and in the steps of [`IndependenceCheck::Every`]. Its random factors can change the
/// low-order bits of gradients below 2^-86, and a repeated step would then differ. So a step that a
/// resumed run repeats is tested, with the same factors, if and only if the run had no result
/// before it, or it is one of these steps; with another rate than before, it can differ. A step
/// that another resumed process tested, and did not save, is repeated without the factors; if it
/// differs, it is refused like any other. The test by value changes nothing in the step.
#[derive(Debug, Default)]
pub(crate) struct IndependenceTests {
    schedule: IndependenceCheck,
    seen: SeenIndependence,
    probe: Option<Probe>,
    /// Whether the gradients of a step of this process were conclusive.
    conclusive: bool,
    /// Number of probes of this step: threads that work at the same time have one each.
    probes: u32,
    /// The functions of this process whose values were conclusive.
    tested: Vec<LossFunction>,
    /// The other functions of this process, and of this step.
    untested: Vec<LossFunction>,
    untested_in_step: Vec<LossFunction>,
    /// The last step whose values were tested, or are being tested, and the function.
    values_of: Option<(u64, LossFunction)>,
}

impl IndependenceTests {
    /// Returns tests with the same schedule and no observations.
    pub(crate) fn renewed(&self) -> Self {
        Self { schedule: self.schedule, ..Self::default() }
    }

    /// Sets when the tests run; their results are kept.
    pub(crate) fn set_schedule(&mut self, schedule: IndependenceCheck) {
        self.schedule = schedule;
        if schedule == IndependenceCheck::Never {
            self.probe = None;
        }
    }

    /// Continues a saved run, whose state was [`seen`](Self::seen).
    pub(crate) fn continue_from(&mut self, seen: Option<SeenIndependence>) {
        // A run without this information may have had any batch.
        self.seen = seen.unwrap_or(SeenIndependence { batches: true, losses: true, ..self.seen });
    }

    /// Drops what was observed of a step that is discarded.
    pub(crate) fn discard(&mut self) {
        self.probe = None;
        self.probes = 0;
        self.untested_in_step.clear();
    }

    /// Returns whether units were computed one by one.
    pub(crate) fn had_units(&self) -> bool {
        self.seen.units
    }

    /// Returns the result for the whole run.
    pub(crate) fn found(&self) -> Independence {
        Self::result(self.seen())
    }

    /// Returns the result for a run with other steps, of which nothing is known.
    pub(crate) fn found_beside_lost_steps(&self) -> Independence {
        Self::result(SeenIndependence { batches: true, losses: true, ..self.seen() })
    }

    fn result(seen: SeenIndependence) -> Independence {
        match seen {
            SeenIndependence { batches: false, units: true, .. } => Independence::ByConstruction,
            SeenIndependence { losses: false, values: Some(step), .. } => {
                Independence::ByValue { step }
            }
            SeenIndependence { gradient: Some(step), .. } => Independence::ByGradient { step },
            _ => Independence::NotChecked,
        }
    }

    /// Returns what a checkpoint stores.
    pub(crate) fn seen(&self) -> SeenIndependence {
        let tested = self.untested.is_empty() && self.untested_in_step.is_empty();
        SeenIndependence { losses: self.seen.losses || !tested, ..self.seen }
    }

    /// Records a batch that comes as losses, without the function that computed them.
    pub(crate) fn losses_alone(&mut self) {
        self.seen.losses = true;
    }

    /// Records examples that were clipped outside the run, in a batch or not.
    pub(crate) fn sum_from_elsewhere(&mut self) {
        self.seen.batches = true;
        self.seen.losses = true;
    }

    /// Returns the probe for the next backward pass of a step, if it is tested. Return it with
    /// [`give_back`](Self::give_back).
    ///
    /// # Arguments
    ///
    /// - `repeats`: whether the step was released before the run was resumed
    pub(crate) fn take_probe(
        &mut self,
        source: &NoiseSource,
        step: u64,
        repeats: bool,
    ) -> Option<Probe> {
        self.seen.batches = true;
        let is_done = self.seen.gradient.is_some() && (repeats || self.conclusive);
        if (is_done && !self.schedule.repeats_in(step)) || self.schedule == IndependenceCheck::Never
        {
            return None;
        }
        Some(self.probe.take().unwrap_or_else(|| {
            self.probes += 1;
            Probe::new(source, step, self.probes - 1)
        }))
    }

    /// Stores the observations of a probe, merged with the observations that other threads made at
    /// the same time.
    pub(crate) fn give_back(&mut self, probe: Option<Probe>) {
        self.probe = match (self.probe.take(), probe) {
            (Some(before), Some(probe)) => Some(before.merged(probe)),
            (before, probe) => before.or(probe),
        };
    }

    /// Returns whether the values of the next physical batch are to be compared, to the first
    /// thread that asks. Say the outcome with [`compared`](Self::compared).
    ///
    /// # Arguments
    ///
    /// - `is_usual`: whether the batch has at least half of the usual number of units
    pub(crate) fn begin_values(
        &mut self,
        step: u64,
        function: LossFunction,
        is_usual: bool,
    ) -> bool {
        let is_tested = self.tested.contains(&function);
        if !is_tested && !self.untested_in_step.contains(&function) {
            self.untested_in_step.push(function);
        }
        let due = match self.schedule {
            IndependenceCheck::Never => false,
            schedule => !is_tested || schedule.repeats_in(step),
        };
        let begins = due && is_usual && self.values_of != Some((step, function));
        if begins {
            self.values_of = Some((step, function));
        }
        begins
    }

    /// Records that the values of a physical batch were compared. If the comparison was not
    /// conclusive, the next physical batch is compared.
    pub(crate) fn compared(&mut self, step: u64, function: LossFunction, outcome: Outcome) {
        if outcome == Outcome::Refused {
            // Earlier steps used it: what was found of them no longer holds.
            self.seen.losses |=
                self.tested.contains(&function) || self.untested.contains(&function);
            self.tested.retain(|other| *other != function);
        }
        if outcome != Outcome::Same {
            self.values_of = None;
            return;
        }
        self.seen.values.get_or_insert(step);
        self.untested.retain(|other| *other != function);
        self.untested_in_step.retain(|other| *other != function);
        if !self.tested.contains(&function) {
            self.tested.push(function);
        }
    }

    /// Records that a loss reached another example: what earlier steps showed no longer holds.
    pub(crate) fn refused_by_gradient(&mut self) {
        (self.seen.gradient, self.conclusive) = (None, false);
        // The values of earlier steps did not show it.
        self.seen.losses = true;
    }

    /// Records that units were computed one by one, not as rows of a batch.
    pub(crate) fn units_by_themselves(&mut self) {
        self.seen.units = true;
    }

    /// Ends the test of a finished step.
    pub(crate) fn end_of_step(&mut self, step: u64) {
        self.probes = 0;
        for function in self.untested_in_step.drain(..) {
            if !self.untested.contains(&function) {
                self.untested.push(function);
            }
        }
        if self.probe.take().is_some_and(|probe| probe.is_conclusive()) {
            self.seen.gradient.get_or_insert(step);
            self.conclusive = true;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::FloatDType;

    use super::*;

    /// What a part of a run does.
    #[derive(Clone, Copy, Debug)]
    enum Part {
        Nothing,
        Units,
        Losses,
        TestedLosses,
        Function,
        TestedFunction,
    }

    fn run(tests: &mut IndependenceTests, part: Part) {
        let source = NoiseSource::from_os().unwrap();
        match part {
            Part::Nothing => return,
            Part::Units => return tests.units_by_themselves(),
            Part::Losses | Part::TestedLosses => tests.losses_alone(),
            Part::Function | Part::TestedFunction => {
                let function = LossFunction::of::<Part>();
                assert!(tests.begin_values(4, function, true));
                let outcome = match part {
                    Part::TestedFunction => Outcome::Same,
                    _ => Outcome::Inconclusive,
                };
                tests.compared(4, function, outcome);
            }
        }
        let probe = tests.take_probe(&source, 4, false);
        tests.give_back(probe);
        if matches!(part, Part::TestedLosses | Part::TestedFunction) {
            tests.seen.gradient.get_or_insert(4);
        }
    }

    #[test]
    fn steps_of_which_nothing_is_known_are_not_units_by_themselves() {
        let mut tests = IndependenceTests::default();
        tests.units_by_themselves();
        assert_eq!(tests.found_beside_lost_steps(), Independence::NotChecked);
        tests.continue_from(None);
        assert_eq!(tests.found(), Independence::NotChecked);
        // A function that is tested from now on was not tested before.
        run(&mut tests, Part::TestedFunction);
        assert_eq!(tests.found(), Independence::ByGradient { step: 4 });
    }

    #[test]
    fn the_result_of_a_resumed_run_covers_both_parts() {
        use Independence::{ByConstruction, ByGradient, ByValue, NotChecked};
        use Part::{Function, Losses, Nothing, TestedFunction, TestedLosses, Units};
        let (gradient, value) = (ByGradient { step: 4 }, ByValue { step: 4 });
        for (before, after, both) in [
            (Nothing, Nothing, NotChecked),
            (Units, Nothing, ByConstruction),
            (Units, Units, ByConstruction),
            (Units, Losses, NotChecked),
            (Losses, Units, NotChecked),
            (Losses, TestedLosses, gradient),
            (TestedLosses, Nothing, gradient),
            (TestedLosses, Losses, gradient),
            (TestedLosses, Units, gradient),
            (TestedFunction, Nothing, value),
            (TestedFunction, TestedFunction, value),
            // A part of the run used a function that was not tested.
            (TestedFunction, Function, gradient),
            (TestedFunction, Units, value),
            // A part of the run used losses of an unknown function.
            (TestedFunction, Losses, gradient),
            (Losses, TestedFunction, gradient),
            (Function, TestedFunction, gradient),
            (Function, Nothing, NotChecked),
        ] {
            let mut tests = IndependenceTests::default();
            run(&mut tests, before);
            let mut resumed = tests.renewed();
            resumed.continue_from(Some(tests.seen()));
            run(&mut resumed, after);
            assert_eq!(resumed.found(), both, "{before:?} {after:?}");
        }
    }

    #[test]
    fn gradients_are_tested_at_the_times_that_are_set() {
        let source = NoiseSource::from_os().unwrap();
        let tested = |schedule, seen, steps: [(u64, bool); 3]| {
            let mut tests = IndependenceTests::default();
            tests.set_schedule(schedule);
            tests.continue_from(seen);
            steps.map(|(step, repeats)| {
                let probe = tests.take_probe(&source, step, repeats);
                if probe.is_some() {
                    (tests.seen.gradient, tests.conclusive) = (Some(step), true);
                }
                probe.is_some()
            })
        };
        let seen = |gradient| Some(SeenIndependence { gradient, ..Default::default() });
        let new = [(0, false), (1, false), (2, false)];
        let first = IndependenceCheck::FirstStep;
        assert_eq!(tested(first, seen(None), new), [true, false, false]);
        let resumed = [(4, true), (5, false), (6, false)];
        assert_eq!(tested(first, seen(Some(0)), resumed), [false, true, false]);
        // The first computation of the repeated step was tested.
        assert_eq!(tested(first, seen(None), resumed), [true, false, false]);
        let every = IndependenceCheck::Every;
        assert_eq!(tested(every(2), seen(None), new), [true, false, true]);
        // The first computation was tested, because of its number.
        assert_eq!(tested(every(2), seen(Some(0)), resumed), [true, false, true]);
        assert_eq!(tested(every(3), seen(Some(0)), resumed), [false, true, true]);
        let never = IndependenceCheck::Never;
        assert_eq!(tested(never, seen(None), new), [false; 3]);
    }

    #[test]
    fn values_are_tested_at_the_times_that_are_set() {
        let tested = |schedule: IndependenceCheck, conclusive: fn(u64) -> bool| {
            let mut tests = IndependenceTests::default();
            tests.set_schedule(schedule);
            let mut steps = Vec::new();
            let function = LossFunction::of::<()>();
            for step in 0..10 {
                // Two physical batches in each step.
                for _ in 0..2 {
                    if tests.begin_values(step, function, true) {
                        steps.push(step);
                        let outcome = match conclusive(step) {
                            true => Outcome::Same,
                            false => Outcome::Inconclusive,
                        };
                        tests.compared(step, function, outcome);
                    }
                }
            }
            steps
        };
        assert!(tested(IndependenceCheck::Never, |_| true).is_empty());
        assert_eq!(tested(true.into(), |_| true), [0]);
        assert_eq!(tested(IndependenceCheck::Every(4), |_| true), [0, 4, 8]);
        assert_eq!(tested(IndependenceCheck::Every(0), |_| true).len(), 10);
        // Until a test was conclusive.
        assert_eq!(tested(true.into(), |step| step == 2), [0, 0, 1, 1, 2]);
        assert_eq!(tested(IndependenceCheck::Every(8), |step| step > 0), [0, 0, 1, 8]);
    }

    #[test]
    fn every_function_of_losses_is_tested() {
        let functions = [LossFunction::of::<u8>(), LossFunction::of::<u8>()];
        assert_ne!(functions[0], functions[1]);
        let mut tests = IndependenceTests::default();
        tests.seen.gradient = Some(0);
        for (step, function) in [0, 1, 0, 1].into_iter().enumerate() {
            let (step, begins) = (step as u64, step < 2);
            assert_eq!(tests.begin_values(step, functions[function], true), begins, "{step}");
            if begins {
                assert_eq!(tests.found(), Independence::ByGradient { step: 0 }, "{step}");
                tests.compared(step, functions[function], Outcome::Same);
            }
            assert_eq!(tests.found(), Independence::ByValue { step: 0 }, "{step}");
            tests.end_of_step(step);
        }
        let other = LossFunction::of::<u16>();
        let discarded = |tests: &mut IndependenceTests, step| {
            assert!(tests.begin_values(step, other, true));
            tests.compared(step, other, Outcome::Inconclusive);
            tests.discard();
        };
        discarded(&mut tests, 4);
        assert_eq!(tests.found(), Independence::ByValue { step: 0 });
        assert!(tests.begin_values(4, other, true));
        tests.end_of_step(4);
        discarded(&mut tests, 5);
        assert_eq!(tests.found(), Independence::ByGradient { step: 0 });
        // Until it is tested.
        assert!(tests.begin_values(6, other, true));
        tests.compared(6, other, Outcome::Same);
        assert_eq!(tests.found(), Independence::ByValue { step: 0 });
    }

    #[test]
    fn a_function_is_tested_on_each_source_and_with_each_option() {
        let function = LossFunction::of::<u8>();
        let all = [
            function.on(0, 1, None),
            function.on(1, 1, None),
            function.on(0, 2, None),
            function.on(0, 1, Some(FloatDType::BF16)),
        ];
        let mut tests = IndependenceTests::default();
        for (step, function) in (0..).zip(all) {
            assert!(tests.begin_values(step, function, true), "{step}");
            tests.compared(step, function, Outcome::Same);
            tests.end_of_step(step);
        }
        for function in all {
            assert!(!tests.begin_values(4, function, true));
        }
        assert_eq!(tests.found(), Independence::ByValue { step: 0 });
    }

    // Sharp edge: a test that fails after steps that had passed it.
    #[test]
    fn a_refusal_takes_an_earlier_result_back() {
        let function = LossFunction::of::<u8>();
        let mut tests = IndependenceTests::default();
        tests.seen.gradient = Some(0);
        assert!(tests.begin_values(0, function, true));
        tests.compared(0, function, Outcome::Same);
        tests.end_of_step(0);
        assert_eq!(tests.found(), Independence::ByValue { step: 0 });
        tests.set_schedule(IndependenceCheck::Every(2));
        assert!(tests.begin_values(2, function, true));
        tests.compared(2, function, Outcome::Refused);
        tests.discard();
        assert_eq!(tests.found(), Independence::ByGradient { step: 0 });
        // Even if a later batch does not show it.
        assert!(tests.begin_values(2, function, true));
        tests.compared(2, function, Outcome::Same);
        assert_eq!(tests.found(), Independence::ByGradient { step: 0 });
        tests.refused_by_gradient();
        assert_eq!(tests.found(), Independence::NotChecked);
        // Also where the values of the same steps had passed.
        let mut passed = IndependenceTests::default();
        assert!(passed.begin_values(0, function, true));
        passed.compared(0, function, Outcome::Same);
        passed.seen.gradient = Some(0);
        passed.end_of_step(0);
        assert_eq!(passed.found(), Independence::ByValue { step: 0 });
        passed.refused_by_gradient();
        assert_eq!(passed.found(), Independence::NotChecked);
        let source = NoiseSource::from_os().unwrap();
        assert!(tests.take_probe(&source, 2, false).is_some());
    }

    // Closures of one function have one name, and those that a helper passes on one place.
    #[test]
    fn closures_that_reach_the_library_by_the_same_call_are_told_apart() {
        fn of<F: Fn() -> usize>(_: F) -> LossFunction {
            LossFunction::of::<F>()
        }
        let number = 3;
        let (one, other) = (|| number, || number + 1);
        assert_eq!(std::any::type_name_of_val(&one), std::any::type_name_of_val(&other));
        assert_ne!(of(one), of(other));
        assert_eq!(of(one), of(one));
    }

    #[test]
    fn a_schedule_is_kept_and_only_never_drops_a_probe() {
        let source = NoiseSource::from_os().unwrap();
        let mut tests = IndependenceTests::default();
        let probe = tests.take_probe(&source, 0, false);
        tests.give_back(probe);
        tests.set_schedule(IndependenceCheck::Every(3));
        assert!(tests.probe.is_some());
        assert_eq!(tests.renewed().schedule, IndependenceCheck::Every(3));
        tests.set_schedule(IndependenceCheck::Never);
        assert!(tests.probe.is_none() && tests.take_probe(&source, 0, false).is_none());
    }

    #[test]
    fn a_sum_from_elsewhere_leaves_the_run_unchecked() {
        let mut tests = IndependenceTests::default();
        let function = LossFunction::of::<u8>();
        assert!(tests.begin_values(0, function, true));
        tests.compared(0, function, Outcome::Same);
        assert_eq!(tests.found(), Independence::ByValue { step: 0 });
        tests.sum_from_elsewhere();
        assert_eq!(tests.found(), Independence::NotChecked);
        let mut units = IndependenceTests::default();
        units.units_by_themselves();
        assert_eq!(units.found(), Independence::ByConstruction);
        units.sum_from_elsewhere();
        assert_eq!(units.found(), Independence::NotChecked);
    }
}
