//! Rust state: [`Durable`].
//!
//! The state is one value of the program's own type, in a box of the persistent arena. The state's first two roots
//! hold its address and a fingerprint of its type.
//!
//! Invariants:
//! 1. A thread has one slot in each state (`SLOTS`), which it gives back when it ends.
//! 2. What a panicking closure left half done is never committed and never seen again (`Runtime::abandon`).
//! 3. The payload of a panic that left a command lives as long as the thread that caught it needs it, whatever
//!    becomes of the state (`outliving`).

use crate::alloc::split_allocation;
use crate::image::aslr::threads_came_first;
use crate::persist::Persist;
use crate::runtime::batch::Job;
use crate::runtime::runtime::outside_commands;
use crate::runtime::slots::ClientSlot;
use crate::{Error, Options, Result, Runtime, Stat, settle_addresses};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// A value of ordinary Rust types that survives every crash.
///
/// Reads run in parallel on the value itself. Writes run one after another, in batches; their stores are
/// tracked, and they return when they are durable. The program's global allocator must be
/// [`Allocator`](crate::Allocator), so that what a write allocates is part of the state.
///
/// ```no_run
/// use mangrove_durable::{Allocator, Durable};
/// use std::collections::BTreeMap;
///
/// #[global_allocator]
/// static ALLOCATOR: Allocator = Allocator::new();
///
/// fn main() -> mangrove_durable::Result<()> {
///     let book = Durable::open("phonebook", || BTreeMap::<String, String>::new())?;
///     let (name, number) = ("ada", "+44 20 7946 0001");
///     book.write(|book| book.insert(name.to_owned(), number.to_owned()))?; // survives from here on
///     assert_eq!(book.read(|book| book.get(name).cloned())?.as_deref(), Some(number));
///     book.close()
/// }
/// ```
///
/// A closure that panics in [`Durable::write`] leaves nothing durable: the panic continues in the caller, every
/// other call returns [`Error::Broken`] from then on (as a poisoned lock does), and the next opening finds the state
/// before the closure's batch.
///
/// Two duties of the program cannot be checked by the compiler. What a write stores must be made inside the write:
/// that the closure is `Copy` keeps it from bringing an owned `String` along, but not from taking one out of a lock
/// or a static. And a write must put what it allocates only into the state and into the value that it returns.
pub struct Durable<T: Persist> {
    shared: Arc<OpenState>,
    root: *mut T,
}

// SAFETY: only the runtime reaches the value, and it keeps writers alone; T: Send + Sync.
unsafe impl<T: Persist> Send for Durable<T> {}
// SAFETY: as above.
unsafe impl<T: Persist> Sync for Durable<T> {}

impl<T: Persist> std::fmt::Debug for Durable<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Durable").field("runtime", &self.shared.runtime).finish_non_exhaustive()
    }
}

struct OpenState {
    runtime: Arc<Runtime>,
    /// Never used twice in a process.
    id: u64,
}

/// A thread's slot of one state.
struct ThreadSlot {
    id: u64,
    slot: NonNull<ClientSlot<Job>>,
    busy: Cell<bool>,
    shared: Weak<OpenState>,
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            // SAFETY: the runtime, and with it the slot, is alive; no call uses the slot.
            shared.runtime.leave(unsafe { self.slot.as_ref() });
        }
    }
}

thread_local! {
    static SLOTS: RefCell<Vec<Rc<ThreadSlot>>> = const { RefCell::new(Vec::new()) };
}

/// A thread in a call.
struct InCall(Rc<ThreadSlot>);

impl Drop for InCall {
    fn drop(&mut self) {
        self.0.busy.set(false);
    }
}

impl OpenState {
    /// This thread's slot, marked as in a call.
    fn enter(self: &Arc<Self>) -> Result<InCall> {
        outside_commands()?;
        let kept = SLOTS.try_with(|slots| {
            if let Some(mine) = slots.borrow().iter().find(|mine| mine.id == self.id) {
                return Ok(Rc::clone(mine));
            }
            self.new_slot(&mut slots.borrow_mut())
        });
        // The thread ends, and one of its destructors calls when the slots have gone.
        let mine = kept.unwrap_or_else(|_| self.slot_for_one_call())?;
        if mine.busy.replace(true) {
            return Err(Error::Nested);
        }
        Ok(InCall(mine))
    }

    #[cold]
    fn new_slot(self: &Arc<Self>, slots: &mut Vec<Rc<ThreadSlot>>) -> Result<Rc<ThreadSlot>> {
        slots.retain(|mine| mine.shared.strong_count() > 0);
        let mine = self.make_slot()?;
        slots.push(Rc::clone(&mine));
        Ok(mine)
    }

    /// A slot that no later call of the thread finds: it is given back when the call ends.
    #[cold]
    fn slot_for_one_call(self: &Arc<Self>) -> Result<Rc<ThreadSlot>> {
        // No slot says that the thread is in a call: a write inside a read would wait for that read.
        if self.runtime.reads_here() {
            return Err(Error::Nested);
        }
        self.make_slot()
    }

    fn make_slot(self: &Arc<Self>) -> Result<Rc<ThreadSlot>> {
        Ok(Rc::new(ThreadSlot {
            id: self.id,
            slot: self.runtime.join()?,
            busy: Cell::new(false),
            shared: Arc::downgrade(self),
        }))
    }
}

/// Tells whether the value at the root is a `T`.
fn fingerprint<T>() -> usize {
    let mut hasher = DefaultHasher::new();
    (std::any::type_name::<T>(), size_of::<T>(), align_of::<T>()).hash(&mut hasher);
    hasher.finish() as usize | 1
}

type Payload = Box<dyn Any + Send>;

/// Called inside the command that panicked, with the payload of the panic, which may outlive the state. A text is
/// copied to memory of the process. For any other payload the state's memory stays mapped.
fn outliving(payload: Payload) -> Payload {
    let text = split_allocation::outside(|| -> Option<Payload> {
        if let Some(&text) = payload.downcast_ref::<&'static str>() {
            return Some(Box::new(text));
        }
        payload.downcast_ref::<String>().map(|text| Box::new(text.clone()) as Payload)
    });
    text.unwrap_or_else(|| {
        split_allocation::keep_memory();
        payload
    })
}

/// The value in its block, which is never empty.
#[repr(C)]
struct BoxedValue<T> {
    value: T,
    _not_empty: u8,
}

/// The initialisation as a command.
struct Begin<I> {
    make: Option<I>,
    panic: Option<Payload>,
    persistent: bool,
    /// The state's roots: the first is the value's address, the second its fingerprint.
    roots: *mut usize,
}

const PANICKED: c_int = 1;
const NOT_PERSISTENT: c_int = 2;

/// # Safety
/// `arg` is a `Begin<I>` that no other thread uses.
unsafe extern "C" fn begin<T: Persist, I: FnOnce() -> T>(arg: *mut c_void) -> c_int {
    // SAFETY: by contract.
    let begin = unsafe { &mut *arg.cast::<Begin<I>>() };
    let Some(make) = begin.make.take() else { return PANICKED };
    let made = catch_unwind(AssertUnwindSafe(|| Box::new(BoxedValue { value: make(), _not_empty: 0 })));
    match made {
        Ok(held) => {
            let root = Box::into_raw(held).expose_provenance();
            begin.persistent = split_allocation::is_persistent(root);
            if !begin.persistent {
                return NOT_PERSISTENT;
            }
            crate::will_write(begin.roots.cast(), 2 * size_of::<usize>());
            // SAFETY: two of the state's sixteen words.
            unsafe { begin.roots.cast::<[usize; 2]>().write([root, fingerprint::<T>()]) };
            0
        }
        Err(payload) => {
            begin.panic = Some(outliving(payload));
            PANICKED
        }
    }
}

/// A write as a command.
struct Writing<T, F, R> {
    root: *mut T,
    runtime: *const Runtime,
    call: Option<F>,
    result: Option<std::result::Result<R, Payload>>,
}

/// # Safety
/// `arg` is a `Writing<T, F, R>`, and no other thread uses it or the state.
unsafe extern "C" fn run_write<T, F: FnOnce(&mut T) -> R, R>(arg: *mut c_void) {
    // SAFETY: by contract.
    let writing = unsafe { &mut *arg.cast::<Writing<T, F, R>>() };
    let Some(call) = writing.call.take() else { return };
    let root = writing.root;
    // AssertUnwindSafe: after a panic no call sees the state again.
    // SAFETY: the state's value, which no other thread uses now.
    let result = catch_unwind(AssertUnwindSafe(|| call(unsafe { &mut *root })));
    if result.is_err() {
        // SAFETY: the runtime that runs this command.
        unsafe { (*writing.runtime).abandon() };
    }
    writing.result = Some(result.map_err(outliving));
}

impl<T: Persist> Durable<T> {
    /// Opens the state in the directory `path`, or makes it with `initialise`.
    ///
    /// Call it early in `main`, before other threads are started: the program may start itself once more, with
    /// its modules at the addresses that they have in every run ([`settle_addresses`]). Where a sandbox forbids that,
    /// a write that stores a pointer to code, constants or variables of the program is refused (an empty `HashMap`
    /// points to a constant): link the program at a fixed address there, with `-C relocation-model=static`.
    ///
    /// # Errors
    /// See [`Error`]; `Refused` when the global allocator is not [`Allocator`](crate::Allocator), `Foreign` when
    /// the state is of another type or another program.
    pub fn open(path: impl AsRef<Path>, initialise: impl FnOnce() -> T) -> Result<Self> {
        Self::open_with(path, &Options::new(), initialise)
    }

    /// As [`Durable::open`], with options.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// When `initialise` does; the state is new at the next opening.
    pub fn open_with(
        path: impl AsRef<Path>,
        options: &Options,
        initialise: impl FnOnce() -> T,
    ) -> Result<Self> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let addresses = settle_addresses();
        // The standard library keeps its own data in the program's variables, and these are no part of the value. No
        // `Persist` type makes anything of addresses but point there, which commits look for.
        let mut options = options.clone().keeps_variables(false).random_addresses(true);
        if !threads_came_first() {
            options = options.addresses(addresses);
        }
        let runtime = Self::open_runtime(path.as_ref(), &options, initialise)?;
        // SAFETY: two of the sixteen words; the runtime is open and no command runs.
        let (root, found) = unsafe { (*runtime.roots(), *runtime.roots().add(1)) };
        if found != fingerprint::<T>() || !split_allocation::is_persistent(root) {
            let what = format!(
                "this state is not a {}; open it with the type that made it",
                std::any::type_name::<T>()
            );
            return Err(Error::Foreign { what });
        }
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let root = std::ptr::with_exposed_provenance_mut(root);
        Ok(Self { shared: Arc::new(OpenState { runtime, id }), root })
    }

    fn open_runtime<I: FnOnce() -> T>(path: &Path, options: &Options, initialise: I) -> Result<Arc<Runtime>> {
        let mut start =
            Begin { make: Some(initialise), panic: None, persistent: true, roots: std::ptr::null_mut() };
        let start_ptr = &raw mut start;
        // SAFETY: `begin` takes this argument; types of the state are `Persist`.
        let opened = unsafe {
            Runtime::open_prepared(path, options, Some((begin::<T, I>, start_ptr.cast())), |roots| {
                (*start_ptr).roots = roots;
            })
        };
        if let Some(payload) = start.panic.take() {
            resume_unwind(payload);
        }
        if !start.persistent {
            return Err(Error::Refused {
                what: "the program's global allocator must be mangrove_durable::Allocator; declare it with #[global_allocator]"
                    .into(),
            });
        }
        opened
    }

    /// Changes the value, alone, and returns what the closure returned, once it is durable. The closure may run
    /// on another thread, as part of that thread's batch.
    ///
    /// # Errors
    /// `Poisoned`: the medium failed, the write is not durable. `Broken`: another closure panicked. `Nested`:
    /// called from inside a read of the same state, or a write of any.
    ///
    /// # Panics
    /// When the closure does.
    pub fn write<R: Send>(&self, call: impl FnOnce(&mut T) -> R + Send + Copy) -> Result<R> {
        self.run(call)
    }

    fn run<F: FnOnce(&mut T) -> R + Send, R: Send>(&self, call: F) -> Result<R> {
        let inside = self.shared.enter()?;
        let runtime = &*self.shared.runtime;
        let mut writing = Writing::<T, F, R> { root: self.root, runtime, call: Some(call), result: None };
        let arg = (&raw mut writing).cast::<c_void>();
        // SAFETY: the slot is this thread's; `run_write` takes this argument, which waits here.
        let written = unsafe {
            runtime.write_and_settle_at(inside.0.slot.as_ref(), run_write::<T, F, R>, &[arg], Runtime::wait)
        };
        drop(inside);
        match (writing.result, written) {
            (Some(Err(payload)), _) => resume_unwind(payload),
            (Some(Ok(result)), Ok(())) => Ok(result),
            (_, Err(error)) => Err(error),
            (None, Ok(())) => Err(Error::Broken { what: "the write was not run".into() }),
        }
    }

    /// Reads the value, beside other reads and never beside a write, and returns what the closure returned, once
    /// what it saw is durable.
    ///
    /// # Errors
    /// `Broken`: a write's closure panicked. `Nested`: called from inside a read of the same state, or a write of any.
    pub fn read<R>(&self, call: impl FnOnce(&T) -> R) -> Result<R> {
        let inside = self.shared.enter()?;
        let runtime = &*self.shared.runtime;
        // SAFETY: the slot is this thread's; the value is shared with readers only.
        let (result, seen) =
            unsafe { runtime.read_at(inside.0.slot.as_ref(), || call(&*self.root.cast_const())) }?;
        // After the medium failed reads continue (see `Client::read_durable`).
        let _ = runtime.wait(seen);
        Ok(result)
    }

    /// Waits until everything acknowledged is durable, whatever the durability mode.
    ///
    /// # Errors
    /// The medium failed; `Nested` inside a write.
    pub fn sync(&self) -> Result<()> {
        self.shared.runtime.sync()
    }

    /// Brings the data file up to date and frees the log.
    ///
    /// # Errors
    /// The medium failed; `Nested` inside a write.
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.runtime.checkpoint()
    }

    /// Counters and state.
    #[must_use]
    pub fn stat(&self) -> Stat {
        self.shared.runtime.stat()
    }

    /// True when this opening made the state.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.shared.runtime.is_new()
    }

    /// Makes everything durable and closes the state. Values that writes returned, and that the program still holds,
    /// must not own memory of the state any more.
    ///
    /// # Errors
    /// The medium's error, after which the state opens by recovery; `Broken` after a closure panicked; `Batch` in a
    /// forked child.
    pub fn close(self) -> Result<()> {
        if let Err(error) = self.shared.runtime.refuse_child() {
            // A thread of the parent may have been ending: it never does here.
            std::mem::forget(self);
            return Err(error);
        }
        last_owner(self.shared, std::thread::yield_now).runtime.close()
    }
}

/// What `shared` holds, once this is the only owner; calls `pause` until then. Each other owner is a thread that is
/// ending and gives its slot back: a scope of threads does not wait for that.
fn last_owner<T>(mut shared: Arc<T>, mut pause: impl FnMut()) -> T {
    loop {
        match Arc::try_unwrap(shared) {
            Ok(owned) => return owned,
            Err(others) => shared = others,
        }
        pause();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_waits_for_threads_that_are_ending() {
        let shared = Arc::new(7);
        let mut ending = vec![Arc::clone(&shared), Arc::clone(&shared)];
        assert_eq!(last_owner(shared, || drop(ending.pop())), 7);
        assert!(ending.is_empty());
    }
}
