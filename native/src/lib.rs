//! The codec of `quorate_protocol.wire.codec`, compiled.
//!
//! Python describes the fields of a class once, and a `Codec` reads and writes entities of that very class. A codec
//! never refuses anything: whatever is unusual or malformed it leaves to the function in Python for the same class,
//! so that values, errors and their texts are the same with and without this extension.
//!
//! The same holds for the lake: `batches` and `texts` read usual batches and records of logs, and leave the others to
//! `pyspark_quorate.source`.

mod batches;
mod checksum;
mod codec;
mod converters;
mod reading;
mod records;
mod refusal;
mod slots;
mod texts;
mod writing;

use pyo3::prelude::*;

#[pymodule]
mod quorate_native {
    #[pymodule_export]
    use crate::batches::{frame_records, usual_batches};
    #[pymodule_export]
    use crate::codec::Codec;
    #[pymodule_export]
    use crate::converters::Converters;
    #[pymodule_export]
    use crate::records::Records;
    #[pymodule_export]
    use crate::texts::{Program, Texts};

    /// Which arguments the functions take: `quorate_protocol.wire.codec.native` accepts this number alone.
    #[pymodule_export]
    const INTERFACE: u32 = 2;

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
