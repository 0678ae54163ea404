//! Entities from bytes that a peer controls: nothing is allocated before it is known that the bytes exist.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyString, PyTuple};

use crate::codec::{Codec, Field, Kind};
use crate::refusal::{Decided, Refusal};

/// The limits of `quorate_protocol.wire.schema`: beyond them Python refuses.
pub const STRING_SIZE_BYTES_MAX: usize = 0x7FFF;
pub const ARRAY_ELEMENTS_MAX: usize = 1_000_000;
const TAGGED_FIELDS_MAX: u32 = 10_000;

/// How long is read before other threads may run. Long requests are read in a thread, so that the event loop goes on
/// meanwhile. It must be longer than the interpreter's switch interval, 5 ms: a thread that has waited so long gets the
/// interpreter for sure, while one that is woken up earlier mostly finds it taken again, and begins to wait anew.
const READING_AT_ONCE: Duration = Duration::from_millis(10);
/// How many elements are read between two looks at the clock, some tenths of a millisecond.
const ELEMENTS_AT_ONCE: usize = 1_000;

/// Bytes, and the offset of those that are read next.
pub struct Cursor<'a> {
    data: &'a [u8],
    pub offset: usize,
    elements: usize,
    /// How many elements the arrays may still have in total.
    elements_left: usize,
    since: Option<Instant>,
}

impl<'a> Cursor<'a> {
    pub fn new(data: &'a [u8], offset: usize) -> Self {
        Self::bounded(data, offset, usize::MAX)
    }

    pub fn bounded(data: &'a [u8], offset: usize, elements_max: usize) -> Self {
        Self { data, offset, elements: 0, elements_left: elements_max, since: None }
    }

    /// Count the elements of an array before there is an object for any of them.
    fn array_of(&mut self, count: usize) -> Decided<()> {
        self.elements_left = self.elements_left.checked_sub(count).ok_or(Refusal::GiveUp)?;
        Ok(())
    }

    /// Count an element, and let other threads run from time to time.
    fn element(&mut self, py: Python<'_>) {
        self.elements += 1;
        if !self.elements.is_multiple_of(ELEMENTS_AT_ONCE) {
            return;
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() >= READING_AT_ONCE {
            py.detach(|| {});
            self.since = Some(Instant::now());
        }
    }

    pub fn left(&self) -> usize {
        self.data.len().saturating_sub(self.offset)
    }

    pub fn take(&mut self, count: usize) -> Decided<&'a [u8]> {
        let end = self.offset.checked_add(count).ok_or(Refusal::GiveUp)?;
        let taken = self.data.get(self.offset..end).ok_or(Refusal::GiveUp)?;
        self.offset = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Decided<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Refusal::GiveUp)
    }

    pub fn byte(&mut self) -> Decided<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// An unsigned number of at most 32 bits, seven bits per byte, low bits first.
    pub fn varint(&mut self) -> Decided<u32> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value as u32);
            }
        }
        Err(Refusal::GiveUp)
    }

    /// A compact length, or one of 32 bits; None for null.
    pub fn length(&mut self, is_compact: bool) -> Decided<Option<usize>> {
        if is_compact {
            return Ok((self.varint()? as usize).checked_sub(1));
        }
        match i32::from_be_bytes(self.array()?) {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).map_err(|_| Refusal::GiveUp),
        }
    }

    /// The length of a string.
    fn text_length(&mut self, is_compact: bool) -> Decided<Option<usize>> {
        if is_compact {
            return self.length(true);
        }
        match i16::from_be_bytes(self.array()?) {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).map_err(|_| Refusal::GiveUp),
        }
    }
}

impl Codec {
    pub fn read_entity<'py>(&self, py: Python<'py>, cursor: &mut Cursor<'_>) -> Decided<Bound<'py, PyAny>> {
        let entity = self.class.create(py)?;
        for field in &self.untagged {
            field.slot.set(&entity, &self.read_field(py, cursor, field)?)?;
        }
        if self.is_flexible {
            self.read_tags(cursor, &entity)?;
        }
        Ok(entity)
    }

    /// A section of tagged fields, of which unknown ones are skipped (KIP-482).
    fn read_tags(&self, cursor: &mut Cursor<'_>, entity: &Bound<'_, PyAny>) -> Decided<()> {
        let py = entity.py();
        for tagged in &self.tagged {
            tagged.field.slot.set(entity, tagged.default.bind(py))?;
        }
        let count = cursor.varint()?;
        if count > TAGGED_FIELDS_MAX {
            return Err(Refusal::GiveUp);
        }
        let mut previous = None;
        for _ in 0..count {
            let tag = cursor.varint()?;
            let size = cursor.varint()? as usize;
            if previous.is_some_and(|previous| tag <= previous) || size > cursor.left() {
                return Err(Refusal::GiveUp);
            }
            previous = Some(tag);
            let end = cursor.offset + size;
            if let Some(tagged) = self.tagged.iter().find(|tagged| tagged.tag == tag) {
                let value = self.read_field(py, cursor, &tagged.field)?;
                tagged.field.slot.set(entity, &value)?;
                if cursor.offset != end {
                    return Err(Refusal::GiveUp);
                }
            }
            cursor.offset = end;
        }
        Ok(())
    }

    fn read_field<'py>(
        &self,
        py: Python<'py>,
        cursor: &mut Cursor<'_>,
        field: &Field,
    ) -> Decided<Bound<'py, PyAny>> {
        if !field.is_array {
            return self.read_value(py, cursor, field);
        }
        let Some(count) = cursor.length(field.is_compact)? else {
            return null(py, field.is_nullable);
        };
        if count > ARRAY_ELEMENTS_MAX || count * field.width > cursor.left() {
            return Err(Refusal::GiveUp);
        }
        cursor.array_of(count)?;
        if let Kind::Int32 = field.kind {
            // Ids of brokers and partitions: nearly all arrays of numbers.
            let (numbers, _) = cursor.take(count * 4)?.as_chunks::<4>();
            return Ok(PyTuple::new(py, numbers.iter().map(|bytes| i32::from_be_bytes(*bytes)))?.into_any());
        }
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(self.read_value(py, cursor, field)?);
            cursor.element(py);
        }
        Ok(PyTuple::new(py, elements)?.into_any())
    }

    /// The value of a field that is no array, or an element of an array.
    fn read_value<'py>(
        &self,
        py: Python<'py>,
        cursor: &mut Cursor<'_>,
        field: &Field,
    ) -> Decided<Bound<'py, PyAny>> {
        macro_rules! number {
            ($type:ty) => {
                Ok(<$type>::from_be_bytes(cursor.array()?).into_pyobject(py).map_err(PyErr::from)?.into_any())
            };
        }
        match &field.kind {
            Kind::Bool => Ok(PyBool::new(py, cursor.byte()? != 0).to_owned().into_any()),
            Kind::Int8 => number!(i8),
            Kind::Int16 => number!(i16),
            Kind::Int32 => number!(i32),
            Kind::Int64 => number!(i64),
            Kind::Uint8 => number!(u8),
            Kind::Uint16 => number!(u16),
            Kind::Uint32 => number!(u32),
            Kind::Uint64 => number!(u64),
            Kind::Float64 => Ok(PyFloat::new(py, f64::from_be_bytes(cursor.array()?)).into_any()),
            Kind::Uuid => self.converters.get().uuid(py, cursor.array()?),
            Kind::ErrorCode => self.converters.get().error_code(py, i16::from_be_bytes(cursor.array()?)),
            Kind::Duration32 => {
                self.converters.get().duration(py, i32::from_be_bytes(cursor.array()?).into())
            }
            Kind::Duration64 => self.converters.get().duration(py, i64::from_be_bytes(cursor.array()?)),
            Kind::Instant => match i64::from_be_bytes(cursor.array()?) {
                -1 if field.is_nullable => Ok(py.None().into_bound(py)),
                value_ms => self.converters.get().instant(py, value_ms),
            },
            Kind::Text => match cursor.text_length(field.is_compact)? {
                None => null(py, field.is_nullable && !field.is_array),
                Some(length) if length > STRING_SIZE_BYTES_MAX => Err(Refusal::GiveUp),
                Some(length) => match std::str::from_utf8(cursor.take(length)?) {
                    Ok(text) => Ok(PyString::new(py, text).into_any()),
                    Err(_) => Err(Refusal::GiveUp),
                },
            },
            Kind::Bytes => match cursor.length(field.is_compact)? {
                None => null(py, field.is_nullable && !field.is_array),
                Some(length) => Ok(PyBytes::new(py, cursor.take(length)?).into_any()),
            },
            Kind::Struct(nested) => {
                if field.is_nullable && !field.is_array {
                    // After a presence byte (KIP-893).
                    match cursor.byte()? {
                        0xFF => return null(py, true),
                        1 => {}
                        _ => return Err(Refusal::GiveUp),
                    }
                }
                nested.codec(py)?.read_entity(py, cursor)
            }
        }
    }
}

fn null(py: Python<'_>, is_allowed: bool) -> Decided<Bound<'_, PyAny>> {
    if is_allowed { Ok(py.None().into_bound(py)) } else { Err(Refusal::GiveUp) }
}
