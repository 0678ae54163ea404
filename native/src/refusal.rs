//! Why a native function does not return.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

/// Why a native function does not return.
pub enum Refusal {
    /// The function in Python has to decide: it returns, or raises its own error.
    GiveUp,
    /// What is no `Exception`, such as KeyboardInterrupt, came out of a call into Python. It is passed on.
    Raised(PyErr),
}

pub type Decided<T> = Result<T, Refusal>;

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Self {
        Python::attach(|py| {
            if error.is_instance_of::<PyException>(py) { Refusal::GiveUp } else { Refusal::Raised(error) }
        })
    }
}
