//! Panics of a simulated host: remembered as evidence, with where they happened.

use std::sync::{Mutex, PoisonError};

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// From now on the first panic is remembered instead of printed.
pub fn remember() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let what = panic
            .payload()
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| {
                panic
                    .payload()
                    .downcast_ref::<&str>()
                    .map(ToString::to_string)
            });
        let text = format!(
            "{} at {}",
            what.unwrap_or_default(),
            place.unwrap_or_default()
        );
        LAST.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(text);
    }));
}

/// The first panic since the last call.
pub fn last() -> Option<String> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).take()
}
