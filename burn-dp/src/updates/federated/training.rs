use std::fmt;

use burn::data::dataset::Dataset;
use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::Module;
use burn::tensor::Tensor;

use crate::DpError;
use crate::clipping::PublicNorms;
use crate::optim::{DpOptimizer, RefusedStep};
use crate::random::SamplingKey;
use crate::sampling::Sampler;
use crate::updates::federated::UserUpdate;

/// The rounds of a user-level training.
///
/// The optimizer is the server: what a round releases is the negative mean update of its users, with
/// noise, which it takes for a gradient. SGD with learning rate 1 applies it as it is; momentum, Adam
/// and all others are post-processing.
///
/// # Privacy
///
/// The unit is the user. In each round a user takes part with the sampling probability of the plan, and
/// contributes one update that the plan's policy clips as a whole, whatever they own and however long
/// they train. A user without examples contributes zero and is drawn like any other. A round that nobody
/// takes part in is noise and costs as much as any other.
///
/// A checkpoint of [`optimizer`](Self::optimizer) is one of the whole training: the users of a round and
/// the order of their examples follow from the key in it.
pub struct FederatedTraining {
    optim: DpOptimizer,
    update: UserUpdate,
    sampler: Box<dyn Sampler>,
    key: SamplingKey,
}

impl FederatedTraining {
    /// Rounds with this server, new or restored from a checkpoint.
    ///
    /// # Errors
    ///
    /// [`DpError::InvalidArgument`] if the plan does not say that its unit is the user.
    pub fn new(mut optim: DpOptimizer, update: UserUpdate) -> Result<Self, DpError> {
        let key = optim.engine.begin_user_updates(&update)?;
        let sampler = optim.plan().sampler()?;
        Ok(Self { optim, update, sampler, key })
    }

    /// One round: users train, their clipped changes are added up, noised and released, and the server
    /// makes its step.
    ///
    /// # Arguments
    ///
    /// - `lr`: learning rate of the server
    /// - `users`: the examples of each user; as many users as the plan says
    /// - `losses`: of some examples of one user, `[examples]`, or `[1]`
    ///
    /// # Errors
    ///
    /// [`RefusedStep`] gives the model back: those of `losses` and of [`DpOptimizer::unit_updates`], before
    /// anything is released and with the model unchanged, and those of [`DpOptimizer::step`], in particular
    /// [`DpError::BudgetExhausted`]. The latter says which of them come after the release, with the model that
    /// has made the step.
    pub fn round<M, I, E>(
        &mut self,
        lr: impl Into<ModuleLearningRate>,
        model: M,
        users: &impl Dataset<Vec<I>, E>,
        losses: impl FnMut(&M, Vec<I>) -> Result<Tensor<1>, DpError>,
    ) -> Result<M, Box<RefusedStep<M>>>
    where
        M: Module,
        I: Clone,
        E: std::error::Error + Send + Sync + 'static,
    {
        let made = match self.collect(&model, users, losses) {
            Ok(draw) => self.optim.step(lr, model, draw),
            Err(error) => Err(RefusedStep::new(model, error)),
        };
        if made.is_err() {
            // What these users contributed is not for another round.
            self.optim.discard();
        }
        made
    }

    fn collect<M, I, E>(
        &mut self,
        model: &M,
        users: &impl Dataset<Vec<I>, E>,
        mut losses: impl FnMut(&M, Vec<I>) -> Result<Tensor<1>, DpError>,
    ) -> Result<crate::sampling::Draw, DpError>
    where
        M: Module,
        I: Clone,
        E: std::error::Error + Send + Sync + 'static,
    {
        if users.len() != self.sampler.dataset_size() {
            return Err(DpError::invalid(
                "users",
                format!(
                    "must be {}, as in the plan, got {}",
                    self.sampler.dataset_size(),
                    users.len()
                ),
            ));
        }
        let round = self.optim.next_step();
        let draw = self.sampler.draw(round)?;
        let (update, key) = (&self.update, self.key.of_step(round));
        self.optim.unit_updates(model, draw.private_indices(), |copy, &user| {
            let examples = users
                .get(user)
                .map_err(|error| DpError::io("data set", std::io::Error::other(error)))?;
            update.compute(copy, examples, (&key, user), &mut losses)
        })?;
        Ok(draw)
    }

    /// Gives the clipping policy norms of updates on public data, between two rounds: those of
    /// [public users](UserUpdate::of_public_user), added up by
    /// [`PublicNorms::add_update`](crate::clipping::PublicNorms::add_update).
    ///
    /// # Errors
    ///
    /// As [`DpOptimizer::learn_from_public`].
    pub fn learn_from_public(&mut self, norms: &PublicNorms) -> Result<(), DpError> {
        self.optim.learn_from_public(norms)
    }

    /// The server, with ledger, ε and statement.
    pub fn optimizer(&self) -> &DpOptimizer {
        &self.optim
    }

    /// The rounds that were released so far.
    pub fn rounds(&self) -> u64 {
        self.optim.next_step()
    }

    /// What a user computes.
    pub fn update(&self) -> &UserUpdate {
        &self.update
    }
}

impl fmt::Debug for FederatedTraining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FederatedTraining")
            .field("optim", &self.optim)
            .field("update", &self.update)
            .finish_non_exhaustive()
    }
}
