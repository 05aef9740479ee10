use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor};
use proptest::prelude::*;

use super::{check, losses, numbers, set};
use crate::grads::{MemoryBound, PrivateBackward, Strategy};
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
            check(
                &layer.clone().private(),
                &layer,
                ids([batch_size, positions], words, &device),
                |model: &Private<Embedding>, x| losses(model.forward(whole(x))),
                |model: &Embedding, x| losses(model.forward(whole(x))),
            );
        }
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
            assert!(grads.strategies().all(|(_, strategy)| strategy == Strategy::Ghost));
        }
    }
}

#[derive(Module, Debug)]
struct PrivateTied {
    embedding: Private<Embedding>,
    hidden: Private<Linear>,
}

#[derive(Module, Debug)]
struct PlainTied {
    embedding: Embedding,
    hidden: Linear,
}

fn tied(words: usize, device: &Device) -> (PrivateTied, PlainTied) {
    let embedding = embedding(words, 4, device);
    let mut hidden = LinearConfig::new(4, 4).init(device);
    hidden.weight = set(hidden.weight, 7);
    let private =
        PrivateTied { embedding: embedding.clone().private(), hidden: hidden.clone().private() };
    (private, PlainTied { embedding, hidden })
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
fn a_tied_output_layer_counts_with_its_embedding() {
    for device in training_devices() {
        for (batch_size, positions, words) in [(1, 1, 3), (3, 4, 3), (2, 5, 20)] {
            let (private, plain) = tied(words, &device);
            let x = ids([batch_size, positions], words, &device);
            check(&private, &plain, x, private_tied, plain_tied);
        }
    }
}

// So many positions that the gradient of the output layer is formed during the pass; the embedding is added to it.
#[test]
fn a_tied_output_layer_with_many_positions_counts_with_its_embedding() {
    for device in training_devices() {
        let (private, plain) = tied(3, &device);
        let x = ids([2, 20], 3, &device);
        check(&private, &plain, x.clone(), private_tied, plain_tied);
        let grads = PrivateBackward::new()
            .with_memory_bound(MemoryBound::bytes(0))
            .run(private_tied(&private, x), &private)
            .unwrap();
        let formed =
            |(path, strategy)| path == "embedding.weight" && strategy == Strategy::Instantiate;
        assert!(grads.strategies().any(formed));
    }
}

#[test]
fn an_embedding_that_is_used_twice_is_summed_before_its_norm() {
    for device in training_devices() {
        let layer = embedding(6, 4, &device);
        fn twice(embed: impl Fn(Tensor<2, Int>) -> Tensor<3>, x: Tensor<2>) -> Tensor<1> {
            let first = losses(embed(whole(x.clone())));
            first + losses(embed(whole(x.narrow(1, 1, 2))).tanh())
        }
        check(
            &layer.clone().private(),
            &layer,
            ids([4, 5], 6, &device),
            |model: &Private<Embedding>, x| twice(|x| model.forward(x), x),
            |model: &Embedding, x| twice(|x| model.forward(x), x),
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..Default::default() })]

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
