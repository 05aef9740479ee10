//! Models, data sets and experiments of the papers behind burn-dp.
