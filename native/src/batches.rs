//! Batches of a log as columns: what `pyspark_quorate.source.runs` and `framing` do for usual ones.
//!
//! A column is the bytes of its numbers of 64 bits, as numpy has them; the columns of a result follow each other.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::checksum::crc32c;
use crate::reading::Cursor;
use crate::records::{length_of, zigzag};
use crate::refusal::{Decided, Refusal};

/// The layout of a header: `quorate_protocol.records.batch` names its fields.
const HEADER_SIZE_BYTES: usize = 61;
const LENGTH_COUNTS_FROM: usize = 12;
const CRC_COVERS_FROM: usize = 21;
const MAGIC: u8 = 2;
const CONTROL: i16 = 0x20;
const RECORD_SIZE_BYTES_MIN: usize = 7;
/// As in `pyspark_quorate.source.runs`.
const BATCH_SIZE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The numbers of a column.
pub fn numbers(column: &[u8]) -> impl Iterator<Item = i64> {
    column.as_chunks::<8>().0.iter().map(|bytes| i64::from_ne_bytes(*bytes))
}

/// Columns as one object.
pub fn joined<'py, const N: usize>(py: Python<'py>, columns: [Vec<i64>; N]) -> PyResult<Bound<'py, PyBytes>> {
    let count: usize = columns.iter().map(Vec::len).sum();
    PyBytes::new_with(py, count * 8, |bytes| {
        let (places, _) = bytes.as_chunks_mut::<8>();
        for (place, number) in places.iter_mut().zip(columns.iter().flatten()) {
            *place = number.to_ne_bytes();
        }
        Ok(())
    })
}

/// A batch that is as expected.
struct Batch {
    end: usize,
    base_offset: i64,
    count: i64,
    is_control: bool,
    base_timestamp_ms: i64,
}

fn big_endian<const N: usize>(header: &[u8; HEADER_SIZE_BYTES], from: usize) -> [u8; N] {
    std::array::from_fn(|place| header[from + place])
}

/// The batch at `at`, if it is complete and as expected.
fn usual_batch(data: &[u8], at: usize, next_offset: i64, epoch: i64) -> Option<Batch> {
    let header = data.get(at..)?.first_chunk::<HEADER_SIZE_BYTES>()?;
    let length = usize::try_from(i32::from_be_bytes(big_endian(header, 8))).ok()?;
    let size_bytes = length + LENGTH_COUNTS_FROM;
    let base_offset = i64::from_be_bytes(big_endian(header, 0));
    let attributes = i16::from_be_bytes(big_endian(header, 21));
    let count = i32::from_be_bytes(big_endian(header, 57));
    let is_usual = HEADER_SIZE_BYTES < size_bytes
        && size_bytes <= BATCH_SIZE_BYTES_MAX
        && base_offset == next_offset
        && i64::from(i32::from_be_bytes(big_endian(header, 12))) == epoch
        && header[16] == MAGIC
        && (attributes == 0 || attributes == CONTROL)
        && count > 0
        && count as usize <= size_bytes / RECORD_SIZE_BYTES_MIN
        && i32::from_be_bytes(big_endian(header, 23)) == count - 1;
    if !is_usual {
        return None;
    }
    let end = at + size_bytes;
    let covered = data.get(at + CRC_COVERS_FROM..end)?;
    (crc32c(covered) == u32::from_be_bytes(big_endian(header, 17))).then_some(Batch {
        end,
        base_offset,
        count: count.into(),
        is_control: attributes == CONTROL,
        base_timestamp_ms: i64::from_be_bytes(big_endian(header, 27)),
    })
}

/// The batches from `at` on, up to the first unexpected or incomplete one, and at most `count_max`.
///
/// Columns: start and end of the records, base offset, count, whether it is a control batch, base timestamp.
#[pyfunction]
#[pyo3(signature = (data, at, next_offset, epoch, count_max, /))]
pub fn usual_batches<'py>(
    data: &Bound<'py, PyBytes>,
    mut at: usize,
    mut next_offset: i64,
    epoch: i64,
    count_max: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = data.as_bytes();
    let mut columns: [Vec<i64>; 6] = Default::default();
    for _ in 0..count_max {
        let Some(batch) = usual_batch(bytes, at, next_offset, epoch) else { break };
        let Some(behind) = next_offset.checked_add(batch.count) else { break };
        let numbers = [
            (at + HEADER_SIZE_BYTES) as i64,
            batch.end as i64,
            batch.base_offset,
            batch.count,
            batch.is_control.into(),
            batch.base_timestamp_ms,
        ];
        for (column, number) in columns.iter_mut().zip(numbers) {
            column.push(number);
        }
        (at, next_offset) = (batch.end, behind);
    }
    joined(data.py(), columns)
}

/// Where the records of batches are; None if one of them does not fill its batch, for Python to say which.
///
/// The arguments are columns of batches. Columns of the result: offset, timestamp, start and size of the key, start
/// and size of the value. A size of -1 is null.
#[pyfunction]
#[pyo3(signature = (data, starts, ends, counts, base_offsets, base_timestamps_ms, /))]
pub fn frame_records<'py>(
    data: &Bound<'py, PyBytes>,
    starts: &[u8],
    ends: &[u8],
    counts: &[u8],
    base_offsets: &[u8],
    base_timestamps_ms: &[u8],
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let bytes = data.as_bytes();
    let mut columns: [Vec<i64>; 6] = Default::default();
    let batches = numbers(starts).zip(numbers(ends)).zip(numbers(counts));
    let bases = numbers(base_offsets).zip(numbers(base_timestamps_ms));
    for (((start, end), count), base) in batches.zip(bases) {
        match frame_batch(&mut columns, bytes, (start as usize, end as usize), count, base) {
            Ok(()) => {}
            Err(Refusal::GiveUp) => return Ok(None),
            Err(Refusal::Raised(error)) => return Err(error),
        }
    }
    joined(data.py(), columns).map(Some)
}

/// Add the records of a batch, whose base offset and timestamp are `base`.
fn frame_batch(
    columns: &mut [Vec<i64>; 6],
    data: &[u8],
    (start, end): (usize, usize),
    count: i64,
    (base_offset, base_timestamp_ms): (i64, i64),
) -> Decided<()> {
    let mut cursor = Cursor::new(data.get(..end).ok_or(Refusal::GiveUp)?, start);
    for index in 0..count {
        let length = length_of(zigzag(&mut cursor)?)?.ok_or(Refusal::GiveUp)?;
        let record_end = cursor.offset + length;
        cursor.byte()?; // attributes
        let timestamp_ms = base_timestamp_ms.checked_add(zigzag(&mut cursor)?).ok_or(Refusal::GiveUp)?;
        let offset_delta = zigzag(&mut cursor)?;
        let (key_start, key_size) = content(&mut cursor)?;
        let (value_start, value_size) = content(&mut cursor)?;
        let has_headers = zigzag(&mut cursor)? != 0;
        if cursor.offset != record_end || offset_delta != index || has_headers {
            return Err(Refusal::GiveUp);
        }
        let numbers = [base_offset + index, timestamp_ms, key_start, key_size, value_start, value_size];
        for (column, number) in columns.iter_mut().zip(numbers) {
            column.push(number);
        }
    }
    if cursor.offset == end { Ok(()) } else { Err(Refusal::GiveUp) }
}

/// Start and size of a key or value.
fn content(cursor: &mut Cursor<'_>) -> Decided<(i64, i64)> {
    let size = zigzag(cursor)?;
    let start = cursor.offset as i64;
    if let Some(length) = length_of(size)? {
        cursor.take(length)?;
    }
    Ok((start, size))
}
