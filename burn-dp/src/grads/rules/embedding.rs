//! Embeddings.
//!
//! An embedding is a linear layer whose inputs are unit vectors; only their indices are kept. With
//! `output[i, t] = weight[ids[i, t]]`, the gradient of row v for example i is
//! `Σ_{t: ids[i, t] = v} output_grad[i, t]`, and its squared norm is the sum over v of the squared
//! norms of these sums: positions with equal indices are added first. A tied output layer
//! (`attend`) contributes outer products with two dense factors to the same sum; the cross terms
//! enter the norm.
//!
//! # References
//!
//! - Li, Tramèr, Liang, Hashimoto, Large language models can be strong differentially private
//!   learners, 2022, section 4 (ghost clipping).
//! - Press and Wolf, Using the output embedding to improve language models, 2017 (tied output
//!   layers).

use super::outer::OuterProducts;
use super::record::Record;
use crate::DpError;
use crate::ops;

/// Lifts the record of `weight[ids]`.
///
/// # Errors
///
/// Returns [`DpError::InvalidArgument`] with the first id that is not a row of the weight: its
/// gradient would be added to the row of another id, or another example.
pub(super) fn lift(record: &mut Record) -> Result<(), DpError> {
    let output_grad = record.output_grad::<3>();
    if let (Some(weight), Some(ids)) = (record.weight(), record.ids()) {
        if let Some(id) = ops::first_outside(&ids, weight[0])? {
            return Err(DpError::invalid(
                "indices",
                format!(
                    "must be rows of the weight: id {id} is outside of the vocabulary of {}; map \
                     unknown tokens to a row of their own",
                    weight[0]
                ),
            ));
        }
        // In a browser, indices on a GPU are not compared; losses with invalid indices are NaN.
        let ids = if cfg!(target_family = "wasm") { ops::bounded(ids, weight[0]).0 } else { ids };
        let ids = ops::widened(ids);
        record.push_outer(OuterProducts::indexed(weight[0], ids, output_grad));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::module::Module;
    use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
    use burn::tensor::{Device, Int, Tensor};
    use proptest::prelude::*;

    use crate::grads::oracle::{cases, check, check_layer, check_products, losses, numbers, set};
    use crate::grads::{MemoryBound, NormMethod, PrivateBackward};
    use crate::nn::{IntoPrivate, Private};
    use crate::test_devices::training_devices;

    fn embedding(words: usize, d_model: usize, device: &Device) -> Embedding {
        let mut layer = EmbeddingConfig::new(words, d_model).init(device);
        layer.weight = set(layer.weight, 3);
        layer
    }

    /// Indices below `words`, as floats.
    fn ids(shape: [usize; 2], words: usize, device: &Device) -> Tensor<2> {
        ((numbers(shape, 11, device) + 1.0) * (words as f64 / 2.0)).floor()
    }

    fn whole(x: Tensor<2>) -> Tensor<2, Int> {
        x.int()
    }

    #[test]
    fn embeddings_equal_the_loop_over_examples() {
        for device in training_devices() {
            for (batch_size, positions, words) in [(1, 1, 5), (4, 1, 5), (3, 7, 5), (2, 9, 100)] {
                let layer = embedding(words, 4, &device);
                let x = ids([batch_size, positions], words, &device);
                check_layer!(layer, x, |model, x| losses(model.forward(whole(x))));
            }
        }
    }

    // Sharp edge: an id of private data that is not a row of the weight.
    #[test]
    fn an_id_outside_of_the_vocabulary_is_an_error_on_every_backend() {
        for device in training_devices() {
            let (private, _) = tied(5, &device);
            // The gradient of the tied layer is instantiated, with five rows for each example.
            let backwards = [
                PrivateBackward::new(),
                PrivateBackward::new().with_memory_bound(MemoryBound::bytes(0)),
                PrivateBackward::new().with_materialized_gradients(),
            ];
            for (backward, id) in backwards.iter().flat_map(|b| [-1.0, 5.0, 9.0].map(|id| (b, id)))
            {
                let x = Tensor::<2>::from_floats([[0.0, 1.0], [id, 2.0], [3.0, 4.0]], &device);
                let error = backward.run(private_tied(&private, x), &private).map(|_| ());
                let error = error.unwrap_err().to_string();
                assert!(error.contains(&format!("id {id} is outside of the vocabulary of 5")));
            }
        }
    }

    #[test]
    fn rows_of_ids_outside_of_the_vocabulary_are_undefined_and_others_are_not() {
        for device in training_devices() {
            let layer = embedding(5, 2, &device);
            let x = Tensor::<2>::from_floats([[0.0, 5.0], [-1.0, 4.0]], &device);
            for private in [layer.clone().private(), layer.clone().no_grad().private()] {
                let found = private.forward(whole(x.clone()));
                let finite: Vec<bool> =
                    found.into_data().iter::<f32>().map(f32::is_finite).collect();
                let expected = [true, false, false, true].map(|row| [row; 2]).concat();
                assert_eq!(finite, expected);
            }
            // In an ordinary pass, which cannot return an error, the gradient is NaN.
            let private = layer.private();
            let grads = losses(private.forward(whole(x))).sum().backward();
            let grad = private.inner.weight.val().grad(&grads).unwrap().into_data();
            assert!(grad.iter::<f32>().any(f32::is_nan));
        }
    }

    #[test]
    fn an_embedding_is_never_instantiated() {
        for device in training_devices() {
            let layer = embedding(50, 4, &device).private();
            for bound in [MemoryBound::default(), MemoryBound::bytes(0)] {
                let losses = losses(layer.forward(whole(ids([3, 6], 50, &device))));
                let backward = PrivateBackward::new().with_memory_bound(bound);
                let grads = backward.run(losses, &layer).unwrap();
                assert!(grads.norm_methods().all(|(_, method)| method == NormMethod::Ghost));
            }
        }
    }

    #[test]
    fn products_with_a_direction_equal_those_of_single_examples() {
        for device in training_devices() {
            let layer = embedding(5, 4, &device).private();
            let x = ids([3, 6], 5, &device);
            check_products(&layer, || losses(layer.forward(whole(x.clone()))));
        }
    }

    #[derive(Module, Debug)]
    struct Tied<E, L> {
        embedding: E,
        hidden: L,
    }

    type PrivateTied = Tied<Private<Embedding>, Private<Linear>>;
    type PlainTied = Tied<Embedding, Linear>;

    fn tied(words: usize, device: &Device) -> (PrivateTied, PlainTied) {
        let embedding = embedding(words, 4, device);
        let mut hidden = LinearConfig::new(4, 4).init(device);
        hidden.weight = set(hidden.weight, 7);
        let private =
            Tied { embedding: embedding.clone().private(), hidden: hidden.clone().private() };
        (private, Tied { embedding, hidden })
    }

    fn plain_tied(model: &PlainTied, x: Tensor<2>) -> Tensor<1> {
        let hidden = model.hidden.forward(model.embedding.forward(whole(x))).tanh();
        losses(hidden.matmul(model.embedding.weight.val().transpose().unsqueeze()))
    }

    fn private_tied(model: &PrivateTied, x: Tensor<2>) -> Tensor<1> {
        let hidden = model.hidden.forward(model.embedding.forward(whole(x))).tanh();
        losses(model.embedding.attend(hidden))
    }

    #[test]
    fn a_tied_output_layer_is_added_to_its_embedding() {
        for device in training_devices() {
            for (batch_size, positions, words) in [(1, 1, 3), (3, 4, 3), (2, 5, 20)] {
                let (private, plain) = tied(words, &device);
                let x = ids([batch_size, positions], words, &device);
                check(&private, &plain, x, private_tied, plain_tied);
            }
        }
    }

    // There are enough positions to instantiate the gradient of the output layer during the pass;
    // the embedding is added to it.
    #[test]
    fn a_tied_output_layer_with_many_positions_is_added_to_its_embedding() {
        for device in training_devices() {
            let (private, plain) = tied(3, &device);
            let x = ids([2, 20], 3, &device);
            check(&private, &plain, x.clone(), private_tied, plain_tied);
            let grads = PrivateBackward::new()
                .with_memory_bound(MemoryBound::bytes(0))
                .run(private_tied(&private, x), &private)
                .unwrap();
            let formed =
                |(path, method)| path == "embedding.weight" && method == NormMethod::Instantiate;
            assert!(grads.norm_methods().any(formed));
        }
    }

    #[test]
    fn two_uses_of_an_embedding_are_summed_before_the_norm() {
        for device in training_devices() {
            let layer = embedding(6, 4, &device);
            fn twice(embed: impl Fn(Tensor<2, Int>) -> Tensor<3>, x: Tensor<2>) -> Tensor<1> {
                let first = losses(embed(whole(x.clone())));
                first + losses(embed(whole(x.narrow(1, 1, 2))).tanh())
            }
            let x = ids([4, 5], 6, &device);
            check_layer!(layer, x, |model, x| twice(|x| model.forward(x), x));
        }
    }

    // 3 examples with 200 rows each: the index of a row does not fit into eight bits.
    #[cfg(feature = "flex")]
    #[test]
    fn ids_of_eight_bits_stay_in_the_rows_of_their_example() {
        use burn::tensor::DType;

        let device = Device::flex().autodiff();
        let (private, plain) = tied(200, &device);
        let x = ids([3, 300], 200, &device);
        let of_bytes = |x| whole(x).cast(DType::U8);
        check(
            &private,
            &plain,
            x,
            |model, x| {
                let hidden = model.embedding.forward(of_bytes(x));
                losses(model.embedding.attend(model.hidden.forward(hidden).tanh()))
            },
            plain_tied,
        );
    }

    proptest! {
        #![proptest_config(cases(8))]

        #[test]
        fn random_tied_models_equal_the_loop_over_examples(
            batch_size in 1usize..5,
            positions in 1usize..8,
            words in 1usize..30,
        ) {
            for device in training_devices() {
                let (private, plain) = tied(words, &device);
                check(
                    &private,
                    &plain,
                    ids([batch_size, positions], words, &device),
                    private_tied,
                    plain_tied,
                );
            }
        }
    }
}
