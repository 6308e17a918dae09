//! The errors of the search.

use super::bounds::MOST_MEMBERS;
use lockkeeper_member::SettingsError;

/// The reason why a cluster cannot be searched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewsError {
    /// Clusters with this algorithm are not searched.
    #[error("whole clusters are checked with naimi-trehel or ricart-agrawala, not with '{algorithm}'")]
    Algorithm {
        /// The name of the algorithm.
        algorithm: String,
    },
    /// The cluster is too small or too large.
    #[error("a cluster of 2 to {MOST_MEMBERS} members is checked, not of {members}")]
    Members {
        /// The number of members.
        members: usize,
    },
    /// The members reject their settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The members do not form the view in which the search starts.
    #[error("the members do not form a view")]
    NoFirstView,
    /// The client does not get the hold with which the search starts.
    #[error("the members do not grant and record the first hold")]
    NoFirstHold,
    /// There is no exhibit of this name.
    #[error("there is no exhibit '{name}'")]
    UnknownExhibit {
        /// The name that no exhibit has.
        name: String,
    },
    /// The search with this exhibit ends without a violation.
    #[error("the search does not find '{name}'")]
    NotFound {
        /// The name of the exhibit.
        name: String,
    },
}
