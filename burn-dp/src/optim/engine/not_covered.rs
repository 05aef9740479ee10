//! The part of a run's statement that lists what no ε covers.

use std::collections::BTreeMap;

use crate::optim::independence::Independence;

/// Name of the fact that matrix products may be in less than single precision.
pub(super) const PRODUCTS: &str = "matrix_products";

/// Name of the fact that other machines host devices of the run.
pub(super) const REMOTE_DEVICES: &str = "remote_devices";

/// Name of the fact that parameters, losses or passes are in less than single precision.
pub(super) const PRECISION: &str = "precision_of_passes";

/// Name of the fact that several augmented copies of an example are averaged.
pub(super) const MULTIPLICITY: &str = "augmentation_multiplicity";

/// Name of the fact that the gradients of several losses of a user are averaged.
pub(super) const LOSSES_OF_A_USER: &str = "losses_of_a_user_in_a_step";

/// Name of the fact that steps were released and not saved.
pub(super) const LOST_STEPS: &str = "lost_steps";

/// Name of the fact that the program clipped sums itself.
pub(super) const OWN_SUMS: &str = "clipped_sums";

/// Name of the fact that nothing compared the order of the records.
pub(super) const RECORD_ORDER: &str = "order_of_records";

/// Name of the fact in which steps packed values were compared.
pub(super) const PACKED_VALUES: &str = "packed_values";

/// Name of the fact that code of the program computes thresholds or factors of the noise.
pub(super) const OWN_POLICY: &str = "thresholds_and_noise";

/// Its value.
pub(super) const BY_PROGRAM: &str = "computed by code of the program";

/// Name of the fact that other users could read the file of the key.
pub(super) const KEY_FILE: &str = "key_file";

/// Name of the fact that the log of releases locks no other process out.
pub(super) const RELEASE_LOG: &str = "release_log";

/// Name of the fact where the key of the run is stored.
pub(super) const NOISE_KEY: &str = "noise_key";

/// Its value after a record was made, until the run ends and after it.
pub(super) const KEY_IN_RECORDS: &str = "in records that the program stores";

/// The sentence of averaged gradients, unless losses were compared by value.
const GROUPS: &str = "Averaged gradients of several losses: that each group of consecutive losses \
     belongs to one unit was not checked.";

/// The meaning of some facts.
const FACTS: [(&str, &str); 10] = [
    (
        OWN_POLICY,
        "A clipping policy or a schedule that the program defines: that its values follow from \
         constants, public data and released values alone was not checked.",
    ),
    (
        RECORD_ORDER,
        "That an index is the same record in all steps, and has the owners or the mini-set of the \
         plan: the order of the records was not compared.",
    ),
    (
        OWN_SUMS,
        "Clipped sums that the program added: that each has the clipped gradients of its units, \
         each unit once, and nothing else.",
    ),
    (
        PACKED_VALUES,
        "A packed (quantized) value of the model that changed between two comparisons.",
    ),
    (
        PRODUCTS,
        "The rounding of products in TF32: the device chooses kernels by the shape of a physical \
         batch, so one example more can change the rounding of all others; padding fixes the \
         shapes. A test by value allows for this rounding, so it finds only a dependence between \
         examples that changes a loss by about its own size.",
    ),
    (
        PRECISION,
        "The rounding of passes in less than single precision: a device that chooses kernels by \
         the shape of a physical batch can change the rounding of all others with one example \
         more; padding fixes the shapes. A test by value allows for this rounding, so in half \
         precision it finds only a dependence between examples that changes a loss by about its \
         own size.",
    ),
    (
        KEY_FILE,
        "Other users of the machine, who could read the key of the run for some time: the noise \
         follows from it and can be subtracted.",
    ),
    (
        RELEASE_LOG,
        "A second process that continued the run from the same state: the file system of the log \
         of releases has no locks.",
    ),
    (
        LOST_STEPS,
        "How the lost steps were computed: they are in the ledger, but what was tested and noted \
         of them ended with their process.",
    ),
    (
        REMOTE_DEVICES,
        "The machines that host remote devices and the network to them: they see raw examples, \
         gradients and clipped sums.",
    ),
];

/// Returns the sentences that follow from the facts of a run.
pub(super) fn of_facts(
    facts: &BTreeMap<String, String>,
    independence: Independence,
) -> Vec<String> {
    let found = FACTS.iter().filter(|(fact, _)| facts.contains_key(*fact));
    let mut sentences: Vec<String> = found.map(|(_, sentence)| sentence.to_string()).collect();
    let averaged = [MULTIPLICITY, LOSSES_OF_A_USER].iter().any(|fact| facts.contains_key(*fact));
    if averaged && !matches!(independence, Independence::ByValue { .. }) {
        sentences.push(GROUPS.into());
    }
    sentences
}

/// The errors that can depend on the data. Other errors (budget, planned steps, order of draws,
/// learning rates that are not finite, settings of a checkpoint) depend on public values alone.
///
/// The chapter "What is and is not covered" of the book has the same list.
const REFUSALS: [&str; 11] = [
    "an item cannot be loaded or written as bytes, or it contradicts an earlier load",
    "two records are equal, a user is in two items, or the records are not the records of the run",
    "a layer refuses an input, for example a token that is not in the vocabulary",
    "losses or items are missing, or a layer sees a different number of rows than there are losses",
    "the test of independence finds that a loss depends on another example, or has no result",
    "a value that is not trained changed or appeared during a forward pass",
    "a loss does not depend on the model, or depends on it outside of the private layers",
    "the closure of a unit update returns an error",
    "the batcher, the closure of the losses or a kernel of the device panics",
    "a clipped sum is not finite, or the device has no memory for a batch of that size",
    "a repeated step differs from the step that was released",
];

const KERNELS: &str = "The rounding of gradients by a kernel that is chosen by the size of a \
     physical batch: one example more can round all of them differently.";

const STOPPING: &str = "The number of steps, or the choice of a checkpoint, if it follows values \
     that are not private: a training loss, how many examples were clipped, or a score on private \
     data.";

/// Returns the sentences of every statement.
pub(in crate::optim) fn sentences() -> [String; 4] {
    [
        KERNELS.into(),
        STOPPING.into(),
        "A learning rate that depends on private values, such as the training loss: rates are \
         used as they are given."
            .into(),
        format!(
            "That a step was refused, or the training failed or did not start, and the message of \
             the error, where the data decide it: {}.",
            REFUSALS.join("; ")
        ),
    ]
}
