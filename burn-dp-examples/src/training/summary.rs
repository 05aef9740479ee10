//! The results of a run in one line.

use std::fmt;

use super::Evaluation;
use super::progress::{percent, upwards};

/// What the last line of a run says.
pub(super) struct Summary<'a> {
    pub(super) model: &'a str,
    pub(super) dataset: &'a str,
    pub(super) test: Evaluation,
    /// Share of correct predictions of the averaged weights.
    pub(super) averaged_accuracy: Option<f64>,
    /// Upper bound of ε; absent if no finite bound is guaranteed.
    pub(super) epsilon: Option<f64>,
    /// δ at which ε is stated; absent without privacy.
    pub(super) delta: Option<f64>,
    /// The number of steps or rounds, with its noun.
    pub(super) length: String,
    pub(super) seconds: f64,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let accuracy = percent(self.test.accuracy);
        write!(f, "{} on {}: test accuracy {accuracy}", self.model, self.dataset)?;
        if let Some(averaged) = self.averaged_accuracy {
            write!(f, " (averaged weights {})", percent(averaged))?;
        }
        match (self.epsilon, self.delta) {
            (Some(epsilon), Some(delta)) => {
                write!(f, ", epsilon <= {} at delta = {delta:e}", upwards(epsilon))?;
            }
            (None, Some(_)) => f.write_str(", NOT PRIVATE: no finite epsilon is guaranteed")?,
            (_, None) => f.write_str(", not private")?,
        }
        write!(f, ", {}, {:.0} s of training", self.length, self.seconds)?;
        if !self.test.loss.is_finite() {
            f.write_str(
                "\nthe loss is not finite: the training diverged; try a smaller learning rate",
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_was_trained_and_what_is_guaranteed() {
        let summary = |epsilon, delta, loss| {
            let (model, dataset, length) = ("mlp", "digits", "3 steps".to_string());
            let (test, seconds) = (Evaluation { loss, accuracy: 0.5 }, 2.0);
            let averaged_accuracy = delta;
            Summary { model, dataset, test, averaged_accuracy, epsilon, delta, length, seconds }
                .to_string()
        };
        assert_eq!(
            summary(Some(1.5), Some(0.25), 1.0),
            "mlp on digits: test accuracy 50.00 % (averaged weights 25.00 %), epsilon <= 1.5000 at \
             delta = 2.5e-1, 3 steps, 2 s of training"
        );
        assert!(summary(None, Some(0.25), 1.0).contains("NOT PRIVATE"));
        let diverged = summary(None, None, f64::NAN);
        assert!(diverged.contains("50.00 %, not private, 3 steps"), "{diverged}");
        assert!(diverged.ends_with("diverged; try a smaller learning rate"), "{diverged}");
    }
}
