//! Checks of the losses against finite differences and changed examples.

use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::test_devices::cpu_devices;

/// Returns unstructured values between -2 and 2, in f64.
pub(super) fn values<const D: usize>(dims: [usize; D], device: &Device) -> Tensor<D> {
    let number = dims.iter().product::<usize>();
    let values: Vec<f64> = (0..number).map(|i| 2.0 * (12.9898 * (i as f64 + 1.0)).sin()).collect();
    Tensor::from_data(TensorData::new(values, dims), (device, DType::F64))
}

pub(super) fn to_vec<const D: usize>(tensor: &Tensor<D>) -> Vec<f64> {
    tensor.to_data().iter::<f64>().collect()
}

/// Panics unless `actual` equals `expected` up to `tolerance`, relative to values above 1.
pub(super) fn assert_close(actual: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(actual.len(), expected.len());
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() <= tolerance * e.abs().max(1.0), "value {i}: {a} instead of {e}");
    }
}

/// Returns the gradient of loss `example` with respect to the input.
fn gradient<const D: usize>(
    input: &Tensor<D>,
    loss: &impl Fn(Tensor<D>) -> Tensor<1>,
    example: usize,
) -> Vec<f64> {
    let device = input.device().autodiff();
    let leaf: Tensor<D> =
        Tensor::from_data(input.to_data(), (&device, input.dtype())).require_grad();
    let one = loss(leaf.clone()).narrow(0, example, 1);
    leaf.grad(&one.sum().backward()).map(|g| to_vec(&g)).expect("the loss depends on its input")
}

/// Checks the gradient of every loss with respect to every input by central differences, and that
/// the gradient with respect to the input of every *other* example is exactly zero.
pub(super) fn check_gradients<const D: usize>(
    input: Tensor<D>,
    loss: impl Fn(Tensor<D>) -> Tensor<1>,
) {
    let (step, dims) = (1e-5, input.dims());
    let data = to_vec(&input);
    let shifted = |k: usize, by: f64| {
        let mut data = data.clone();
        data[k] += by;
        to_vec(&loss(Tensor::from_data(TensorData::new(data, dims), (&input.device(), DType::F64))))
    };
    let row = data.len() / dims[0];
    let gradients: Vec<_> = (0..dims[0]).map(|i| gradient(&input, &loss, i)).collect();
    for k in 0..data.len() {
        let (above, below) = (shifted(k, step), shifted(k, -step));
        for (i, gradient) in gradients.iter().enumerate() {
            if k / row == i {
                // The differences have an error of about 1e-10 from step² and rounding.
                assert_close(&[gradient[k]], &[(above[i] - below[i]) / (2.0 * step)], 1e-8);
            } else {
                assert_eq!(gradient[k], 0.0, "loss {i} depends on input {k} of another example");
                assert_eq!(above[i], below[i], "loss {i} depends on input {k} of another example");
            }
        }
    }
}

/// Checks that loss 0 and its gradient keep every bit when extreme values replace the other
/// examples.
pub(super) fn check_confinement<const D: usize>(
    input: Tensor<D>,
    extreme: f64,
    loss: impl Fn(Tensor<D>) -> Tensor<1>,
) {
    let dims = input.dims();
    let data = to_vec(&input);
    let row = data.len() / dims[0];
    let signs = (0..data.len()).map(|k| if k % 2 == 0 { extreme } else { -extreme });
    let wild: Vec<f64> = data[..row].iter().copied().chain(signs.skip(row)).collect();
    let wild = Tensor::from_data(TensorData::new(wild, dims), (&input.device(), input.dtype()));
    assert_eq!(to_vec(&loss(input.clone()))[0], to_vec(&loss(wild.clone()))[0]);
    assert_eq!(gradient(&input, &loss, 0)[..row], gradient(&wild, &loss, 0)[..row]);
}

#[test]
#[should_panic(expected = "of another example")]
fn check_finds_a_loss_that_is_centered_over_the_batch() {
    let input = values([3, 2], &cpu_devices()[0]);
    check_gradients(input, |x| {
        let mean = x.clone().mean_dim(0);
        (x - mean).square().sum_dim(1).reshape([3])
    });
}

#[test]
#[should_panic(expected = "instead of")]
fn check_finds_a_wrong_gradient() {
    let input = values([3, 2], &cpu_devices()[0]);
    check_gradients(input, |x| (x.clone() * x.detach()).sum_dim(1).reshape([3]));
}
