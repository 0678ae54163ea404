//! Instances of Python's classes with slots: made and filled without calls into the interpreter.
//!
//! This is the only module with unsafe code. The safe calls of PyO3 for the same (`getattr`, and `call1` of a
//! descriptor's `__set__`) look the name up or build a tuple for each field, which takes most of the time of a codec.

use std::mem::transmute;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyTuple, PyType};

/// A descriptor of a class, and the C functions of the descriptor's type.
pub struct Slot {
    descriptor: Py<PyAny>,
    get: ffi::descrgetfunc,
    set: ffi::descrsetfunc,
}

impl Slot {
    pub fn new(descriptor: &Bound<'_, PyAny>) -> PyResult<Self> {
        let kind = descriptor.get_type();
        // SAFETY: the type is alive, and both numbers are slots of types.
        let (get, set) = unsafe {
            (
                ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_tp_descr_get),
                ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_tp_descr_set),
            )
        };
        if get.is_null() || set.is_null() {
            return Err(PyTypeError::new_err(format!("{descriptor} is no slot of a class")));
        }
        Ok(Self {
            descriptor: descriptor.clone().unbind(),
            // SAFETY: Python documents these types for these slots, and neither is null.
            get: unsafe { transmute::<*mut std::ffi::c_void, ffi::descrgetfunc>(get) },
            // SAFETY: as above.
            set: unsafe { transmute::<*mut std::ffi::c_void, ffi::descrsetfunc>(set) },
        })
    }

    /// The value in an object's slot.
    pub fn get<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: `get` belongs to the type of the descriptor, which checks the type of the object. All three are
        // alive. It returns a new reference, or null with an exception set.
        unsafe {
            let value =
                (self.get)(self.descriptor.as_ptr(), object.as_ptr(), ffi::Py_TYPE(object.as_ptr()).cast());
            Bound::from_owned_ptr_or_err(object.py(), value)
        }
    }

    /// Put a value into an object's slot, whether or not the class is frozen.
    pub fn set(&self, object: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        // SAFETY: `set` belongs to the type of the descriptor, which checks the type of the object. All three are
        // alive, and it takes a reference of its own to the value.
        let failed = unsafe { (self.set)(self.descriptor.as_ptr(), object.as_ptr(), value.as_ptr()) } != 0;
        if failed { Err(PyErr::fetch(object.py())) } else { Ok(()) }
    }
}

/// A class whose instances are made by `object.__new__`.
pub struct EntityClass {
    class: Py<PyType>,
    create: ffi::newfunc,
    no_arguments: Py<PyTuple>,
}

impl EntityClass {
    pub fn new(class: &Bound<'_, PyType>) -> PyResult<Self> {
        let py = class.py();
        // SAFETY: both types are alive, and the number is a slot of types.
        let (create, create_object) = unsafe {
            (
                ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_new),
                ffi::PyType_GetSlot(&raw mut ffi::PyBaseObject_Type, ffi::Py_tp_new),
            )
        };
        if create.is_null() || create != create_object {
            return Err(PyTypeError::new_err(format!("{class} has a __new__ of its own")));
        }
        Ok(Self {
            class: class.clone().unbind(),
            // SAFETY: Python documents this type for this slot, and it is not null.
            create: unsafe { transmute::<*mut std::ffi::c_void, ffi::newfunc>(create) },
            no_arguments: PyTuple::empty(py).unbind(),
        })
    }

    /// A new instance whose slots are empty.
    pub fn create<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: this is `object.__new__(class)`, and the class has no other `__new__`. It returns a new reference,
        // or null with an exception set.
        unsafe {
            let object =
                (self.create)(self.class.as_ptr().cast(), self.no_arguments.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(py, object)
        }
    }

    /// Whether an object is of this class, and not of a subclass.
    pub fn is_class_of(&self, object: &Bound<'_, PyAny>) -> bool {
        object.get_type_ptr() == self.class.as_ptr().cast()
    }

    pub fn class<'py>(&self, py: Python<'py>) -> &Bound<'py, PyType> {
        self.class.bind(py)
    }
}

/// Append bytes to a bytearray.
pub fn append(buffer: &Bound<'_, PyByteArray>, bytes: &[u8]) -> PyResult<()> {
    let start = buffer.len();
    buffer.resize(start + bytes.len())?;
    // SAFETY: no Python code runs while the slice exists, so that nothing else reads, writes or resizes the buffer.
    let content = unsafe { buffer.as_bytes_mut() };
    content[start..].copy_from_slice(bytes);
    Ok(())
}
