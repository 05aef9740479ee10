//! Transformer layers: compositions of attention, linear layers and layer norms.

mod feed_forward;
