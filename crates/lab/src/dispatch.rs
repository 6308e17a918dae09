//! Dispatch by an algorithm's name: the only place where the lab is compiled for each algorithm.
//!
//! That takes minutes, so unit tests are built without it and know no algorithm by name. Code that runs an
//! algorithm is tested from `tests/`.

pub(crate) use all::{visit, visit_election, visit_election_variant, visit_variant};

#[cfg(not(test))]
mod all {
    pub(crate) use crate::mutants::election::visit as visit_election_variant;
    pub(crate) use crate::mutants::visit as visit_variant;
    pub(crate) use lockkeeper_core::registry::{visit, visit_election};
}

#[cfg(test)]
mod all {
    use crate::mutants;
    use lockkeeper_core::registry::{ElectionVisitor, Visitor};

    pub(crate) fn visit<V: Visitor>(_name: &str, _visitor: V) -> Option<V::Output> {
        None
    }

    pub(crate) fn visit_variant<V: mutants::Visitor>(_name: &str, _visitor: V) -> Option<V::Output> {
        None
    }

    pub(crate) fn visit_election<V: ElectionVisitor>(_name: &str, _visitor: V) -> Option<V::Output> {
        None
    }

    pub(crate) fn visit_election_variant<V: mutants::election::Visitor>(
        _name: &str,
        _visitor: V,
    ) -> Option<V::Output> {
        None
    }
}
