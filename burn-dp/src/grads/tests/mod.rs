//! Compositions of layers, and properties of the backward pass that concern more than one rule.

#![allow(clippy::unwrap_used)]

mod adapters;
mod attention;
mod dropout;
mod empty_batch;
mod frozen;
mod groups;
mod half;
mod recurrent;
mod refusals;
mod robustness;
mod sequences;
mod tied;
mod transformer;
mod wrappers;
