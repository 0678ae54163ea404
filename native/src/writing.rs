//! Entities to bytes: the counterpart of `reading`.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyString, PyTuple};

use crate::codec::{Codec, Field, Kind, TaggedField};
use crate::reading::{ARRAY_ELEMENTS_MAX, STRING_SIZE_BYTES_MAX};
use crate::refusal::{Decided, Refusal};
use crate::slots::append;

/// Contents of this size are copied straight into the caller's buffer.
const LARGE_BYTES: usize = 1 << 14;

/// What is written: bytes that are collected before the buffer of Python is touched, which costs more for each field.
pub struct Output<'a, 'py> {
    collected: Vec<u8>,
    buffer: Option<&'a Bound<'py, PyByteArray>>,
}

impl<'a, 'py> Output<'a, 'py> {
    pub fn to(buffer: &'a Bound<'py, PyByteArray>) -> Self {
        Self { collected: Vec::with_capacity(256), buffer: Some(buffer) }
    }

    /// Of a tagged field, whose size is written before it.
    fn apart() -> Self {
        Self { collected: Vec::new(), buffer: None }
    }

    fn push(&mut self, byte: u8) {
        self.collected.push(byte);
    }

    fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.collected.extend_from_slice(bytes);
    }

    fn content(&mut self, bytes: &[u8]) -> Decided<()> {
        if bytes.len() < LARGE_BYTES || self.buffer.is_none() {
            self.collected.extend_from_slice(bytes);
            return Ok(());
        }
        self.flush()?;
        self.buffer.map_or(Ok(()), |buffer| Ok(append(buffer, bytes)?))
    }

    /// Append what is collected to the buffer.
    pub fn flush(&mut self) -> Decided<()> {
        if let Some(buffer) = self.buffer {
            append(buffer, &self.collected)?;
            self.collected.clear();
        }
        Ok(())
    }
}

/// Append an unsigned number, seven bits per byte, low bits first.
fn write_varint(buffer: &mut Output<'_, '_>, mut value: usize) {
    while value > 0x7F {
        buffer.push(value as u8 & 0x7F | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

/// Append a compact length, or one of 32 bits; None is null.
fn write_length(buffer: &mut Output<'_, '_>, length: Option<usize>, is_compact: bool) -> Decided<()> {
    if is_compact {
        write_varint(buffer, length.map_or(0, |length| length + 1));
        return Ok(());
    }
    let length = length.map_or(Ok(-1), i32::try_from).map_err(|_| Refusal::GiveUp)?;
    buffer.extend_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Append the length of a string.
fn write_text_length(buffer: &mut Output<'_, '_>, length: Option<usize>, is_compact: bool) -> Decided<()> {
    if is_compact {
        return write_length(buffer, length, true);
    }
    let length = length.map_or(Ok(-1), i16::try_from).map_err(|_| Refusal::GiveUp)?;
    buffer.extend_from_slice(&length.to_be_bytes());
    Ok(())
}

impl Codec {
    pub fn write_entity(&self, buffer: &mut Output<'_, '_>, entity: &Bound<'_, PyAny>) -> Decided<()> {
        // A stranger with the same attributes is written in Python.
        if !self.class.is_class_of(entity) {
            return Err(Refusal::GiveUp);
        }
        for field in &self.untagged {
            self.write_field(buffer, field, &field.slot.get(entity)?)?;
        }
        if self.is_flexible {
            self.write_tags(buffer, entity)?;
        }
        Ok(())
    }

    /// The tagged fields that differ from their defaults (KIP-482).
    fn write_tags(&self, buffer: &mut Output<'_, '_>, entity: &Bound<'_, PyAny>) -> Decided<()> {
        let mut count = 0;
        let mut written = Output::apart();
        for TaggedField { tag, field, default } in &self.tagged {
            let value = field.slot.get(entity)?;
            if value.is(default) || !value.ne(default)? {
                continue;
            }
            let mut content = Output::apart();
            self.write_field(&mut content, field, &value)?;
            write_varint(&mut written, *tag as usize);
            write_varint(&mut written, content.collected.len());
            written.extend_from_slice(&content.collected);
            count += 1;
        }
        write_varint(buffer, count);
        buffer.content(&written.collected)?;
        Ok(())
    }

    fn write_field(
        &self,
        buffer: &mut Output<'_, '_>,
        field: &Field,
        value: &Bound<'_, PyAny>,
    ) -> Decided<()> {
        if !field.is_array {
            return self.write_value(buffer, field, value);
        }
        if value.is_none() {
            return match field.is_nullable {
                true => write_length(buffer, None, field.is_compact),
                false => Err(Refusal::GiveUp),
            };
        }
        match value.cast_exact::<PyTuple>() {
            Ok(values) => self.write_elements(buffer, field, values),
            Err(_) => self.write_shared(buffer, field, value),
        }
    }

    fn write_elements(
        &self,
        buffer: &mut Output<'_, '_>,
        field: &Field,
        values: &Bound<'_, PyTuple>,
    ) -> Decided<()> {
        if values.len() > ARRAY_ELEMENTS_MAX {
            return Err(Refusal::GiveUp);
        }
        write_length(buffer, Some(values.len()), field.is_compact)?;
        for each in values.iter_borrowed() {
            self.write_value(buffer, field, &each)?;
        }
        Ok(())
    }

    /// An array that many messages have in common, which keeps its encoding.
    fn write_shared(
        &self,
        buffer: &mut Output<'_, '_>,
        field: &Field,
        value: &Bound<'_, PyAny>,
    ) -> Decided<()> {
        let py = value.py();
        if !self.converters.get().is_shared(value) || !matches!(field.kind, Kind::Struct(_)) {
            return Err(Refusal::GiveUp);
        }
        if let Ok(encoded) = value.getattr(intern!(py, "encoded"))?.cast_exact::<PyBytes>() {
            return buffer.content(encoded.as_bytes());
        }
        let mut output = Output::apart();
        self.write_elements(&mut output, field, value.cast::<PyTuple>().map_err(|_| Refusal::GiveUp)?)?;
        value.setattr(intern!(py, "encoded"), PyBytes::new(py, &output.collected))?;
        buffer.content(&output.collected)
    }

    /// The value of a field that is no array, or an element of an array.
    fn write_value(
        &self,
        buffer: &mut Output<'_, '_>,
        field: &Field,
        value: &Bound<'_, PyAny>,
    ) -> Decided<()> {
        macro_rules! number {
            ($type:ty, $value:expr) => {
                buffer.extend_from_slice(&$value.extract::<$type>()?.to_be_bytes())
            };
        }
        match &field.kind {
            Kind::Bool => match value.cast_exact::<PyBool>() {
                Ok(value) => buffer.push(value.is_true().into()),
                Err(_) => return Err(Refusal::GiveUp),
            },
            Kind::Int8 => number!(i8, value),
            Kind::Int16 | Kind::ErrorCode => number!(i16, value),
            Kind::Int32 => number!(i32, value),
            Kind::Int64 => number!(i64, value),
            Kind::Uint8 => number!(u8, value),
            Kind::Uint16 => number!(u16, value),
            Kind::Uint32 => number!(u32, value),
            Kind::Uint64 => number!(u64, value),
            Kind::Float64 => match value.cast_exact::<PyFloat>() {
                Ok(value) => buffer.extend_from_slice(&value.value().to_be_bytes()),
                Err(_) => return Err(Refusal::GiveUp),
            },
            Kind::Uuid => buffer.extend_from_slice(&self.converters.get().uuid_bytes(value)?),
            Kind::Duration32 => {
                let value_ms = i32::try_from(self.converters.get().milliseconds(value)?);
                buffer.extend_from_slice(&value_ms.map_err(|_| Refusal::GiveUp)?.to_be_bytes());
            }
            Kind::Duration64 => {
                buffer.extend_from_slice(&self.converters.get().milliseconds(value)?.to_be_bytes());
            }
            Kind::Instant => number!(i64, self.converters.get().timestamp(value)?),
            Kind::Text => return self.write_text(buffer, field, value),
            Kind::Bytes => return self.write_bytes(buffer, field, value),
            Kind::Struct(nested) => {
                if field.is_nullable && !field.is_array {
                    // After a presence byte (KIP-893).
                    if value.is_none() {
                        buffer.push(0xFF);
                        return Ok(());
                    }
                    buffer.push(1);
                }
                nested.codec(value.py())?.write_entity(buffer, value)?;
            }
        }
        Ok(())
    }

    fn write_text(
        &self,
        buffer: &mut Output<'_, '_>,
        field: &Field,
        value: &Bound<'_, PyAny>,
    ) -> Decided<()> {
        if value.is_none() && field.is_nullable && !field.is_array {
            return write_text_length(buffer, None, field.is_compact);
        }
        let Ok(text) = value.cast_exact::<PyString>() else {
            return Err(Refusal::GiveUp);
        };
        let text = text.to_str()?.as_bytes();
        if text.len() > STRING_SIZE_BYTES_MAX {
            return Err(Refusal::GiveUp);
        }
        write_text_length(buffer, Some(text.len()), field.is_compact)?;
        buffer.extend_from_slice(text);
        Ok(())
    }

    fn write_bytes(
        &self,
        buffer: &mut Output<'_, '_>,
        field: &Field,
        value: &Bound<'_, PyAny>,
    ) -> Decided<()> {
        if value.is_none() && field.is_nullable && !field.is_array {
            return write_length(buffer, None, field.is_compact);
        }
        let Ok(bytes) = value.cast_exact::<PyBytes>() else {
            return Err(Refusal::GiveUp);
        };
        write_length(buffer, Some(bytes.as_bytes().len()), field.is_compact)?;
        buffer.content(bytes.as_bytes())
    }
}
