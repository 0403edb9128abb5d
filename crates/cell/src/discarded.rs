//! What the cell's thread leaves to another to free.

use crate::local;

/// Something that the cell's thread does not free: the one that closes files does.
pub(crate) struct Discarded<T: Send + 'static>(Option<Box<T>>);

impl<T: Send + 'static> Discarded<T> {
    /// A value that another thread will free.
    pub(crate) fn new(value: T) -> Self {
        Self(Some(Box::new(value)))
    }

    /// The same of a value that is boxed already.
    pub(crate) fn of(value: Box<T>) -> Self {
        Self(Some(value))
    }

    /// The value.
    pub(crate) fn value(&self) -> Option<&T> {
        self.0.as_deref()
    }

    /// The value, to be changed.
    pub(crate) fn value_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// The value, which the caller frees.
    pub(crate) fn into_inner(mut self) -> Option<Box<T>> {
        self.0.take()
    }
}

impl<T: Send + 'static> Drop for Discarded<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            local::with(|local| local.io.reaper.drop_given(value));
        }
    }
}
