//! Keys for thread-specific data (pthread_key_create) that commands make. A later start makes the same keys again,
//! so that the numbers in the state stay valid. Their values belong to threads and are no part of the state.

use crate::alloc::split_allocation;
use crate::image::layout::ThreadKey;
use mangrove_sys::without_signals;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys that a process can have (PTHREAD_KEYS_MAX), and those whose owner is known here.
const NUMBERS: usize = 1024;

/// Makes space to record which keys of this process belong to states. Called before any command runs, since a
/// mapping that a command makes would be the state's. It is not a variable, since variables are part of the state
/// too where this library is linked statically.
pub(crate) fn prepare() {
    let _ = ours();
}

/// Has the standard library make the key that it needs in each thread. It does so in the first one that it starts: of
/// two that start at once each makes a key and one deletes its own again, so the number would differ from start to
/// start, and be one that a state has. Called before the first thread of an opening starts.
pub(crate) fn settle_own_key() {
    if let Ok(thread) = without_signals(|| std::thread::Builder::new().spawn(|| ())) {
        let _ = thread.join();
    }
}

fn ours() -> Option<&'static [AtomicU64; NUMBERS / 64]> {
    static OURS: OnceLock<usize> = OnceLock::new();
    let page = *OURS.get_or_init(|| {
        // SAFETY: a fresh anonymous page, which stays mapped and begins as zeros.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                NUMBERS / 8,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED { 0 } else { page.expose_provenance() }
    });
    // SAFETY: the page above.
    unsafe { std::ptr::with_exposed_provenance::<[AtomicU64; NUMBERS / 64]>(page).as_ref() }
}

/// The word of a number, and its bit there. Relaxed: opening and commands come one after the other.
fn bit_of(number: u64) -> Option<(&'static AtomicU64, u64)> {
    Some((ours()?.get(number as usize / 64)?, 1 << (number % 64)))
}

fn is_ours(number: u64) -> bool {
    bit_of(number).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

fn become_ours(number: u64) {
    if let Some((word, bit)) = bit_of(number) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Puts `key` in the place of the present state's key that has the number `instead`; false when there is none, or no
/// command runs.
fn put(instead: u64, key: ThreadKey) -> bool {
    let place = split_allocation::with_keys(|keys| keys.iter_mut().find(|key| key.number_and_one == instead));
    place.is_some_and(|place| {
        crate::will_write(std::ptr::from_ref(place).cast(), size_of::<ThreadKey>());
        *place = key;
        true
    })
}

/// Adds a key that the present command has just made to its state. False when the state has too many.
pub fn remember(number: libc::pthread_key_t, destructor: usize) -> bool {
    let is_there = put(0, ThreadKey { number_and_one: u64::from(number) + 1, destructor });
    if is_there {
        become_ours(u64::from(number));
    }
    is_there
}

/// Removes a deleted key from the state of the present command, if a command runs.
pub fn forget(number: libc::pthread_key_t) {
    if let Some((word, bit)) = bit_of(u64::from(number)) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
    put(u64::from(number) + 1, ThreadKey { number_and_one: 0, destructor: 0 });
}

/// Makes the keys of a state again, unless this process has them from an earlier opening. Fails with a message when
/// another key has the number of one.
pub(crate) fn make_again(keys: &[ThreadKey]) -> Result<(), String> {
    let mut wanted: Vec<_> = keys.iter().filter(|key| key.number_and_one != 0).collect();
    wanted.sort_by_key(|key| key.number_and_one);
    let mut spare = Vec::new();
    let mut result = Ok(());
    for key in wanted {
        let number = key.number_and_one - 1;
        if is_ours(number) {
            continue;
        }
        // The system gives the lowest number that is free.
        let made = loop {
            match make(key.destructor) {
                Some(made) if u64::from(made) < number => spare.push(made),
                made => break made,
            }
        };
        if made.is_some_and(|made| u64::from(made) == number) {
            become_ours(number);
            continue;
        }
        spare.extend(made);
        result = Err(format!(
            "the state has the key {number} for thread-specific data, which somebody else made in this process before; open the state first"
        ));
        break;
    }
    for key in spare {
        // SAFETY: made above, and known only here.
        unsafe { libc::pthread_key_delete(key) };
    }
    result
}

fn make(destructor: usize) -> Option<libc::pthread_key_t> {
    let mut key = 0;
    // SAFETY: the address of such a function, as the program gave it, in a module that lies where it lay; zero is
    // none.
    let made = unsafe {
        let destructor = std::mem::transmute::<usize, Option<unsafe extern "C" fn(*mut c_void)>>(destructor);
        libc::pthread_key_create(&raw mut key, destructor)
    };
    (made == 0).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: libc::pthread_key_t) -> ThreadKey {
        ThreadKey { number_and_one: u64::from(number) + 1, destructor: 0 }
    }

    #[test]
    fn the_same_numbers_are_there_again_or_somebody_is_named() {
        let free = make(0).unwrap();
        let taken = make(0).unwrap();
        // SAFETY: made above.
        assert_eq!(unsafe { libc::pthread_key_delete(free) }, 0);
        let none = ThreadKey { number_and_one: 0, destructor: 0 };
        make_again(&[none, key(taken + 2), key(free)]).unwrap();
        for made in [free, taken + 2] {
            // SAFETY: a key, if it was made.
            assert_eq!(unsafe { libc::pthread_setspecific(made, std::ptr::null()) }, 0);
        }
        assert_eq!(make(0), Some(taken + 1), "what was not wanted is free");
        make_again(&[key(free)]).unwrap();
        assert!(make_again(&[key(taken)]).is_err_and(|why| why.contains(&format!("the key {taken} "))));
    }
}
