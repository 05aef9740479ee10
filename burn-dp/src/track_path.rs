//! The path of a walk through a model.

/// Implements the methods of a [`ModuleVisitor`](burn::module::ModuleVisitor) or
/// [`ModuleMapper`](burn::module::ModuleMapper) that keep the path of the current value in a field
/// and, if a second field is given, the type of the module that holds each part of the path.
macro_rules! track_path {
    ($path:ident $(, $containers:ident)?) => {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.$path.push(name.to_string());
            $(self.$containers.push(_container_type.to_string());)?
        }

        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.$path.pop();
            $(self.$containers.pop();)?
        }
    };
}
