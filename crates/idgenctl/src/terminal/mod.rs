//! The user's side: texts, errors, questions and signals.

pub mod error;
pub mod output;
pub mod signals;
pub mod text;
