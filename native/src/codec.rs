//! A class of messages or records, as Python describes it.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyType};

use crate::converters::Converters;
use crate::reading::Cursor;
use crate::refusal::{Decided, Refusal};
use crate::slots::{EntityClass, Slot};
use crate::writing::Output;

/// Reads and writes the entities of one class.
#[pyclass(frozen, module = "quorate_native")]
pub struct Codec {
    pub class: EntityClass,
    pub is_flexible: bool,
    pub untagged: Vec<Field>,
    /// By their tags.
    pub tagged: Vec<TaggedField>,
    pub converters: Py<Converters>,
    /// Class -> its function in Python, which decides where a native one gives up.
    readers: Py<PyAny>,
    writers: Py<PyAny>,
}

pub struct Field {
    pub slot: Slot,
    pub kind: Kind,
    pub is_array: bool,
    pub is_nullable: bool,
    /// Whether a length is a varint.
    pub is_compact: bool,
    /// The fewest bytes of an element or value.
    pub width: usize,
}

pub struct TaggedField {
    pub tag: u32,
    pub field: Field,
    pub default: Py<PyAny>,
}

/// What a value, or an element of an array, is on the wire.
pub enum Kind {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float64,
    Uuid,
    ErrorCode,
    Duration32,
    Duration64,
    Instant,
    Text,
    Bytes,
    Struct(Nested),
}

/// The codec of a struct's class, which is asked for when the first struct is there.
pub struct Nested {
    class: Py<PyType>,
    codec_of: Py<PyAny>,
    found: PyOnceLock<Py<Codec>>,
}

impl Nested {
    pub fn codec(&self, py: Python<'_>) -> PyResult<&Codec> {
        let found = self.found.get_or_try_init(py, || {
            let codec = self.codec_of.bind(py).call1((&self.class,))?;
            Ok::<_, PyErr>(codec.cast_into::<Codec>()?.unbind())
        })?;
        Ok(found.get())
    }
}

/// A field as Python describes it: descriptor of the slot, Kafka's name of the type or None, class of the struct,
/// whether it is an array, may be null and has compact lengths, the fewest bytes, tag, default.
type Description<'py> = (
    Bound<'py, PyAny>,
    Option<String>,
    Option<Bound<'py, PyType>>,
    bool,
    bool,
    bool,
    usize,
    Option<u32>,
    Bound<'py, PyAny>,
);

fn kind_of(
    name: Option<&str>,
    class: Option<Bound<'_, PyType>>,
    codec_of: &Bound<'_, PyAny>,
) -> PyResult<Kind> {
    Ok(match (name, class) {
        (None, Some(class)) => Kind::Struct(Nested {
            class: class.unbind(),
            codec_of: codec_of.clone().unbind(),
            found: PyOnceLock::new(),
        }),
        (Some("bool"), _) => Kind::Bool,
        (Some("int8"), _) => Kind::Int8,
        (Some("int16"), _) => Kind::Int16,
        (Some("int32"), _) => Kind::Int32,
        (Some("int64"), _) => Kind::Int64,
        (Some("uint8"), _) => Kind::Uint8,
        (Some("uint16"), _) => Kind::Uint16,
        (Some("uint32"), _) => Kind::Uint32,
        (Some("uint64"), _) => Kind::Uint64,
        (Some("float64"), _) => Kind::Float64,
        (Some("uuid"), _) => Kind::Uuid,
        (Some("error_code"), _) => Kind::ErrorCode,
        (Some("timedelta_i32"), _) => Kind::Duration32,
        (Some("timedelta_i64"), _) => Kind::Duration64,
        (Some("datetime_i64"), _) => Kind::Instant,
        (Some("string"), _) => Kind::Text,
        (Some("bytes" | "records"), _) => Kind::Bytes,
        (name, _) => return Err(PyValueError::new_err(format!("no type {name:?}"))),
    })
}

#[pymethods]
impl Codec {
    /// `fields` in wire order; `codec_of` returns the codec of a struct's class; `readers` and `writers` have the
    /// functions in Python.
    #[new]
    fn new(
        class: &Bound<'_, PyType>,
        is_flexible: bool,
        fields: Vec<Description<'_>>,
        codec_of: Bound<'_, PyAny>,
        converters: Py<Converters>,
        readers: Py<PyAny>,
        writers: Py<PyAny>,
    ) -> PyResult<Self> {
        let (mut untagged, mut tagged) = (Vec::new(), Vec::new());
        for description in fields {
            let (slot, kind, of, is_array, is_nullable, is_compact, width, tag, default) = description;
            let kind = kind_of(kind.as_deref(), of, &codec_of)?;
            let slot = Slot::new(&slot)?;
            let field = Field { slot, kind, is_array, is_nullable, is_compact, width };
            match tag {
                None => untagged.push(field),
                Some(tag) => tagged.push(TaggedField { tag, field, default: default.unbind() }),
            }
        }
        if !is_flexible && !tagged.is_empty() {
            return Err(PyValueError::new_err(format!("{class} has tagged fields, but is not flexible")));
        }
        tagged.sort_by_key(|each| each.tag);
        let class = EntityClass::new(class)?;
        Ok(Self { class, is_flexible, untagged, tagged, converters, readers, writers })
    }

    /// (data, offset) -> (entity, offset after it)
    #[pyo3(signature = (data, offset, /))]
    fn read<'py>(&self, data: &Bound<'py, PyAny>, offset: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self.read_natively(data, offset) {
            Ok(read) => read.into_pyobject(data.py()).map(Bound::into_any),
            Err(Refusal::GiveUp) => self.in_python(data.py(), &self.readers, (data, offset)),
            Err(Refusal::Raised(error)) => Err(error),
        }
    }

    /// (buffer to append to, entity)
    #[pyo3(signature = (buffer, entity, /))]
    fn write(&self, buffer: &Bound<'_, PyAny>, entity: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.write_natively(buffer, entity) {
            Ok(()) => Ok(()),
            Err(Refusal::GiveUp) => self.in_python(buffer.py(), &self.writers, (buffer, entity)).map(drop),
            Err(Refusal::Raised(error)) => Err(error),
        }
    }
}

impl Codec {
    fn read_natively<'py>(
        &self,
        data: &Bound<'py, PyAny>,
        offset: &Bound<'py, PyAny>,
    ) -> Decided<(Bound<'py, PyAny>, usize)> {
        let Ok(bytes) = data.cast::<PyBytes>() else {
            return Err(Refusal::GiveUp);
        };
        // A subclass is `BoundedBytes`.
        let is_bounded = !data.is_exact_instance_of::<PyBytes>();
        let elements_max = if is_bounded { data.getattr("elements_max")?.extract()? } else { usize::MAX };
        let mut cursor = Cursor::bounded(bytes.as_bytes(), offset.extract()?, elements_max);
        let entity = self.read_entity(data.py(), &mut cursor)?;
        Ok((entity, cursor.offset))
    }

    fn write_natively(&self, buffer: &Bound<'_, PyAny>, entity: &Bound<'_, PyAny>) -> Decided<()> {
        let Ok(buffer) = buffer.cast_exact::<PyByteArray>() else {
            return Err(Refusal::GiveUp);
        };
        let start = buffer.len();
        let mut output = Output::to(buffer);
        let outcome = self.write_entity(&mut output, entity).and_then(|()| output.flush());
        if outcome.is_err() {
            buffer.resize(start)?;
        }
        outcome
    }

    fn in_python<'py>(
        &self,
        py: Python<'py>,
        functions: &Py<PyAny>,
        arguments: (&Bound<'py, PyAny>, &Bound<'py, PyAny>),
    ) -> PyResult<Bound<'py, PyAny>> {
        functions.bind(py).get_item(self.class.class(py))?.call1(arguments)
    }
}
