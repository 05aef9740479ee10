//! Checked settings of user-level training.

use burn::module::Module;
use burn::optim::{ModuleOptimizer, SgdConfig};
use burn_dp::clipping::PublicNorms;
use burn_dp::model::ParameterGroups;
use burn_dp::optim::PrivacyPlan;
use burn_dp::updates::federated::{FedAvgConfig, FedSgdConfig, UserUpdate};
use burn_dp_accountant::UnitOfPrivacy;
use burn_dp_accountant::correlated_noise::Strategy;
use serde::Serialize;

use super::{AlgorithmName, RoundOptions};
use crate::training::optimizer::optimizer;
use crate::training::options::{ClippingName, DatasetName, as_typed, typed};
use crate::training::quantile::RuleName;
use crate::training::sampling::SamplingSettings;
use crate::training::thresholds::LayerOptions;
use crate::training::{
    EarlierLedgers, Mode, OptimizerName, PrivacySettings, TrainError, TrainOptions, checks,
};

/// Default of `--epsilon`.
const EPSILON: f64 = 8.0;

/// Maximum number of predictions in an example, and of values in a layer.
const MOST: usize = 65_535;

/// The settings of one user-level training run. Their serialized form contains what a resumed run
/// must share, by option.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FederatedSettings {
    /// Users, rounds and model.
    #[serde(flatten)]
    pub training: RoundOptions,
    /// How the update of a user is clipped.
    #[serde(serialize_with = "as_typed")]
    pub clipping: ClippingName,
    /// Quantile clipping: fraction of the users whose update should not be clipped.
    pub target_quantile: f64,
    /// Quantile clipping: learning rate of the threshold.
    pub quantile_lr: f64,
    /// Quantile clipping: how the threshold moves.
    #[serde(serialize_with = "as_typed")]
    pub quantile_rule: RuleName,
    /// Share of a round's privacy cost that counts may use.
    pub count_share: f64,
    /// Decay and groups of thresholds.
    #[serde(flatten)]
    pub layers: LayerOptions,
    /// Federated averaging: learning rate of the local steps.
    pub local_lr: f64,
    /// How the users of a round are drawn.
    #[serde(flatten)]
    pub sampling: SamplingSettings,
    /// The strategy that correlates the noise of the rounds.
    pub correlated_noise: Option<Strategy>,
    /// Budget and noise.
    #[serde(flatten)]
    pub privacy: PrivacySettings,
    /// Earlier releases on the same data; the plan of a resumed run compares them.
    #[serde(skip)]
    pub earlier: EarlierLedgers,
    /// Rounds between two measurements of public norms, if thresholds follow them.
    #[serde(rename = "evaluate-every")]
    pub public_norms_every: Option<usize>,
    /// Seed of the initial weights.
    pub seed: u64,
}

impl TryFrom<&TrainOptions> for FederatedSettings {
    type Error = TrainError;

    /// Checks the options that do not depend on the data.
    fn try_from(options: &TrainOptions) -> Result<Self, TrainError> {
        let dataset = options.data.dataset;
        if dataset != DatasetName::Shakespeare {
            let reason =
                format!("is for shakespeare, not {}; leave it out, or train it", typed(dataset));
            return Err(TrainError::option("--federated", reason));
        }
        if !options.federated {
            let reason = "must be given: the plays are trained with the speaking role as the unit \
                          of privacy and in no other way";
            return Err(TrainError::option("--federated", reason));
        }
        options.check_mode(&[Mode::Users])?;
        let clipping = options.clipping.map(|name| name.first("--clipping", "images"));
        let clipping = clipping.transpose()?.unwrap_or(ClippingName::Quantile);
        refuse_foreign(options, clipping)?;
        let sampling = options.sampling.check(&options.given, "--users-per-round")?;
        sampling.check_group(options.privacy.group)?;
        let settings = Self {
            training: options.rounds.clone(),
            clipping,
            target_quantile: options.quantile.target_quantile,
            quantile_lr: options.quantile.quantile_lr,
            quantile_rule: options.quantile.quantile_rule,
            count_share: options.quantile.count_share.unwrap_or(0.1),
            layers: options.layers.clone(),
            local_lr: options.local_lr.unwrap_or(1.0),
            sampling,
            correlated_noise: options.sampling.strategy()?,
            privacy: PrivacySettings::new(&options.privacy, Some(EPSILON), 1e-4)?,
            earlier: EarlierLedgers::read(&options.privacy.earlier_ledger, &options.run.output)?,
            public_norms_every: clipping.follows_public().then_some(options.rounds.evaluate_every),
            seed: options.data.seed,
        };
        let training = &settings.training;
        checks::at_least_one([
            ("--rounds", training.rounds),
            ("--users-per-round", training.users_per_round),
            ("--local-epochs", training.local_epochs),
            ("--local-batch-size", training.local_batch_size),
            ("--max-examples", training.max_examples),
            ("--length", training.length),
            ("--embedding", training.embedding),
            ("--hidden", training.hidden),
            ("--evaluate-every", training.evaluate_every),
        ])?;
        for (name, value) in [
            ("--length", training.length),
            ("--embedding", training.embedding),
            ("--hidden", training.hidden),
        ] {
            checks::at_most(name, value, MOST, ", to limit memory")?;
        }
        settings.layers.check()?;
        checks::positive([
            ("--max-update-norm", training.max_update_norm.unwrap_or(1.0)),
            ("--quantile-lr", settings.quantile_lr),
            ("--local-lr", settings.local_lr),
            ("--server-lr", training.server_lr),
        ])?;
        let shares = [
            ("--target-quantile", settings.target_quantile),
            ("--count-share", settings.count_share),
        ];
        checks::in_range(shares, |value| value > 0.0 && value < 1.0, "between 0 and 1")?;
        checks::below_one([("--server-momentum", training.server_momentum)])?;
        Ok(settings)
    }
}

/// Checks that no given option is ignored because of another choice.
fn refuse_foreign(options: &TrainOptions, clipping: ClippingName) -> Result<(), TrainError> {
    let (given, training) = (&options.given, &options.rounds);
    clipping.check_given(given, "--max-update-norm")?;
    if options.layers.layer_groups.is_some() && training.track_norms {
        let reason = "estimates norms of parameters, and with --layer-groups the thresholds are \
                      for groups of them; leave one of the two out";
        return Err(TrainError::option("--track-norms", reason));
    }
    let choice = match options.layers.layer_groups {
        Some(_) if !clipping.follows_public() => "--layer-groups".to_string(),
        _ => format!("--clipping {}", typed(clipping)),
    };
    if !clipping.follows_public() && options.layers.layer_groups.is_none() {
        given.refuse(&["--public-users"], &format!("with {choice}"), "--clipping layerwise")?;
    } else if !training.public_users {
        let reason = format!(
            "must be given with {choice}: about one in ten roles of --data-dir then set its \
             thresholds and are not protected; give it if these roles are public, or --clipping \
             layer-quantile, which needs none"
        );
        return Err(TrainError::option("--public-users", reason));
    }
    if !clipping.is_adaptive() {
        let choice = format!("with --clipping {}", typed(clipping));
        let of_quantile = ["--target-quantile", "--quantile-lr", "--quantile-rule"];
        given.refuse(&of_quantile, &choice, "--clipping quantile")?;
        if !training.track_norms {
            let needed = "--clipping quantile or --track-norms";
            given.refuse(&["--count-share"], &choice, needed)?;
        }
    }
    if training.algorithm == AlgorithmName::FedSgd {
        let of_averaging = ["--local-epochs", "--local-batch-size", "--local-lr"];
        given.refuse(&of_averaging, "with --algorithm fed-sgd", "--algorithm fed-avg")?;
    }
    if training.server_optimizer == OptimizerName::Adam {
        let choice = "with --server-optimizer adam";
        let of_sgd = ["--server-momentum", "--server-lr-over-threshold"];
        given.refuse(&of_sgd, choice, "--server-optimizer sgd")?;
    }
    Ok(())
}

impl FederatedSettings {
    /// Returns the settings of `train shakespeare --federated` without further options.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] if the defaults are impossible.
    pub fn of_program() -> Result<Self, TrainError> {
        let options = TrainOptions::read(["train", "shakespeare", "--federated"])
            .map_err(|error| TrainError::option("--federated", error.to_string()))?;
        Self::try_from(&options)
    }

    /// Returns the plan for a number of private users.
    ///
    /// # Arguments
    ///
    /// - `public_norms`: measures the norms of the updates of public users in each group
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Option`] for a number of users or a δ that does not fit, and
    /// [`TrainError::Privacy`] if the noise cannot be calibrated.
    pub(super) fn plan<M: Module>(
        &self,
        users: usize,
        model: &M,
        public_norms: impl Fn(ParameterGroups) -> Result<PublicNorms, TrainError>,
    ) -> Result<PrivacyPlan, TrainError> {
        let Self { training, privacy, sampling, correlated_noise, .. } = self;
        let users_per_round = training.users_per_round;
        if users_per_round > users && sampling.bins.is_none() {
            let reason = format!(
                "must be at most the {users} users to train on, got {users_per_round}; give a \
                 smaller one"
            );
            return Err(TrainError::option("--users-per-round", reason));
        }
        privacy.check_delta(users, "users")?;
        sampling.check_units(users, users_per_round, "users to train on")?;
        let config = sampling
            .plan(users, users_per_round, correlated_noise.as_ref())?
            .with_unit(UnitOfPrivacy::User)
            .with_clipping(self.tracked_policy(model, users, public_norms)?);
        privacy.plan(self.earlier.before(config), training.rounds as u64)
    }

    /// Returns the computation of a user.
    ///
    /// # Errors
    ///
    /// Returns [`TrainError::Privacy`] if a number is rejected.
    pub(super) fn update(&self) -> Result<UserUpdate, TrainError> {
        Ok(match self.training.algorithm {
            AlgorithmName::FedSgd => FedSgdConfig::new(self.training.max_examples).init()?,
            AlgorithmName::FedAvg => FedAvgConfig::new(self.local_lr)
                .with_epochs(self.training.local_epochs)
                .with_batch_size(self.training.local_batch_size)
                .with_max_examples(self.training.max_examples)
                .init(SgdConfig::new().init())?,
        })
    }

    /// Returns the learning rate of the server in a round with this clipping threshold.
    pub(super) fn server_lr(&self, threshold: f64) -> f64 {
        let RoundOptions { server_lr, server_lr_over_threshold, .. } = self.training;
        if server_lr_over_threshold { server_lr / threshold } else { server_lr }
    }

    /// Returns the optimizer of the server.
    pub(super) fn server(&self) -> ModuleOptimizer {
        optimizer(self.training.server_optimizer, self.training.server_momentum)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::tensor::Device;
    use burn_dp::PublicSource;
    use burn_dp::optim::SamplingScheme;
    use clap::ValueEnum;

    use super::super::norms::of_public_users;
    use super::*;
    use crate::models::{NextToken, NextTokenConfig};

    fn settings(line: &str) -> Result<FederatedSettings, TrainError> {
        let words = ["train", "shakespeare"].into_iter().chain(line.split_whitespace());
        FederatedSettings::try_from(&TrainOptions::read(words).unwrap())
    }

    fn plan(line: &str, users: usize, model: &NextToken) -> Result<PrivacyPlan, TrainError> {
        let settings = settings(line)?;
        let roles = vec![vec![vec![1; 41]]];
        let public = PublicSource::published("a role").data(roles)?;
        let device = Device::flex().autodiff();
        let norms = |groups| of_public_users(&settings, model, groups, &public, &device);
        settings.plan(users, model, norms)
    }

    #[test]
    fn impossible_numbers_are_refused_by_name() {
        assert!(settings("--federated").is_ok());
        for (line, expected) in [
            ("", "--federated must be given"),
            ("--federated --rounds 0", "--rounds must be at least 1"),
            ("--federated --local-lr 0", "--local-lr must be a number greater than 0, got 0"),
            ("--federated --epsilon -1", "--epsilon must be a number greater than 0, got -1"),
            ("--federated --server-momentum 1", "--server-momentum must be at least 0"),
            ("--federated --count-share 1", "--count-share must be between 0 and 1, got 1"),
            ("--federated --clipping layerwise", "--public-users must be given with --clipping"),
            ("--federated --public-users", "--public-users has no meaning with --clipping quan"),
            ("--federated --clipping per-layer --layer-groups 2", "given with --layer-groups"),
            ("--federated --clipping per-layer --layer-groups 0", "given with --layer-groups"),
            ("--federated --threshold-decay 0", "--threshold-decay must be a number greater"),
            (
                "--federated --clipping zhang --layer-groups 2 --public-users --track-norms",
                "--track-norms estimates norms of parameters",
            ),
        ] {
            let error = settings(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn options_that_another_choice_ignores_are_refused_by_name() {
        for (choice, option, needed) in [
            ("--clipping flat", "--target-quantile 0.9", "--clipping quantile"),
            ("--clipping flat", "--quantile-lr 3", "--clipping quantile"),
            ("--clipping layerwise", "--quantile-lr 3", "--clipping quantile"),
            ("--clipping layerwise", "--quantile-rule linear", "--clipping quantile"),
            ("--clipping flat", "--count-share 0.2", "--clipping quantile or --track-norms"),
            ("--clipping zhang", "--max-update-norm 2", "--clipping layerwise"),
            ("--algorithm fed-sgd", "--local-lr 77", "--algorithm fed-avg"),
            ("--algorithm fed-sgd", "--local-epochs 9", "--algorithm fed-avg"),
            ("--algorithm fed-sgd", "--local-batch-size 9", "--algorithm fed-avg"),
            ("--server-optimizer adam", "--server-momentum 0.3", "--server-optimizer sgd"),
            ("--server-optimizer adam", "--server-lr-over-threshold", "--server-optimizer sgd"),
        ] {
            let public = ["layerwise", "zhang"].iter().any(|name| choice.ends_with(name));
            let confirmed = if public { "--public-users" } else { "" };
            let line = format!("--federated {choice} {confirmed} {option}");
            let error = settings(&line).unwrap_err().to_string();
            let name = option.split(' ').next().unwrap();
            let expected =
                format!("{name} has no meaning with {choice}; leave it out, or give {needed}");
            assert_eq!(error, expected);
            assert!(settings(&format!("--federated {option}")).is_ok(), "{option}");
        }
        let tracked = "--federated --clipping flat --track-norms --count-share 0.2";
        assert!(settings(tracked).is_ok());
    }

    #[test]
    fn the_plan_protects_users_with_every_policy() {
        let model = NextTokenConfig::new(10).with_hidden(4).init(&Device::flex().autodiff());
        for &clipping in ClippingName::value_variants() {
            let confirmed = if clipping.follows_public() { "--public-users" } else { "" };
            let clipping = typed(clipping);
            for tracked in ["", "--track-norms"] {
                let line = format!(
                    "--federated --users-per-round 50 --clipping {clipping} {confirmed} {tracked}"
                );
                let plan = plan(&line, 1000, &model).unwrap();
                assert_eq!(plan.unit(), &UnitOfPrivacy::User);
                assert_eq!((plan.dataset_size(), plan.expected_batch_size()), (1000, 50.0));
                let epsilon = plan.epsilon_at_end(1e-4).unwrap();
                assert!(epsilon <= 8.0 && epsilon > 7.9, "{clipping} {epsilon}");
                let means = plan.clipping().adapted();
                let means = means.iter().filter(|(name, _)| name.ends_with(" mean")).count();
                assert_eq!(means > 0, !tracked.is_empty());
            }
        }
        for (policy, words) in [
            ("zhang", "per layer"),
            ("zhang --threshold-decay 0.5", "times 0.5 every 5 steps"),
            ("layerwise --layer-groups 2", "per layer"),
            ("multipliers --layer-groups 2", "multiplied"),
            ("per-layer --layer-groups 2", "per group"),
        ] {
            let line = format!("--federated --public-users --clipping {policy}");
            let plan = plan(&line, 1000, &model).unwrap();
            let described = plan.clipping().describe();
            assert!(described.contains(words), "{policy}: {described}");
            let groups = plan.clipping().thresholds(0).unwrap().groups().len();
            let merged = policy.contains("--layer-groups");
            assert_eq!(groups == 2, merged, "{policy}: {groups}");
        }
        let linear = plan("--federated --quantile-rule linear", 1000, &model).unwrap();
        let described = linear.clipping().describe();
        assert!(described.contains("by the linear rule"), "{described}");
        let error = plan("--federated", 100, &model).unwrap_err().to_string();
        assert!(error.starts_with("--users-per-round must be at most the 100 users"), "{error}");
        for (line, bins, mean) in [("--bins 7", 7, 1000.0 / 7.0), ("", 5, 200.0)] {
            let line = format!("--federated --sampling random-allocation {line}");
            let plan = plan(&line, 1000, &model).unwrap();
            assert_eq!(plan.sampling(), SamplingScheme::RandomAllocation { bins });
            assert_eq!(plan.expected_batch_size(), mean);
        }
        let line = "--federated --sampling min-separation --separation 11 --users-per-round 100";
        let error = plan(line, 1000, &model).unwrap_err().to_string();
        assert!(error.starts_with("--separation must be at most 10, the 1000 users"), "{error}");
        let error = plan("--federated --delta 1e-2", 1000, &model).unwrap_err().to_string();
        assert!(error.contains("less than 1 / users = 1/1000 = 1.00e-3"), "{error}");
    }
}
