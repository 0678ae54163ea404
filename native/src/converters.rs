//! Values of fixed width that are no numbers in Python: uuids, error codes, times.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use crate::refusal::{Decided, Refusal};
use crate::slots::Slot;

/// How many uuids are remembered. Topic and directory ids repeat in thousands of records.
const UUIDS: usize = 1 << 12;
/// Durations below this are in Python's range, by far.
const SHORT_DURATION_MS: u64 = 1 << 50;
const ERROR_CODE_MIN: i16 = -1;
const ERROR_CODE_MAX: i16 = 255;

/// A uuid and its bytes. The object lives as long as it is here, so that its address means this uuid.
struct KnownUuid {
    bytes: [u8; 16],
    uuid: Py<PyAny>,
}

/// Functions and values of Python which convert, shared by all codecs.
#[pyclass(frozen, module = "quorate_native")]
pub struct Converters {
    known_uuid: Py<PyAny>,
    uuid_class: Py<PyType>,
    uuid_number: Slot,
    error_code_of: Py<PyAny>,
    error_codes: Vec<Py<PyAny>>,
    millisecond: Py<PyAny>,
    duration_class: Py<PyType>,
    duration_parts: [Slot; 3],
    no_duration: Py<PyAny>,
    duration: Py<PyAny>,
    instant: Py<PyAny>,
    timestamp: Py<PyAny>,
    shared_array: Py<PyType>,
    by_bytes: Mutex<Vec<Option<KnownUuid>>>,
    by_address: Mutex<Vec<Option<KnownUuid>>>,
}

fn remembered() -> Mutex<Vec<Option<KnownUuid>>> {
    Mutex::new((0..UUIDS).map(|_| None).collect())
}

#[pymethods]
impl Converters {
    /// `known_uuid` makes a uuid of 16 bytes, `duration` and `instant` make theirs of milliseconds; `timestamp`
    /// returns those of an instant. `shared_array` is the class of arrays that keep their encoding.
    #[new]
    #[expect(
        clippy::too_many_arguments,
        reason = "each is one thing that Python knows, and there is one caller"
    )]
    fn new(
        known_uuid: Bound<'_, PyAny>,
        uuid_class: Bound<'_, PyType>,
        error_code_of: Bound<'_, PyAny>,
        millisecond: Bound<'_, PyAny>,
        duration: Bound<'_, PyAny>,
        instant: Bound<'_, PyAny>,
        timestamp: Bound<'_, PyAny>,
        shared_array: Bound<'_, PyType>,
    ) -> PyResult<Self> {
        let error_codes = (ERROR_CODE_MIN..=ERROR_CODE_MAX)
            .map(|number| Ok(error_code_of.call1((number,))?.unbind()))
            .collect::<PyResult<Vec<_>>>()?;
        Ok(Self {
            known_uuid: known_uuid.unbind(),
            uuid_number: Slot::new(&uuid_class.getattr("int")?)?,
            uuid_class: uuid_class.unbind(),
            error_code_of: error_code_of.unbind(),
            error_codes,
            duration_parts: [
                Slot::new(&millisecond.get_type().getattr("days")?)?,
                Slot::new(&millisecond.get_type().getattr("seconds")?)?,
                Slot::new(&millisecond.get_type().getattr("microseconds")?)?,
            ],
            duration_class: millisecond.get_type().unbind(),
            no_duration: duration.call1((0,))?.unbind(),
            millisecond: millisecond.unbind(),
            duration: duration.unbind(),
            instant: instant.unbind(),
            timestamp: timestamp.unbind(),
            shared_array: shared_array.unbind(),
            by_bytes: remembered(),
            by_address: remembered(),
        })
    }
}

impl Converters {
    /// The uuid of 16 bytes; None for the zero uuid.
    pub fn uuid<'py>(&self, py: Python<'py>, bytes: [u8; 16]) -> Decided<Bound<'py, PyAny>> {
        if bytes == [0; 16] {
            return Ok(py.None().into_bound(py));
        }
        let place = place_of_bytes(&bytes);
        if let Some(known) = &lock(&self.by_bytes)[place]
            && known.bytes == bytes
        {
            return Ok(known.uuid.bind(py).clone());
        }
        let uuid = self.known_uuid.bind(py).call1((PyBytes::new(py, &bytes),))?;
        self.remember(&self.by_bytes, place, bytes, &uuid);
        Ok(uuid)
    }

    /// The bytes of a uuid, or of None.
    pub fn uuid_bytes(&self, value: &Bound<'_, PyAny>) -> Decided<[u8; 16]> {
        if value.is_none() {
            return Ok([0; 16]);
        }
        let place = (value.as_ptr() as usize >> 4) % UUIDS;
        if let Some(known) = &lock(&self.by_address)[place]
            && known.uuid.as_ptr() == value.as_ptr()
        {
            return Ok(known.bytes);
        }
        if !value.is_exact_instance(self.uuid_class.bind(value.py())) {
            return Err(Refusal::GiveUp);
        }
        let bytes = self.uuid_number.get(value)?.extract::<u128>()?.to_be_bytes();
        self.remember(&self.by_address, place, bytes, value);
        Ok(bytes)
    }

    fn remember(
        &self,
        known: &Mutex<Vec<Option<KnownUuid>>>,
        place: usize,
        bytes: [u8; 16],
        uuid: &Bound<'_, PyAny>,
    ) {
        let added = Some(KnownUuid { bytes, uuid: uuid.clone().unbind() });
        // What was there is dropped after the lock is released: no Python code runs while it is held.
        let _forgotten = std::mem::replace(&mut lock(known)[place], added);
    }

    pub fn error_code<'py>(&self, py: Python<'py>, number: i16) -> Decided<Bound<'py, PyAny>> {
        let index = usize::try_from(i32::from(number) - i32::from(ERROR_CODE_MIN));
        match index.ok().and_then(|index| self.error_codes.get(index)) {
            Some(code) => Ok(code.bind(py).clone()),
            None => Ok(self.error_code_of.bind(py).call1((number,))?),
        }
    }

    pub fn duration<'py>(&self, py: Python<'py>, value_ms: i64) -> Decided<Bound<'py, PyAny>> {
        if value_ms == 0 {
            return Ok(self.no_duration.bind(py).clone());
        }
        if value_ms.unsigned_abs() >= SHORT_DURATION_MS {
            return Ok(self.duration.bind(py).call1((value_ms,))?);
        }
        Ok(self.millisecond.bind(py).mul(value_ms)?)
    }

    /// The whole milliseconds of a duration, rounded down.
    pub fn milliseconds(&self, value: &Bound<'_, PyAny>) -> Decided<i64> {
        if !value.is_exact_instance(self.duration_class.bind(value.py())) {
            return Err(Refusal::GiveUp);
        }
        let [days, seconds, microseconds] = &self.duration_parts;
        let part = |slot: &Slot| slot.get(value)?.extract::<i64>();
        // Python keeps the sign in the days, of which there are less than 10^9.
        Ok((part(days)? * 86_400 + part(seconds)?) * 1_000 + part(microseconds)? / 1_000)
    }

    pub fn is_shared(&self, value: &Bound<'_, PyAny>) -> bool {
        value.is_exact_instance(self.shared_array.bind(value.py()))
    }

    pub fn instant<'py>(&self, py: Python<'py>, value_ms: i64) -> Decided<Bound<'py, PyAny>> {
        Ok(self.instant.bind(py).call1((value_ms,))?)
    }

    pub fn timestamp<'py>(&self, value: &Bound<'py, PyAny>) -> Decided<Bound<'py, PyAny>> {
        Ok(self.timestamp.bind(value.py()).call1((value,))?)
    }
}

/// Another thread that panicked with the lock held left at most a missing entry.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Random uuids differ everywhere; ones that people make up differ in the last bytes.
fn place_of_bytes(bytes: &[u8; 16]) -> usize {
    let number = u128::from_be_bytes(*bytes);
    let folded = (number >> 64) as u64 ^ number as u64;
    (folded ^ folded >> 32) as usize % UUIDS
}
