//! The records of a batch: `quorate_protocol.records.batch` says what they look like.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple, PyType};

use crate::reading::Cursor;
use crate::refusal::{Decided, Refusal};
use crate::slots::{EntityClass, Slot};

/// What a record takes besides its value and three varints: attributes, timestamp delta, key length, header count.
const FIXED_BYTES: usize = 4;

/// Splits batches into records, and makes the records of batches.
#[pyclass(frozen, module = "quorate_native")]
pub struct Records {
    class: EntityClass,
    offset_delta: Slot,
    timestamp_ms: Slot,
    key: Slot,
    value: Slot,
}

#[pymethods]
impl Records {
    /// `class` is that of a record.
    #[new]
    fn new(class: &Bound<'_, PyType>) -> PyResult<Self> {
        Ok(Self {
            offset_delta: Slot::new(&class.getattr("offset_delta")?)?,
            timestamp_ms: Slot::new(&class.getattr("timestamp_ms")?)?,
            key: Slot::new(&class.getattr("key")?)?,
            value: Slot::new(&class.getattr("value")?)?,
            class: EntityClass::new(class)?,
        })
    }

    /// The `count` records that fill the bytes from `start` to `end`; None if Python has to decide.
    #[pyo3(signature = (data, start, end, count, base_timestamp_ms, /))]
    fn split<'py>(
        &self,
        data: &Bound<'py, PyAny>,
        start: usize,
        end: usize,
        count: usize,
        base_timestamp_ms: i64,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        decided(self.split_natively(data, start, end, count, base_timestamp_ms))
    }

    /// The bytes of records with these values, without keys and all of the batch's timestamp; None if Python has to
    /// decide.
    #[pyo3(signature = (values, /))]
    fn join<'py>(&self, values: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        decided(join_natively(values))
    }
}

fn decided<T>(outcome: Decided<T>) -> PyResult<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(Refusal::GiveUp) => Ok(None),
        Err(Refusal::Raised(error)) => Err(error),
    }
}

impl Records {
    fn split_natively<'py>(
        &self,
        data: &Bound<'py, PyAny>,
        start: usize,
        end: usize,
        count: usize,
        base_timestamp_ms: i64,
    ) -> Decided<Bound<'py, PyTuple>> {
        let py = data.py();
        let data = data.cast_exact::<PyBytes>().map_err(|_| Refusal::GiveUp)?;
        let data = data.as_bytes().get(..end).ok_or(Refusal::GiveUp)?;
        let mut cursor = Cursor::new(data, start);
        let mut records = Vec::new();
        for index in 0..count {
            let length = length(&mut cursor)?.ok_or(Refusal::GiveUp)?;
            let record_end = cursor.offset.checked_add(length).ok_or(Refusal::GiveUp)?;
            cursor.byte()?; // attributes
            let timestamp_ms = base_timestamp_ms.checked_add(zigzag(&mut cursor)?).ok_or(Refusal::GiveUp)?;
            let offset_delta = length_of(zigzag(&mut cursor)?)?.ok_or(Refusal::GiveUp)?;
            let key = content(py, &mut cursor)?;
            let value = content(py, &mut cursor)?;
            let has_headers = zigzag(&mut cursor)? != 0;
            if cursor.offset != record_end || offset_delta != index || has_headers {
                return Err(Refusal::GiveUp);
            }
            let record = self.class.create(py)?;
            let (offset_delta, timestamp_ms) = (number(py, offset_delta)?, number(py, timestamp_ms)?);
            self.offset_delta.set(&record, &offset_delta)?;
            self.timestamp_ms.set(&record, &timestamp_ms)?;
            self.key.set(&record, &key)?;
            self.value.set(&record, &value)?;
            records.push(record);
        }
        if cursor.offset != end {
            return Err(Refusal::GiveUp);
        }
        Ok(PyTuple::new(py, records)?)
    }
}

fn number<'py, T: IntoPyObject<'py>>(py: Python<'py>, value: T) -> Decided<Bound<'py, PyAny>> {
    value.into_bound_py_any(py).map_err(Refusal::from)
}

/// A number of at most 64 bits, as batches have them.
pub fn zigzag(cursor: &mut Cursor<'_>) -> Decided<i64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = cursor.byte()?;
        let bits = u64::from(byte & 0x7F);
        if bits << shift >> shift != bits {
            return Err(Refusal::GiveUp);
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    Err(Refusal::GiveUp)
}

/// A length; None for null.
pub fn length_of(value: i64) -> Decided<Option<usize>> {
    if value == -1 { Ok(None) } else { usize::try_from(value).map(Some).map_err(|_| Refusal::GiveUp) }
}

fn length(cursor: &mut Cursor<'_>) -> Decided<Option<usize>> {
    length_of(zigzag(cursor)?)
}

fn content<'py>(py: Python<'py>, cursor: &mut Cursor<'_>) -> Decided<Bound<'py, PyAny>> {
    match length(cursor)? {
        None => Ok(py.None().into_bound(py)),
        Some(length) => Ok(PyBytes::new(py, cursor.take(length)?).into_any()),
    }
}

fn write_zigzag(buffer: &mut Vec<u8>, value: usize) {
    let mut zigzag = value << 1;
    while zigzag > 0x7F {
        buffer.push(zigzag as u8 & 0x7F | 0x80);
        zigzag >>= 7;
    }
    buffer.push(zigzag as u8);
}

fn zigzag_size(value: usize) -> usize {
    let bits = usize::BITS - (value << 1 | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

fn join_natively<'py>(values: &Bound<'py, PyAny>) -> Decided<Bound<'py, PyBytes>> {
    let values = values.cast_exact::<PyList>().map_err(|_| Refusal::GiveUp)?;
    let mut buffer = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let value = value.cast_exact::<PyBytes>().map_err(|_| Refusal::GiveUp)?.as_bytes();
        let sizes = zigzag_size(index) + zigzag_size(value.len());
        write_zigzag(&mut buffer, FIXED_BYTES + sizes + value.len());
        buffer.extend_from_slice(&[0, 0]); // attributes, timestamp delta
        write_zigzag(&mut buffer, index);
        buffer.push(1); // no key: a length of -1
        write_zigzag(&mut buffer, value.len());
        buffer.extend_from_slice(value);
        buffer.push(0); // no headers
    }
    Ok(PyBytes::new(values.py(), &buffer))
}
