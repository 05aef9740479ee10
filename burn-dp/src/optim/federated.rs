use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::Module;
use burn::tensor::Tensor;

use super::{DpOptimizer, RefusedStep};
use crate::clipping::PublicNorms;
use crate::random::{Domain, Stream};
use crate::sampling::{
    DistinctRecords, Draw, DrawPart, ExampleChoice, PhysicalBatch, RecordFacts, Sampler,
};
use crate::updates::federated::UserUpdate;
use crate::{DpError, PublicData};

/// The rounds of a user-level training; see [`updates::federated`](crate::updates::federated).
///
/// The optimizer is the server. A round releases the noisy mean of the updates of its users, which
/// the optimizer uses as a gradient. SGD with learning rate 1 applies it unchanged; momentum, Adam
/// and all other optimizers are post-processing.
///
/// # Privacy
///
/// The unit is the user. In each round a user takes part with the sampling probability of the plan.
/// Their update is clipped as a whole by the plan's policy, no matter what data they own and how
/// long they train. A user without examples contributes zero and is drawn like any other. A round
/// without users is noise alone and costs as much as any other.
///
/// A checkpoint of [`optimizer`](Self::optimizer) covers the whole training run: the users of a
/// round and the order of their examples follow from the key in it.
pub struct FederatedTraining {
    optim: DpOptimizer,
    update: UserUpdate,
    /// The sampler of the last round, from which the next draw may be cheaper to compute.
    sampler: Option<Box<dyn Sampler>>,
}

impl FederatedTraining {
    /// Creates the training with this server, which is new or restored from a checkpoint.
    ///
    /// # Errors
    ///
    /// Returns [`DpError::InvalidArgument`] if the unit of the plan is not the user.
    pub fn new(mut optim: DpOptimizer, update: UserUpdate) -> Result<Self, DpError> {
        optim.engine.begin_user_updates(&update)?;
        Ok(Self { optim, update, sampler: None })
    }

    /// Runs one round: users train, their clipped changes are added up and released with noise, and
    /// the server takes its step. Returns the new model.
    ///
    /// # Arguments
    ///
    /// - `lr`: learning rate of the server, which must not depend on private data; see
    ///   [`PublicSchedule`](super::PublicSchedule)
    /// - `users`: the examples of each user; their number is the data set size of the plan.
    ///   [`Distinct::by_user`](crate::sampling::Distinct::by_user) finds users in several items
    /// - `losses`: returns the losses of some examples of one user, `[examples]`, or their mean,
    ///   `[1]`
    ///
    /// # Errors
    ///
    /// Returns [`RefusedStep`], which holds the model. Nothing was released, and the model is
    /// unchanged, after an error of `losses`, [`DpError::Dataset`] if a user cannot be loaded, and
    /// the errors of [`DpOptimizer::unit_updates`]. The other errors come from
    /// [`DpOptimizer::step`], in particular [`DpError::BudgetExhausted`]; its documentation says
    /// which of them come after the release, with the model after the step.
    pub fn round<M, I, E>(
        &mut self,
        lr: impl Into<ModuleLearningRate>,
        model: M,
        users: &impl DistinctRecords<Vec<I>, E>,
        losses: impl FnMut(&M, Vec<I>) -> Result<Tensor<1>, DpError>,
    ) -> Result<M, Box<RefusedStep<M>>>
    where
        M: Module,
        I: Clone,
        E: std::error::Error + Send + Sync + 'static,
    {
        let round = async |model| self.round_async(lr, model, users, losses).await;
        let made = RefusedStep::blocking(model, round, "FederatedTraining::round_async");
        if made.is_err() {
            // In a browser the previous round may have been interrupted.
            self.optim.discard();
        }
        made
    }

    /// Runs one [`round`](Self::round) without blocking the thread, as browsers require.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`round`](Self::round).
    pub async fn round_async<M, I, E>(
        &mut self,
        lr: impl Into<ModuleLearningRate>,
        model: M,
        users: &impl DistinctRecords<Vec<I>, E>,
        losses: impl FnMut(&M, Vec<I>) -> Result<Tensor<1>, DpError>,
    ) -> Result<M, Box<RefusedStep<M>>>
    where
        M: Module,
        I: Clone,
        E: std::error::Error + Send + Sync + 'static,
    {
        // What a round left behind that was not awaited to its end.
        self.optim.discard();
        let made = match self.collect(&model, users, losses).await {
            Ok(draw) => self.optim.step_async(lr, model, draw).await,
            Err(error) => Err(RefusedStep::new(model, error)),
        };
        if made.is_err() {
            // The updates of these users must not enter another round.
            self.optim.discard();
        }
        made
    }

    async fn collect<M, I, E>(
        &mut self,
        model: &M,
        users: &impl DistinctRecords<Vec<I>, E>,
        mut losses: impl FnMut(&M, Vec<I>) -> Result<Tensor<1>, DpError>,
    ) -> Result<Draw, DpError>
    where
        M: Module,
        I: Clone,
        E: std::error::Error + Send + Sync + 'static,
    {
        self.optim.engine.admission().check_key()?;
        let sampler = match self.sampler.take() {
            Some(sampler) => sampler,
            None => self.optim.plan().sampler()?,
        };
        if users.len() != sampler.dataset_size() {
            return Err(DpError::invalid(
                "users",
                format!("must be {}, as in the plan, got {}", sampler.dataset_size(), users.len()),
            ));
        }
        let round = self.optim.next_step();
        let draw = sampler.draw(round)?;
        self.sampler = Some(sampler);
        let (update, key) = (&self.update, self.optim.engine.plan.key().clone());
        let choice = ExampleChoice::new(&key, round);
        let part = DrawPart::from(&draw).with_records(RecordFacts::of(users));
        let units = PhysicalBatch::new(draw.private_indices().to_vec(), part);
        let computed = |copy, user| {
            let mut items = users.items_of_step(vec![user], &choice).map_err(DpError::dataset)?;
            let Some(examples) = items.pop().filter(|_| items.is_empty()) else {
                return Err(DpError::invalid("users", "must return one item for each index"));
            };
            users.check_record(user, &examples)?;
            let order = Stream::new(&key, Domain::Shuffling, round, user as u64);
            update.compute(copy, examples, order, &mut losses)
        };
        self.optim.unit_updates_async(model, units, computed).await?;
        Ok(draw)
    }

    /// Passes the norms of updates of [public users](UserUpdate::of_public_user) to the clipping
    /// policy, between two rounds. Measure them with
    /// [`public_update_norms`](crate::updates::public_update_norms).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`DpOptimizer::learn_from_public`].
    pub fn learn_from_public(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        self.optim.learn_from_public(norms)
    }

    /// Names public data in the statement; see [`DpOptimizer::name_public_data`].
    pub fn name_public_data<T>(&mut self, data: &PublicData<T>) {
        self.optim.name_public_data(data);
    }

    /// Erases the key of the run; see [`DpOptimizer::forget_key`]. No further round is possible.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`DpOptimizer::forget_key`].
    pub fn forget_key(&mut self) -> Result<(), DpError> {
        self.sampler = None;
        self.optim.forget_key()
    }

    /// Returns the server, which has the ledger, ε, and the statement.
    pub fn optimizer(&self) -> &DpOptimizer {
        &self.optim
    }

    /// Returns the number of rounds that were released.
    pub fn rounds(&self) -> u64 {
        self.optim.next_step()
    }

    /// Returns what a user computes.
    pub fn update(&self) -> &UserUpdate {
        &self.update
    }
}

opaque_debug!(FederatedTraining, |this| optim: this.optim, update: this.update);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::data::dataset::InMemDataset;
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::SgdConfig;
    use burn::tensor::Device;
    use burn_dp_accountant::UnitOfPrivacy;

    use super::*;
    use crate::PublicSource;
    use crate::optim::PrivacyPlanConfig;
    use crate::updates::federated::FedSgdConfig;

    #[test]
    fn a_round_that_was_not_awaited_to_its_end_does_not_enter_the_next_one() {
        let plan = PrivacyPlanConfig::new(4, 4.0).with_steps(2).with_noise_multiplier(1.0);
        let plan = plan.with_unit(UnitOfPrivacy::User).init().unwrap();
        let update = FedSgdConfig::new(1).init().unwrap();
        let mut training =
            FederatedTraining::new(plan.optimizer(SgdConfig::new().init()), update).unwrap();
        let device = Device::flex().autodiff();
        let model: Linear = LinearConfig::new(1, 1).init(&device);
        let users = InMemDataset::new(vec![vec![0usize]; 4]);
        let losses = |model: &Linear, _: Vec<usize>| {
            Ok(model.forward(Tensor::<2>::ones([1, 1], &device)).reshape([1]))
        };
        // Cancelled after the updates and before the release.
        crate::device_read::wait(training.collect(&model, &users, losses)).unwrap();
        assert!(training.optim.engine.is_within_step());
        training.round(0.1, model, &users, losses).unwrap();
        assert_eq!(training.rounds(), 1);
    }

    #[test]
    fn public_data_is_named_and_no_round_follows_the_erased_key() {
        let plan = PrivacyPlanConfig::new(4, 2.0).with_steps(2).with_noise_multiplier(1.0);
        let plan = plan.with_unit(UnitOfPrivacy::User).init().unwrap();
        let update = FedSgdConfig::new(1).init().unwrap();
        let mut training =
            FederatedTraining::new(plan.optimizer(SgdConfig::new().init()), update).unwrap();
        training.name_public_data(&PublicSource::published("letters").data(vec![0]).unwrap());
        training.forget_key().unwrap();
        let facts = training.optimizer().statement(&[1e-3]).unwrap().facts;
        assert!(facts["public_data"].contains("letters"), "{facts:?}");
        let model = LinearConfig::new(1, 1).init(&Device::flex().autodiff());
        let users = InMemDataset::new(vec![vec![0usize]; 4]);
        let losses = |_: &Linear, _: Vec<usize>| Err(DpError::state("no user is drawn"));
        let error = training.round(0.1, model, &users, losses).unwrap_err().to_string();
        assert!(error.contains("the key of the run was erased"), "{error}");
    }
}
