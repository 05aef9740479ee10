//! Bare parameters: positional tables, class tokens, initial states.
//!
//! Every example gets a copy of the parameter. The gradient of the parameter for example i is the
//! gradient of copy i.

use burn::tensor::Tensor;

use super::record::Record;
use super::rule::size;
use super::{Cost, Keep, Restriction, Rule};

/// Lifts the record of copies of a parameter.
pub(super) fn lift(record: &mut Record) {
    let output_grad = record.output_grad();
    record.push(Repeated { output_grad });
}

/// A bare parameter; every example has a copy of it.
#[derive(Clone, Debug)]
struct Repeated {
    /// `[batch_size, values]`.
    output_grad: Tensor<2>,
}

impl Rule for Repeated {
    fn kept_values(&self) -> usize {
        size(self.output_grad.shape())
    }

    fn batch_size(&self) -> usize {
        self.output_grad.dims()[0]
    }

    fn cost(&self) -> Cost {
        Cost { values: self.output_grad.dims()[1], ..Cost::default() }
    }

    fn instantiate(&self) -> Tensor<2> {
        self.output_grad.clone()
    }

    fn kept_sum(&self, coefficients: Tensor<1>, keep: &Keep) -> Tensor<1> {
        keep.weighted_rows(coefficients, self.instantiate())
    }

    fn restrict(&self, examples: &Restriction) -> Box<dyn Rule> {
        Box::new(Self { output_grad: examples.apply(&self.output_grad) })
    }
}

#[cfg(test)]
mod tests {
    use burn::module::{Module, Param};
    use burn::tensor::{Device, Tensor};

    use crate::grads::oracle::{check, losses, numbers, set};
    use crate::nn::{IntoPrivate, Private, parameter};
    use crate::test_devices::training_devices;

    #[derive(Module, Debug)]
    struct PrivateToken {
        table: Private<Param<Tensor<2>>>,
        class: Private<Param<Tensor<1>>>,
        temperature: Param<Tensor<1>>,
    }

    #[derive(Module, Debug)]
    struct PlainToken {
        table: Param<Tensor<2>>,
        class: Param<Tensor<1>>,
        temperature: Param<Tensor<1>>,
    }

    fn tokens(device: &Device) -> (PrivateToken, PlainToken) {
        let plain = PlainToken {
            table: set(Param::from_tensor(Tensor::zeros([3, 4], device)), 1),
            class: set(Param::from_tensor(Tensor::zeros([4], device)), 2),
            temperature: set(Param::from_tensor(Tensor::zeros([1], device)), 3),
        };
        let private = PrivateToken {
            table: plain.table.clone().private(),
            class: plain.class.clone().private(),
            temperature: plain.temperature.clone(),
        };
        (private, plain)
    }

    fn private_losses(model: &PrivateToken, x: Tensor<3>) -> Tensor<1> {
        let [batch_size, ..] = x.dims();
        let class: Tensor<2> = model.class.forward(batch_size);
        let temperature: Tensor<2> = parameter(&model.temperature, batch_size);
        let x = x + model.table.forward(batch_size);
        losses(Tensor::cat(vec![class.unsqueeze_dim(1), x], 1) * temperature.unsqueeze_dim::<3>(2))
    }

    fn plain_losses(model: &PlainToken, x: Tensor<3>) -> Tensor<1> {
        let [batch_size, ..] = x.dims();
        let class = model.class.val().unsqueeze::<3>().repeat_dim(0, batch_size);
        let x = x + model.table.val().unsqueeze();
        losses(Tensor::cat(vec![class, x], 1) * model.temperature.val().unsqueeze())
    }

    #[test]
    fn bare_parameters_equal_the_loop_over_examples() {
        for device in training_devices() {
            for batch_size in [1, 4] {
                let (private, plain) = tokens(&device);
                let x = numbers([batch_size, 3, 4], 5, &device);
                check(&private, &plain, x, private_losses, plain_losses);
            }
        }
    }

    #[test]
    fn two_uses_of_a_bare_parameter_are_summed_before_the_norm() {
        for device in training_devices() {
            let plain = set(Param::from_tensor(Tensor::zeros([4], &device)), 1);
            check(
                &plain.clone().private(),
                &plain,
                numbers([3, 4], 5, &device),
                |model: &Private<Param<Tensor<1>>>, x: Tensor<2>| {
                    let batch_size = x.dims()[0];
                    let once: Tensor<2> = model.forward(batch_size);
                    losses((x * once).tanh() + model.forward(batch_size))
                },
                |model: &Param<Tensor<1>>, x: Tensor<2>| {
                    losses((x * model.val().unsqueeze()).tanh() + model.val().unsqueeze())
                },
            );
        }
    }

    #[test]
    #[should_panic(expected = "have rank 2, not 3")]
    fn the_copies_of_a_parameter_have_one_axis_more() {
        let (private, _) = tokens(&training_devices().remove(0));
        let _: Tensor<3> = private.class.forward(2);
    }
}
