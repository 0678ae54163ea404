//! Metadata records as JSON: what `pyspark_quorate.source.columns` does, record by record.
//!
//! A text is made of usual records only. Others are left to the function in Python that decodes one record: those with
//! text that JSON must escape, unknown tagged fields, bytes that do not fit, or a secret.

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::batches::{joined, numbers};
use crate::reading::Cursor;
use crate::refusal::{Decided, Refusal};

/// A value begins with the version of the frame, the key and the version of the record: varints, of one byte if usual.
const FRAME_VERSION: u8 = 1;
const FRAME_BYTES: usize = 3;
const VERSION_MAX: u8 = 0x7F;
const UUID_BYTES: usize = 16;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[derive(Clone, Copy)]
enum Kind {
    Bool,
    Number { bytes: usize, is_signed: bool },
    Uuid,
    Text,
}

struct Field {
    kind: Kind,
    is_array: bool,
    is_nullable: bool,
}

/// A field's type as Kafka names it, whether it is an array and whether it may be null.
type Description = (String, bool, bool);

impl Field {
    fn new((kind, is_array, is_nullable): Description) -> PyResult<Self> {
        let number = |bytes, is_signed| Kind::Number { bytes, is_signed };
        let kind = match kind.as_str() {
            "bool" => Kind::Bool,
            "int8" => number(1, true),
            "int16" => number(2, true),
            "int32" => number(4, true),
            "int64" => number(8, true),
            "uint8" => number(1, false),
            "uint16" => number(2, false),
            "uint32" => number(4, false),
            "uuid" => Kind::Uuid,
            "string" => Kind::Text,
            _ => return Err(PyValueError::new_err(format!("no type {kind:?}"))),
        };
        if is_array && matches!(kind, Kind::Bool | Kind::Text) {
            return Err(PyValueError::new_err("no arrays of this type"));
        }
        Ok(Self { kind, is_array, is_nullable })
    }

    /// Where the field's value is.
    fn read<'a>(&self, cursor: &mut Cursor<'a>) -> Decided<Value<'a>> {
        let width = match self.kind {
            Kind::Bool | Kind::Text => 1,
            Kind::Number { bytes, .. } => bytes,
            Kind::Uuid => UUID_BYTES,
        };
        if !self.is_array && !matches!(self.kind, Kind::Text) {
            return Ok(Value::Bytes(cursor.take(width)?));
        }
        let Some(length) = cursor.length(true)? else {
            return if self.is_nullable { Ok(Value::Null) } else { Err(Refusal::GiveUp) };
        };
        let bytes = cursor.take(length.checked_mul(width).ok_or(Refusal::GiveUp)?)?;
        if let Kind::Text = self.kind
            && !bytes.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'"' && *byte != b'\\')
        {
            return Err(Refusal::GiveUp);
        }
        Ok(Value::Bytes(bytes))
    }

    fn write(&self, output: &mut Vec<u8>, value: &[u8]) {
        match (self.is_array, self.kind) {
            (_, Kind::Bool) => output.extend_from_slice(if value == [0] { b"false" } else { b"true" }),
            (_, Kind::Text) => {
                output.push(b'"');
                output.extend_from_slice(value);
                output.push(b'"');
            }
            (false, Kind::Number { is_signed, .. }) => write_number(output, value, is_signed),
            (false, Kind::Uuid) => write_uuid(output, value),
            (true, Kind::Number { bytes, is_signed }) => {
                write_all(output, value.chunks_exact(bytes), |output, each| {
                    write_number(output, each, is_signed)
                });
            }
            (true, Kind::Uuid) => write_all(output, value.chunks_exact(UUID_BYTES), write_uuid),
        }
    }
}

fn write_all<'a>(
    output: &mut Vec<u8>,
    elements: impl Iterator<Item = &'a [u8]>,
    write: impl Fn(&mut Vec<u8>, &[u8]),
) {
    output.push(b'[');
    for (index, element) in elements.enumerate() {
        if index > 0 {
            output.push(b',');
        }
        write(output, element);
    }
    output.push(b']');
}

/// A big-endian number of at most eight bytes.
fn number_of(value: &[u8], is_signed: bool) -> i64 {
    let is_negative = is_signed && value.first().is_some_and(|byte| *byte >= 0x80);
    value.iter().fold(if is_negative { -1 } else { 0 }, |number, byte| number << 8 | i64::from(*byte))
}

fn write_number(output: &mut Vec<u8>, value: &[u8], is_signed: bool) {
    let number = number_of(value, is_signed);
    if number < 0 {
        output.push(b'-');
    }
    let mut left = number.unsigned_abs();
    if left < 10 {
        output.push(b'0' + left as u8);
        return;
    }
    let mut digits = [0; 20];
    let mut start = digits.len();
    while left > 0 {
        start -= 1;
        digits[start] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    output.extend_from_slice(&digits[start..]);
}

/// URL-safe base64 without padding.
fn write_uuid(output: &mut Vec<u8>, value: &[u8]) {
    let mut text = [b'"'; 24];
    let (texts, _) = text[1..].as_chunks_mut::<4>();
    let (threes, rest) = value.as_chunks::<3>();
    for (text, [first, second, third]) in texts.iter_mut().zip(threes) {
        let bits = usize::from(*first) << 16 | usize::from(*second) << 8 | usize::from(*third);
        *text = [18, 12, 6, 0].map(|shift| ALPHABET[bits >> shift & 0x3F]);
    }
    let last = usize::from(rest[0]) << 4;
    text[21] = ALPHABET[last >> 6];
    text[22] = ALPHABET[last & 0x3F];
    output.extend_from_slice(&text);
}

#[derive(Clone, Copy)]
enum Value<'a> {
    /// The version, or the record, does not have the field.
    Absent,
    Null,
    Bytes(&'a [u8]),
}

/// A text before a field, the place of the field among untagged and then tagged ones, and its text if it is absent.
type Part = (String, usize, String);

/// Reads the records of one type and version.
#[pyclass(frozen, module = "quorate_native")]
pub struct Program {
    /// Untagged ones in the order of the wire, then tagged ones by their tags.
    fields: Vec<Field>,
    tags: Vec<u32>,
    parts: Vec<Part>,
    end: String,
    /// Places of two fields, and whether a record with a number and a name there has a secret.
    secrets: Option<(usize, usize, Py<PyAny>)>,
}

#[pymethods]
impl Program {
    #[new]
    fn new(
        untagged: Vec<Description>,
        tagged: Vec<(u32, Description)>,
        parts: Vec<Part>,
        end: String,
        secrets: Option<(usize, usize, Py<PyAny>)>,
    ) -> PyResult<Self> {
        let (tags, described): (Vec<_>, Vec<_>) = tagged.into_iter().unzip();
        let fields = untagged.into_iter().chain(described).map(Field::new).collect::<PyResult<Vec<_>>>()?;
        if parts.iter().any(|(_, place, _)| *place >= fields.len()) {
            return Err(PyValueError::new_err("a part is of no field"));
        }
        Ok(Self { fields, tags, parts, end, secrets })
    }
}

impl Program {
    /// Add the text of the record that is `value` from its fields on.
    fn run<'a>(
        &self,
        py: Python<'_>,
        output: &mut Vec<u8>,
        value: &'a [u8],
        values: &mut Vec<Value<'a>>,
        known: &mut Secrets,
    ) -> Decided<()> {
        let mut cursor = Cursor::new(value, FRAME_BYTES);
        values.clear();
        let (untagged, tagged) = self.fields.split_at(self.fields.len() - self.tags.len());
        for field in untagged {
            values.push(field.read(&mut cursor)?);
        }
        let mut left = cursor.varint()?;
        for (field, tag) in tagged.iter().zip(&self.tags) {
            // Known tags have one byte.
            if left == 0 || value.get(cursor.offset).is_none_or(|byte| u32::from(*byte) != *tag) {
                values.push(Value::Absent);
                continue;
            }
            cursor.byte()?;
            let size = cursor.varint()? as usize;
            let end = cursor.offset + size;
            values.push(field.read(&mut cursor)?);
            if cursor.offset != end {
                return Err(Refusal::GiveUp);
            }
            left -= 1;
        }
        if left != 0 || cursor.left() != 0 || self.is_secret(py, values, known)? {
            return Err(Refusal::GiveUp);
        }
        for (before, place, absent) in &self.parts {
            output.extend_from_slice(before.as_bytes());
            match values[*place] {
                Value::Absent => output.extend_from_slice(absent.as_bytes()),
                Value::Null => output.extend_from_slice(b"null"),
                Value::Bytes(bytes) => self.fields[*place].write(output, bytes),
            }
        }
        output.extend_from_slice(self.end.as_bytes());
        Ok(())
    }

    fn is_secret(&self, py: Python<'_>, values: &[Value<'_>], known: &mut Secrets) -> Decided<bool> {
        let Some((number, name, is_secret)) = &self.secrets else { return Ok(false) };
        let (Value::Bytes(number), Value::Bytes(name)) = (values[*number], values[*name]) else {
            return Err(Refusal::GiveUp);
        };
        let number = number_of(number, true);
        if let Some(found) = known.get(&number).and_then(|names| names.get(name)) {
            return Ok(*found);
        }
        // The name is ASCII, or the field would not have been read.
        let found = is_secret.bind(py).call1((number, String::from_utf8_lossy(name)))?.extract()?;
        known.entry(number).or_default().insert(name.into(), found);
        Ok(found)
    }
}

/// Whether a record has a secret, by its number and name: each is asked for once.
type Secrets = HashMap<i64, HashMap<Box<[u8]>, bool>>;

/// The records of one key: whether they become texts, and the programs of their versions. Where texts are not
/// wanted, records are tried only, or skipped without programs.
struct Key {
    is_wanted: bool,
    programs: Option<Vec<Option<Py<Program>>>>,
}

/// Makes the texts of the records of all types.
#[pyclass(frozen, module = "quorate_native")]
pub struct Texts {
    keys: Vec<Option<Key>>,
    no_op: Option<u8>,
}

/// Key, whether its texts are wanted, and the programs by version; None: they are skipped.
type DescribedKey = (u8, bool, Option<Vec<Option<Py<Program>>>>);

/// Bytes and offsets of an array of strings, and two columns: indices of the records, and key and version of each as
/// one number, -1 for those that are decoded one by one.
type Strings<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// What happens to a record.
enum Outcome {
    Skipped,
    Text { code: i64 },
    Single,
}

#[pymethods]
impl Texts {
    /// `no_op`: a key whose records are skipped, whatever follows the key.
    #[new]
    fn new(described: Vec<DescribedKey>, no_op: Option<u8>) -> Self {
        let mut keys: Vec<_> = std::iter::repeat_with(|| None).take(usize::from(u8::MAX) + 1).collect();
        for (key, is_wanted, programs) in described {
            keys[usize::from(key)] = Some(Key { is_wanted, programs });
        }
        Self { keys, no_op }
    }

    /// The texts of records; their values' starts and sizes are columns, `are_control` has a byte of each.
    ///
    /// `single` returns the text of a record, by its index, that no program can read, or None.
    #[pyo3(signature = (data, starts, sizes, are_control, single, /))]
    fn make<'py>(
        &self,
        data: &Bound<'py, PyBytes>,
        starts: &[u8],
        sizes: &[u8],
        are_control: &[u8],
        single: &Bound<'py, PyAny>,
    ) -> PyResult<Strings<'py>> {
        let (py, bytes) = (data.py(), data.as_bytes());
        let (mut text, mut ends) = (Vec::new(), vec![0i32]);
        let (mut indices, mut codes) = (Vec::new(), Vec::new());
        let (mut values, mut known) = (Vec::new(), Secrets::new());
        let places = numbers(starts).zip(numbers(sizes)).zip(are_control);
        for (index, ((start, size), is_control)) in places.enumerate() {
            let before = text.len();
            let end = start.saturating_add(size) as usize;
            let value = if *is_control == 0 { bytes.get(start as usize..end) } else { None };
            let outcome = match value {
                Some(value) => self.make_one(py, &mut text, value, &mut values, &mut known)?,
                None => Outcome::Single,
            };
            let code = match outcome {
                Outcome::Skipped => None,
                Outcome::Text { code } => Some(code),
                Outcome::Single => {
                    text.truncate(before);
                    let made: Option<String> = single.call1((index,))?.extract()?;
                    made.map(|made| {
                        text.extend_from_slice(made.as_bytes());
                        -1
                    })
                }
            };
            match code {
                None => text.truncate(before),
                Some(code) => {
                    ends.push(i32::try_from(text.len())?);
                    indices.push(index as i64);
                    codes.push(code);
                }
            }
        }
        let ends: Vec<u8> = ends.into_iter().flat_map(i32::to_ne_bytes).collect();
        Ok((PyBytes::new(py, &text), PyBytes::new(py, &ends), joined(py, [indices])?, joined(py, [codes])?))
    }
}

impl Texts {
    fn make_one<'a>(
        &self,
        py: Python<'_>,
        text: &mut Vec<u8>,
        value: &'a [u8],
        values: &mut Vec<Value<'a>>,
        known: &mut Secrets,
    ) -> PyResult<Outcome> {
        let [FRAME_VERSION, key, rest @ ..] = value else { return Ok(Outcome::Single) };
        if self.no_op == Some(*key) {
            return Ok(Outcome::Skipped);
        }
        let ([version, _, ..], Some(found)) = (rest, &self.keys[usize::from(*key)]) else {
            return Ok(Outcome::Single);
        };
        if *version > VERSION_MAX {
            return Ok(Outcome::Single);
        }
        let Some(programs) = &found.programs else { return Ok(Outcome::Skipped) };
        let Some(Some(program)) = programs.get(usize::from(*version)) else { return Ok(Outcome::Single) };
        match program.get().run(py, text, value, values, known) {
            Ok(()) if found.is_wanted => {
                Ok(Outcome::Text { code: i64::from(*key) << 8 | i64::from(*version) })
            }
            Ok(()) => Ok(Outcome::Skipped),
            Err(Refusal::GiveUp) => Ok(Outcome::Single),
            Err(Refusal::Raised(error)) => Err(error),
        }
    }
}
