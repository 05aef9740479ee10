//! What the fuzz targets call: a function for each reader, which the tests of the workspace call
//! with the seeds too.

pub mod accountant;
pub mod data;
pub mod files;
pub mod library;
pub mod models;
pub mod seeds;
