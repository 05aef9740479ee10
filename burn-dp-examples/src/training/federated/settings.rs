//! What the options mean: checked before anything is read or written.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn_dp::clipping::{Clipping, CountNoise, FlatClipping, QuantileClipping, QuantileTracker};
use burn_dp::model::ParameterGroups;
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig};
use burn_dp::updates::federated::{FedAvgConfig, FedSgdConfig, UserUpdate};
use burn_dp_accountant::UnitOfPrivacy;

use super::{AlgorithmName, FederatedOptions, UserClippingName};
use crate::training::noise::Noise;
use crate::training::options::typed;
use crate::training::{OptimizerName, TrainError, checks};

/// Default of `--epsilon`.
const EPSILON: f64 = 8.0;

/// The quantile that is shown of the norms that are tracked.
pub(super) const MEDIAN: f64 = 0.5;

/// The options that belong to some choices only, the defaults filled in.
struct Filled {
    target_quantile: f64,
    quantile_lr: f64,
    count_share: f64,
    local_epochs: usize,
    local_batch_size: usize,
    local_lr: f64,
    server_momentum: f64,
}

impl FederatedOptions {
    fn filled(&self) -> Filled {
        Filled {
            target_quantile: self.target_quantile.unwrap_or(0.5),
            quantile_lr: self.quantile_lr.unwrap_or(0.2),
            count_share: self.count_share.unwrap_or(0.1),
            local_epochs: self.local_epochs.unwrap_or(1),
            local_batch_size: self.local_batch_size.unwrap_or(16),
            local_lr: self.local_lr.unwrap_or(1.0),
            server_momentum: self.server_momentum.unwrap_or(0.9),
        }
    }

    /// Refuses options that the choices beside them would ignore.
    fn refuse_foreign(&self) -> Result<(), TrainError> {
        if self.clipping == UserClippingName::Flat {
            let of_quantile = [
                ("--target-quantile", self.target_quantile.is_some()),
                ("--quantile-lr", self.quantile_lr.is_some()),
            ];
            let choice = "with --clipping flat";
            checks::refuse_foreign(&of_quantile, choice, "--clipping quantile")?;
            let of_counts = [("--count-share", self.count_share.is_some() && !self.track_norms)];
            checks::refuse_foreign(&of_counts, choice, "--clipping quantile or --track-norms")?;
        }
        if self.algorithm == AlgorithmName::FedSgd {
            let of_averaging = [
                ("--local-epochs", self.local_epochs.is_some()),
                ("--local-batch-size", self.local_batch_size.is_some()),
                ("--local-lr", self.local_lr.is_some()),
            ];
            let choice = "with --algorithm fed-sgd";
            checks::refuse_foreign(&of_averaging, choice, "--algorithm fed-avg")?;
        }
        if self.server_optimizer == OptimizerName::Adam {
            let of_sgd = [("--server-momentum", self.server_momentum.is_some())];
            let choice = "with --server-optimizer adam";
            checks::refuse_foreign(&of_sgd, choice, "--server-optimizer sgd")?;
        }
        Ok(())
    }

    /// Refuses numbers that are impossible whatever the data, and options that would be ignored.
    ///
    /// # Errors
    ///
    /// [`TrainError::Option`] naming the option, the value and the way out.
    pub(super) fn check(&self) -> Result<(), TrainError> {
        if !self.federated {
            let reason = "must be given: the plays are trained with the speaking role as the unit of \
                          privacy and in no other way";
            return Err(TrainError::option("--federated", reason));
        }
        self.refuse_foreign()?;
        let filled = self.filled();
        checks::at_least_one([
            ("--rounds", self.rounds),
            ("--users-per-round", self.users_per_round),
            ("--local-epochs", filled.local_epochs),
            ("--local-batch-size", filled.local_batch_size),
            ("--max-examples", self.max_examples),
            ("--length", self.length),
            ("--embedding", self.embedding),
            ("--hidden", self.hidden),
            ("--evaluate-every", self.evaluate_every),
        ])?;
        checks::positive([
            ("--max-update-norm", self.max_update_norm.unwrap_or(1.0)),
            ("--quantile-lr", filled.quantile_lr),
            ("--local-lr", filled.local_lr),
            ("--server-lr", self.server_lr),
            ("--epsilon", self.epsilon.unwrap_or(EPSILON)),
            ("--noise-multiplier", self.noise_multiplier.unwrap_or(1.0)),
        ])?;
        for (name, value) in
            [("--target-quantile", filled.target_quantile), ("--count-share", filled.count_share)]
        {
            if !(value > 0.0 && value < 1.0) {
                let reason = format!("must be between 0 and 1, got {value}");
                return Err(TrainError::option(name, reason));
            }
        }
        let momentum = filled.server_momentum;
        if !(0.0..1.0).contains(&momentum) {
            let reason = format!("must be at least 0 and less than 1, got {momentum}; try 0.9");
            return Err(TrainError::option("--server-momentum", reason));
        }
        Ok(())
    }

    /// The plan for so many private users.
    ///
    /// # Errors
    ///
    /// For a number of users or a δ that does not fit, and those of the calibration.
    pub(super) fn plan<M: Module>(
        &self,
        users: usize,
        model: &M,
    ) -> Result<PrivacyPlan, TrainError> {
        if self.users_per_round > users {
            let reason = format!(
                "must be at most the {users} users to train on, got {}; give a smaller one",
                self.users_per_round
            );
            return Err(TrainError::option("--users-per-round", reason));
        }
        let epsilon = match (self.epsilon, self.noise_multiplier) {
            (None, Some(_)) => None,
            (epsilon, _) => Some(epsilon.unwrap_or(EPSILON)),
        };
        let noise = Noise {
            epsilon,
            delta: self.delta,
            noise_multiplier: self.noise_multiplier,
            insecure_seed: self.insecure_seed,
        };
        noise.check_delta(users, "users")?;
        let config = PrivacyPlanConfig::new(users, self.users_per_round as f64)
            .with_unit(UnitOfPrivacy::User)
            .with_clipping(self.clipping(model)?)
            .with_steps(self.rounds as u64);
        Ok(noise.apply(config)?.init()?)
    }

    /// The clipping policy, and beside it what estimates norms.
    fn clipping<M: Module>(&self, model: &M) -> Result<Box<dyn Clipping>, TrainError> {
        let clipping = self.policy(model)?;
        if !self.track_norms {
            return Ok(clipping);
        }
        let parameters = ParameterGroups::per_parameter(model)?;
        // The mean is of norms up to twice the higher of them.
        let tracker = QuantileTracker::new(parameters, [MEDIAN, 0.9])?.with_means();
        Ok(Box::new(tracker.with_clipping(clipping, CountNoise::Share(self.filled().count_share))))
    }

    fn policy<M: Module>(&self, model: &M) -> Result<Box<dyn Clipping>, TrainError> {
        let layers = match self.clipping {
            UserClippingName::Flat => {
                return Ok(Box::new(FlatClipping::new(self.max_update_norm.unwrap_or(1.0))?));
            }
            UserClippingName::Quantile => None,
            UserClippingName::LayerQuantile => Some(ParameterGroups::per_parameter(model)?),
        };
        let filled = self.filled();
        let mut clipping = QuantileClipping::new(filled.target_quantile)?
            .with_learning_rate(filled.quantile_lr)?
            .with_count_noise(CountNoise::Share(filled.count_share));
        if let Some(norm) = self.max_update_norm {
            clipping = clipping.with_initial(norm)?;
        }
        Ok(match layers {
            Some(layers) => Box::new(clipping.with_groups(layers)),
            None => Box::new(clipping),
        })
    }

    /// What a user computes.
    ///
    /// # Errors
    ///
    /// As [`FedAvgConfig::init`].
    pub(super) fn update(&self) -> Result<UserUpdate, TrainError> {
        let filled = self.filled();
        Ok(match self.algorithm {
            AlgorithmName::FedSgd => FedSgdConfig::new(self.max_examples).init()?,
            AlgorithmName::FedAvg => FedAvgConfig::new(filled.local_lr)
                .with_epochs(filled.local_epochs)
                .with_batch_size(filled.local_batch_size)
                .with_max_examples(self.max_examples)
                .init(SgdConfig::new().init())?,
        })
    }

    /// The server.
    pub(super) fn server(&self) -> ModuleOptimizer {
        let momentum = self.filled().server_momentum;
        match self.server_optimizer {
            OptimizerName::Adam => AdamConfig::new().init(),
            OptimizerName::Sgd if momentum == 0.0 => SgdConfig::new().init(),
            OptimizerName::Sgd => {
                let momentum = MomentumConfig::new().with_momentum(momentum);
                SgdConfig::new().with_momentum(Some(momentum.with_dampening(0.0))).init()
            }
        }
    }

    /// The settings that the rounds depend on: a resumed run must share them.
    pub(super) fn compared(&self) -> BTreeMap<String, String> {
        let filled = self.filled();
        let optional =
            |value: Option<f64>| value.map_or("not set".into(), |value| value.to_string());
        let path = |value: &Option<std::path::PathBuf>| {
            value.as_ref().map_or("not set".into(), |path| path.display().to_string())
        };
        [
            ("--users", self.users.map_or("all".into(), |users| users.to_string())),
            ("--vocabulary", path(&self.vocabulary)),
            ("--algorithm", typed(self.algorithm)),
            ("--rounds", self.rounds.to_string()),
            ("--users-per-round", self.users_per_round.to_string()),
            ("--epsilon", optional(self.epsilon)),
            ("--delta", format!("{:e}", self.delta)),
            ("--noise-multiplier", optional(self.noise_multiplier)),
            ("--clipping", typed(self.clipping)),
            ("--max-update-norm", optional(self.max_update_norm)),
            ("--target-quantile", filled.target_quantile.to_string()),
            ("--quantile-lr", filled.quantile_lr.to_string()),
            ("--count-share", filled.count_share.to_string()),
            ("--track-norms", self.track_norms.to_string()),
            ("--local-epochs", filled.local_epochs.to_string()),
            ("--local-batch-size", filled.local_batch_size.to_string()),
            ("--local-lr", filled.local_lr.to_string()),
            ("--max-examples", self.max_examples.to_string()),
            ("--server-optimizer", typed(self.server_optimizer)),
            ("--server-lr", self.server_lr.to_string()),
            ("--server-momentum", filled.server_momentum.to_string()),
            ("--length", self.length.to_string()),
            ("--embedding", self.embedding.to_string()),
            ("--hidden", self.hidden.to_string()),
            ("--backend", typed(self.backend)),
            ("--seed", self.seed.to_string()),
            ("--insecure-seed", self.insecure_seed.map_or("not set".into(), |s| s.to_string())),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_string(), value))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::tensor::Device;
    use clap::Parser;

    use super::*;
    use crate::models::NextTokenConfig;

    fn options(line: &str) -> FederatedOptions {
        let words = ["train", "shakespeare"].into_iter().chain(line.split_whitespace());
        FederatedOptions::try_parse_from(words).unwrap()
    }

    #[test]
    fn impossible_numbers_are_refused_by_the_name_of_the_option() {
        assert!(options("--federated").check().is_ok());
        for (line, expected) in [
            ("", "--federated must be given"),
            ("--federated --rounds 0", "--rounds must be at least 1"),
            ("--federated --local-lr 0", "--local-lr must be a number greater than 0, got 0"),
            ("--federated --epsilon -1", "--epsilon must be a number greater than 0, got -1"),
            ("--federated --server-momentum 1", "--server-momentum must be at least 0"),
            ("--federated --count-share 1", "--count-share must be between 0 and 1, got 1"),
        ] {
            let error = options(line).check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn options_that_another_choice_ignores_are_refused_by_name() {
        for (choice, option, needed) in [
            ("--clipping flat", "--target-quantile 0.9", "--clipping quantile"),
            ("--clipping flat", "--quantile-lr 3", "--clipping quantile"),
            ("--clipping flat", "--count-share 0.2", "--clipping quantile or --track-norms"),
            ("--algorithm fed-sgd", "--local-lr 77", "--algorithm fed-avg"),
            ("--algorithm fed-sgd", "--local-epochs 9", "--algorithm fed-avg"),
            ("--algorithm fed-sgd", "--local-batch-size 9", "--algorithm fed-avg"),
            ("--server-optimizer adam", "--server-momentum 0.3", "--server-optimizer sgd"),
        ] {
            let line = format!("--federated {choice} {option}");
            let error = options(&line).check().unwrap_err().to_string();
            let name = option.split(' ').next().unwrap();
            let expected =
                format!("{name} has no meaning with {choice}; leave it out, or give {needed}");
            assert_eq!(error, expected);
            assert!(options(&format!("--federated {option}")).check().is_ok(), "{option}");
        }
        let tracked = "--federated --clipping flat --track-norms --count-share 0.2";
        assert!(options(tracked).check().is_ok());
    }

    #[test]
    fn the_plan_protects_users_with_every_policy() {
        let model = NextTokenConfig::new(10).with_hidden(4).init(&Device::flex().autodiff());
        for clipping in ["flat", "quantile", "layer-quantile"] {
            for tracked in ["", "--track-norms"] {
                let line =
                    format!("--federated --users-per-round 50 --clipping {clipping} {tracked}");
                let plan = options(&line).plan(1000, &model).unwrap();
                assert_eq!(plan.unit(), &UnitOfPrivacy::User);
                assert_eq!((plan.dataset_size(), plan.expected_batch_size()), (1000, 50.0));
                let epsilon = plan.epsilon_at_end(1e-4).unwrap();
                assert!(epsilon <= 8.0 && epsilon > 7.9, "{clipping} {epsilon}");
                let means = plan.clipping().adapted();
                let means = means.iter().filter(|(name, _)| name.ends_with(" mean")).count();
                assert_eq!(means > 0, !tracked.is_empty());
            }
        }
        let error = options("--federated").plan(100, &model).unwrap_err().to_string();
        assert!(error.starts_with("--users-per-round must be at most the 100 users"), "{error}");
        let error = options("--federated --delta 1e-2").plan(1000, &model).unwrap_err().to_string();
        assert!(error.contains("less than 1 / users = 1.00e-3"), "{error}");
    }
}
