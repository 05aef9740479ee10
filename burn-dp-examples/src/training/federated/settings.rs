//! What the options mean: checked before anything is read or written.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, ModuleOptimizer, SgdConfig};
use burn_dp::clipping::{
    Clipping, CountNoise, FlatClipping, ParameterGroups, QuantileClipping, QuantileTracker,
};
use burn_dp::federated::{FedAvgConfig, FedSgdConfig, UserUpdate};
use burn_dp::optim::{PrivacyPlan, PrivacyPlanConfig};
use burn_dp_accountant::UnitOfPrivacy;

use super::{AlgorithmName, FederatedOptions, UserClippingName};
use crate::training::noise::Noise;
use crate::training::options::typed;
use crate::training::{OptimizerName, TrainError};

/// Default of `--epsilon`.
const EPSILON: f64 = 8.0;

/// The quantile that is shown of the norms that are tracked.
pub(super) const MEDIAN: f64 = 0.5;

impl FederatedOptions {
    /// Refuses numbers that are impossible whatever the data.
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
        for (name, value) in [
            ("--rounds", self.rounds),
            ("--users-per-round", self.users_per_round),
            ("--local-epochs", self.local_epochs),
            ("--local-batch-size", self.local_batch_size),
            ("--max-examples", self.max_examples),
            ("--length", self.length),
            ("--embedding", self.embedding),
            ("--hidden", self.hidden),
            ("--evaluate-every", self.evaluate_every),
        ] {
            if value == 0 {
                return Err(TrainError::option(name, "must be at least 1, got 0"));
            }
        }
        for (name, value) in [
            ("--max-update-norm", self.max_update_norm.unwrap_or(1.0)),
            ("--quantile-lr", self.quantile_lr),
            ("--local-lr", self.local_lr),
            ("--server-lr", self.server_lr),
            ("--epsilon", self.epsilon.unwrap_or(EPSILON)),
            ("--noise-multiplier", self.noise_multiplier.unwrap_or(1.0)),
        ] {
            if !(value > 0.0 && value.is_finite()) {
                let reason = format!("must be a number greater than 0, got {value}");
                return Err(TrainError::option(name, reason));
            }
        }
        for (name, value) in
            [("--target-quantile", self.target_quantile), ("--count-share", self.count_share)]
        {
            if !(value > 0.0 && value < 1.0) {
                let reason = format!("must be between 0 and 1, got {value}");
                return Err(TrainError::option(name, reason));
            }
        }
        if !(0.0..1.0).contains(&self.server_momentum) {
            let reason = format!(
                "must be at least 0 and less than 1, got {}; try 0.9",
                self.server_momentum
            );
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
        let tracker = QuantileTracker::alone(parameters, [MEDIAN, 0.9])?.with_means();
        Ok(Box::new(tracker.beside(clipping, CountNoise::Share(self.count_share))))
    }

    fn policy<M: Module>(&self, model: &M) -> Result<Box<dyn Clipping>, TrainError> {
        let layers = match self.clipping {
            UserClippingName::Flat => {
                return Ok(Box::new(FlatClipping::new(self.max_update_norm.unwrap_or(1.0))?));
            }
            UserClippingName::Quantile => None,
            UserClippingName::LayerQuantile => Some(ParameterGroups::per_parameter(model)?),
        };
        let mut clipping = QuantileClipping::new(self.target_quantile)?
            .with_learning_rate(self.quantile_lr)?
            .with_count_noise(CountNoise::Share(self.count_share));
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
        Ok(match self.algorithm {
            AlgorithmName::FedSgd => FedSgdConfig::new(self.max_examples).init()?,
            AlgorithmName::FedAvg => FedAvgConfig::new(self.local_lr)
                .with_epochs(self.local_epochs)
                .with_batch_size(self.local_batch_size)
                .with_max_examples(self.max_examples)
                .init(SgdConfig::new().init())?,
        })
    }

    /// The server.
    pub(super) fn server(&self) -> ModuleOptimizer {
        match self.server_optimizer {
            OptimizerName::Adam => AdamConfig::new().init(),
            OptimizerName::Sgd if self.server_momentum == 0.0 => SgdConfig::new().init(),
            OptimizerName::Sgd => {
                let momentum = MomentumConfig::new().with_momentum(self.server_momentum);
                SgdConfig::new().with_momentum(Some(momentum.with_dampening(0.0))).init()
            }
        }
    }

    /// The settings that the rounds depend on: a resumed run must share them.
    pub(super) fn compared(&self) -> BTreeMap<String, String> {
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
            ("--target-quantile", self.target_quantile.to_string()),
            ("--quantile-lr", self.quantile_lr.to_string()),
            ("--count-share", self.count_share.to_string()),
            ("--track-norms", self.track_norms.to_string()),
            ("--local-epochs", self.local_epochs.to_string()),
            ("--local-batch-size", self.local_batch_size.to_string()),
            ("--local-lr", self.local_lr.to_string()),
            ("--max-examples", self.max_examples.to_string()),
            ("--server-optimizer", typed(self.server_optimizer)),
            ("--server-lr", self.server_lr.to_string()),
            ("--server-momentum", self.server_momentum.to_string()),
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
