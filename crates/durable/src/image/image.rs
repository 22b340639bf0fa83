//! The image: everything persistent of one program in one region, as the runtime's [`Backing`].
//!
//! Invariants:
//! 1. The header's magic word is committed together with everything that initialisation made: a region
//!    without it is all zero and new, or damaged.
//! 2. What a command wrote is in its commit if it lies in the region or is a variable of a program module that was
//!    loaded before its batch began; everything else (stacks, the process's heap, libc's own data) is not persistent.
//! 3. Between opening and the first commit nothing durable changes; after a commit that failed nothing either.
//! 4. Memory that commands had stays where it is when the image is closed or given up, until a state is opened again:
//!    unless the options say that nobody looks there after closing, and longer where a command said that somebody does.

use crate::arena::{ArenaStat, FreeBytes, Heap, Space, View, Writes};
use crate::audit::Audit;
use crate::backing::{Backing, Entered};
use crate::globals::Globals;
use crate::image_layout::{ARENA_OFFSET, Header, MAGIC, ROOT_COUNT, VERSION};
use crate::modules::{Gone, Modules, find_pointer, system_library_that_points_into};
use crate::route::{self, Place, Retired};
use crate::{Error, Result, keys, lab};
use mangrove_shadow::{Shadow, Ticket};
use mangrove_sys::{LeftMemory, ModulesWatch, Parked, park};
use mangrove_tracker::{BLOCK_BYTES_DEFAULT, WriteSet};
use parking_lot::Mutex;
use std::io;
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Long free runs go back to the system after so many commits.
const TRIM_COMMITS: u64 = 4096;

/// How an image is opened.
#[derive(Clone, Debug)]
pub(crate) struct ImageOptions {
    pub(crate) shadow: mangrove_shadow::Options,
    /// Variables of program modules that commands write are part of the state.
    pub(crate) keeps_variables: bool,
    /// The state points only into itself: modules do not matter.
    pub(crate) self_contained: bool,
    /// Nobody looks at the state after closing.
    pub(crate) returns_memory: bool,
    /// Commands run as translations of their code.
    pub(crate) translates: bool,
}

/// What opening found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Nobody has finished initialising this state.
    pub(crate) new: bool,
}

/// Counters of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageStat {
    /// What the arena holds.
    pub arena: ArenaStat,
    /// Pages of the program's variables of which something is part of the state.
    pub variable_pages: u64,
    /// Persistent blocks that were freed outside commands, in this run.
    pub freed_outside: u64,
}

pub(crate) struct Image {
    place: Place,
    heap: Box<Heap>,
    view: Box<View>,
    header: *mut Header,
    shadow: Arc<Shadow>,
    inner: Mutex<Inner>,
    returns_memory: bool,
    translates: bool,
    /// None where neither modules nor code matter.
    watch: Option<ModulesWatch>,
    /// The set of variables has changed: the next write set has to be told.
    variables_changed: AtomicBool,
    /// A commit failed: memory holds what no unit may take.
    failed: AtomicBool,
}

// SAFETY: the heap is used by who is inside a command, or commits, and both are one at a time (`Backing`);
// the header's words likewise.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

struct Inner {
    globals: Globals,
    modules: Modules,
    commits: u64,
    /// [`Heap::frees`] at the last commit.
    frees: u64,
    /// Written by this side since the last commit, as (address, bytes).
    early: Early,
    ranges: Vec<(usize, usize)>,
    written: Vec<(usize, usize)>,
    audit: Audit,
}

/// Remembers ranges for the next commit.
#[derive(Default)]
struct Early(Vec<(usize, usize)>);

impl Writes for Early {
    #[track_caller]
    fn wrote(&mut self, ptr: usize, len: usize) {
        if !lab::is_silent(Location::caller()) {
            self.0.push((ptr, len));
        }
    }
}

/// The shadow as the arena wants it.
struct Ground(Arc<Shadow>);

impl Space for Ground {
    fn base(&self) -> *mut u8 {
        self.0.base()
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn capacity(&self) -> u64 {
        self.0.capacity()
    }
    fn grow(&mut self, len: u64) -> io::Result<()> {
        // In the middle of a command's malloc: what growing allocates is not the state's.
        route::outside(|| self.0.grow(len).map_err(|e| io::Error::other(e.to_string())))
    }
}

/// Memory of states that were closed, or whose initialisation failed. Destructors of a program's globals run after that,
/// and look at it: they find it as it was, and what they change and free is nobody's. Gone when a state is opened again,
/// unless libc or the like holds on to it: the buffer of a stream that a command was the first to use, the environment.
static LEFT: Mutex<Vec<(Retired, LeftMemory)>> = Mutex::new(Vec::new());

impl Image {
    /// Opens the image at `path`, or makes one. Everything is put back when this returns: memory at its
    /// addresses, variables in their modules.
    ///
    /// # Errors
    /// What the pool says; `Foreign`, `Moved` when this process is not one that the state can live in.
    pub(crate) fn open(path: &Path, options: &ImageOptions) -> Result<(Self, Opened)> {
        let mut left = LEFT.lock();
        left.retain(|(memory, _)| system_library_that_points_into(&memory.span()).is_some());
        let shadow = options.shadow.clone().kind("durable").open(path).map_err(|error| match error {
            mangrove_shadow::Error::AddressTaken { address, .. } => {
                in_the_way(&left, address).unwrap_or(error.into())
            }
            error => error.into(),
        })?;
        drop(left);
        Self::over(shadow, options)
    }

    /// As `open`, in a working copy that is open already.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn over(shadow: Shadow, options: &ImageOptions) -> Result<(Self, Opened)> {
        keys::prepare();
        let shadow = Arc::new(shadow);
        let header = shadow.base().cast::<Header>();
        let mut early = Early::default();
        let watch = (!options.self_contained || options.translates).then(ModulesWatch::begin);
        let new = is_new(&shadow)?;
        let (heap, modules, globals) = if new {
            Self::make(&shadow, header, options, &mut early)?
        } else {
            Self::find(&shadow, header, options)?
        };
        let mut heap = Box::new(heap);
        let mut view = Box::new(heap.view());
        let (base, reach) = (shadow.base() as usize, shadow.capacity() as usize);
        // SAFETY: both are boxes that live as long as the place, in this struct; the heap is used as asked.
        let place = unsafe { route::register(&raw mut *heap, &raw mut *view, base, reach) };
        let place = place.ok_or_else(|| Error::Invalid {
            what: "too many durable applications are open in this process; close one".into(),
        })?;
        let inner = Inner {
            globals,
            modules,
            commits: 0,
            frees: 0,
            early,
            ranges: Vec::new(),
            written: Vec::new(),
            audit: Audit::new(),
        };
        let image = Self {
            place,
            heap,
            view,
            header,
            shadow,
            inner: Mutex::new(inner),
            returns_memory: options.returns_memory,
            translates: options.translates,
            watch,
            variables_changed: AtomicBool::new(true),
            failed: AtomicBool::new(false),
        };
        Ok((image, Opened { new }))
    }

    fn make(
        shadow: &Arc<Shadow>,
        header: *mut Header,
        options: &ImageOptions,
        early: &mut Early,
    ) -> Result<(Heap, Modules, Globals)> {
        let ground = Box::new(Ground(Arc::clone(shadow)));
        let mut heap = Heap::format(ground, ARENA_OFFSET, early).map_err(|what| Error::Invalid { what })?;
        let modules =
            if options.self_contained { Modules::none() } else { Modules::present(options.keeps_variables) };
        // SAFETY: the region's first page, which `format` grew and leaves to us.
        let head = unsafe { &mut *header };
        head.version = VERSION;
        head.header_bytes = size_of::<Header>() as u32;
        head.base = shadow.base() as u64;
        (head.modules, head.modules_bytes) = place_modules(&mut heap, &modules, early)?;
        early.wrote(header as usize, size_of::<Header>());
        Ok((heap, modules, Globals::new()))
    }

    fn find(
        shadow: &Arc<Shadow>,
        header: *mut Header,
        options: &ImageOptions,
    ) -> Result<(Heap, Modules, Globals)> {
        // SAFETY: the region's first page.
        let head = unsafe { &*header };
        if head.version != VERSION || head.header_bytes as usize != size_of::<Header>() {
            return Err(Error::Invalid {
                what: format!(
                    "this state has format {} and this library knows format {VERSION}; use the library that wrote it",
                    head.version
                ),
            });
        }
        let damaged = |what: String| Error::Damaged { what };
        if head.base != shadow.base() as u64 {
            return Err(damaged(format!(
                "the state says it lies at {:#x}, but its pool says {:p}",
                head.base,
                shadow.base()
            )));
        }
        let heap = Heap::open(Box::new(Ground(Arc::clone(shadow))), ARENA_OFFSET).map_err(damaged)?;
        let table = bytes_at(&heap, head.modules, head.modules_bytes)
            .and_then(Modules::decode)
            .ok_or_else(|| damaged("the state's table of modules cannot be read".into()))?;
        let (modules, gone) = if options.self_contained {
            (Modules::none(), Vec::new())
        } else {
            Modules::compare(table, options.keeps_variables)?
        };
        if let Some(what) = points_there(&heap, head, &gone).map_err(damaged)? {
            return Err(Error::Moved { what });
        }
        keys::make_again(&head.keys).map_err(|what| Error::Moved { what })?;
        // SAFETY: the program opens its state before anybody uses it.
        let globals = unsafe { Globals::restore(header, &heap, &modules) }.map_err(damaged)?;
        Ok((heap, modules, globals))
    }

    /// The next commit ends initialisation: a crash after it finds the state, a crash before it nothing. To be
    /// called once, before the first commit of all, which takes the whole header.
    pub(crate) fn mark_initialised(&self) {
        debug_assert_eq!(self.inner.lock().commits, 0);
        // SAFETY: the region's first page; nobody is inside a command.
        unsafe { (*self.header).magic = MAGIC };
    }

    /// Words of the state for the runtime and its user: a command may write them like any memory.
    pub(crate) fn roots(&self) -> *mut [usize; ROOT_COUNT] {
        // SAFETY: only computes an address in the region's first page.
        unsafe { &raw mut (*self.header).roots }
    }

    /// Counts everything. O(spans of the arena). No command may run.
    pub(crate) fn stat(&self) -> ImageStat {
        ImageStat {
            arena: self.heap.stat(),
            variable_pages: self.inner.lock().globals.pages() as u64,
            freed_outside: self.place.deferred_count(),
        }
    }

    /// What is wrong with the state's own structures, as sentences. No command may run.
    pub(crate) fn check(&self) -> Vec<String> {
        self.heap.check()
    }

    #[expect(clippy::mut_from_ref, reason = "one caller at a time, see SAFETY")]
    fn heap(&self) -> &mut Heap {
        // SAFETY: called by `commit` and before `enter` only: one at a time, and nobody is inside a command (`Backing`). The
        // box is reached through the same pointer that commands use.
        unsafe { &mut *(&raw const *self.heap).cast_mut() }
    }
}

impl Backing for Image {
    #[inline]
    unsafe fn enter(&self, writes: *mut WriteSet) -> Result<Entered> {
        if self.modules_changed() {
            self.look_at_modules(&mut self.inner.lock())?;
        }
        // Relaxed: set by who opened, or by who entered before, which are ordered before by the runtime.
        if self.variables_changed.load(Ordering::Relaxed) {
            self.variables_changed.store(false, Ordering::Relaxed);
            let variables = self.inner.lock().modules.variables();
            // SAFETY: the caller's write set, which is empty now.
            unsafe { (*writes).set_exact(&variables) };
        }
        // SAFETY: passed on.
        unsafe { self.place.enter(writes) };
        let watch = self.watch.as_ref().filter(|_| self.translates);
        Ok(Entered { unloaded: watch.map_or(0, ModulesWatch::unloaded) })
    }

    #[inline]
    fn leave(&self) {
        route::leave();
    }

    fn commit(&self, writes: &mut WriteSet) -> Result<Ticket> {
        let committed = self.take(writes);
        if committed.is_err() {
            // Relaxed: looked at by `close`, which is alone.
            self.failed.store(true, Ordering::Relaxed);
        }
        committed
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        Ok(self.shadow.wait(ticket)?)
    }

    fn durable(&self) -> Ticket {
        self.shadow.durable()
    }

    fn sync(&self) -> Result<()> {
        Ok(self.shadow.sync()?)
    }

    fn sync_to(&self, ticket: Ticket) -> Result<()> {
        Ok(self.shadow.sync_to(ticket)?)
    }

    fn checkpoint(&self) -> Result<()> {
        Ok(self.shadow.checkpoint()?)
    }

    #[inline]
    fn poisoned(&self) -> Option<Error> {
        self.shadow.poisoned().map(Error::from)
    }

    fn examine(&self) -> (ImageStat, Vec<String>) {
        (self.stat(), self.check())
    }

    fn close(self: Box<Self>) -> Result<()> {
        let freed = self.commit_deferred();
        let returns_memory = self.returns_memory;
        let (shadow, place, view) = self.without_heap()?;
        // SAFETY: no command runs.
        let aside = if returns_memory { None } else { unsafe { move_aside(&shadow) }.ok() };
        let Some(aside) = aside else {
            // Nobody looks there, or there is no room: then destructors that run at exit had better not.
            drop(place);
            shadow.close()?;
            return freed;
        };
        let closed = shadow.close();
        LEFT.lock().push((place.retire(view), aside.put_back()));
        closed?;
        freed
    }

    fn give_up(self: Box<Self>) {
        // The error that led here is the one to tell.
        let Ok((shadow, place, view)) = self.without_heap() else { return };
        let is_kept = place.is_kept();
        let retired = place.retire(view);
        // SAFETY: no command runs.
        let Ok(aside) = (unsafe { move_aside(&shadow) }) else {
            // Then it stays as it is, pool and all.
            return std::mem::forget((retired, shadow));
        };
        drop(shadow);
        let left = (retired, aside.put_back());
        if is_kept { std::mem::forget(left) } else { LEFT.lock().push(left) }
    }
}

impl Image {
    /// See [`Backing::commit`].
    fn take(&self, writes: &mut WriteSet) -> Result<Ticket> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.written.clear();
        if !writes.exact().is_empty() {
            inner.written.extend_from_slice(writes.exact());
            if self.modules_changed() {
                // A command may have unloaded what it, or one before it, wrote to.
                self.look_at_modules(inner)?;
                let Inner { modules, written, .. } = inner;
                written.retain(|&(from, len)| {
                    modules.is_variable(from) && modules.is_variable(from + len.max(1) - 1)
                });
            }
            inner
                .globals
                .keep(self.header, self.heap(), &inner.modules, &inner.written, &mut lab::Heard(writes))
                .map_err(|_| full())?;
        }
        let (base, len) = (self.shadow.base() as usize, self.shadow.len() as usize);
        let frees = self.heap().frees();
        let free = (frees != inner.frees).then(|| self.heap.free_bytes());
        inner.frees = frees;
        gather(writes, base, len, free, &mut inner.ranges);
        // The whole reserve: what looks like an address in its unused part is a number or a text.
        let reserve = base..base + self.shadow.capacity() as usize;
        inner.audit.look(&inner.written, &inner.ranges, &reserve);
        inner.ranges.append(&mut inner.early.0);
        writes.clear();
        if inner.ranges.is_empty() {
            // Nothing changed: the answers rest on what was committed before.
            return Ok(self.shadow.committed());
        }
        let ticket = self.shadow.commit(0, &inner.ranges)?;
        inner.commits += 1;
        if inner.commits.is_multiple_of(TRIM_COMMITS) {
            self.heap().trim();
        }
        Ok(ticket)
    }

    /// Frees what was freed outside commands, in a command of its own. After a commit that failed they are left, as by
    /// a crash: memory around them holds what the failed batch did.
    fn commit_deferred(&self) -> Result<()> {
        let failed = self.failed.load(Ordering::Relaxed) || self.shadow.poisoned().is_some();
        if failed || !self.place.has_deferred() {
            return Ok(());
        }
        let mut writes =
            WriteSet::new(BLOCK_BYTES_DEFAULT).map_err(|e| Error::Tracker { what: e.to_string() })?;
        // SAFETY: the set lives until `leave`; no command runs any more.
        unsafe { self.enter(&raw mut writes) }?;
        self.leave();
        self.commit(&mut writes).map(drop)
    }

    /// What is left when the arena has ended.
    fn without_heap(self) -> Result<(Shadow, Place, Box<View>)> {
        let Self { place, heap, view, shadow, .. } = self;
        drop(heap);
        let Ok(shadow) = Arc::try_unwrap(shadow).map_err(drop) else {
            return Err(Error::Invalid { what: "the state is still in use; close it last".into() });
        };
        Ok((shadow, place, view))
    }

    /// Whether libraries came or went since the last time. One caller at a time.
    #[inline]
    fn modules_changed(&self) -> bool {
        self.watch.as_ref().is_some_and(ModulesWatch::has_changed)
    }

    /// Records libraries that were loaded since, before a command may call them: the state may get their addresses,
    /// and what it writes to their variables is its own. Those that went have no variables.
    #[cold]
    fn look_at_modules(&self, inner: &mut Inner) -> Result<()> {
        let refreshed = inner.modules.refresh();
        if refreshed.came || refreshed.went {
            inner.globals.find_again(self.header, &inner.modules);
            self.variables_changed.store(true, Ordering::Relaxed);
        }
        if refreshed.came {
            // SAFETY: the region's first page; no command runs.
            let head = unsafe { &mut *self.header };
            record_modules(head, self.heap(), &inner.modules, &mut inner.early)?;
        }
        Ok(())
    }
}

/// Takes the working copy out of the shadow's way, to be put back when the shadow has ended.
///
/// # Safety
/// Nobody touches it until then. A shadow does not: it ends from its log.
unsafe fn move_aside(shadow: &Shadow) -> io::Result<Parked> {
    let base = shadow.base() as usize;
    // SAFETY: the caller's promise.
    unsafe { park(base..base + shadow.len() as usize) }
}

fn full() -> Error {
    Error::Full {
        what:
            "the durable state's address space is in use; make room, or create it anew with a larger capacity"
                .into(),
    }
}

/// Puts the table of modules into a block of its own, in place of the last one.
fn record_modules(head: &mut Header, heap: &mut Heap, modules: &Modules, w: &mut Early) -> Result<()> {
    let old = head.modules as usize;
    (head.modules, head.modules_bytes) = place_modules(heap, modules, w)?;
    Header::report(w, &head.modules);
    Header::report(w, &head.modules_bytes);
    // A table that is no block would have been refused at opening.
    let _ = heap.free(w, old);
    Ok(())
}

/// The table of modules in a new block: its address and its bytes.
fn place_modules(heap: &mut Heap, modules: &Modules, w: &mut Early) -> Result<(u64, u64)> {
    let table = modules.encode();
    let block = heap.alloc(w, table.len());
    if block.is_null() {
        return Err(full());
    }
    // SAFETY: a fresh block of this many bytes.
    unsafe { std::ptr::copy_nonoverlapping(table.as_ptr(), block, table.len()) };
    w.wrote(block as usize, table.len());
    Ok((block as u64, table.len() as u64))
}

/// The bytes of a block in use, if it is one and has as many.
fn bytes_at(heap: &Heap, address: u64, len: u64) -> Option<&[u8]> {
    let usable = heap.usable_bytes(address as usize)?;
    if usable < len as usize {
        return None;
    }
    // SAFETY: a block in use, in the region; nobody writes while the state is opened.
    Some(unsafe { std::slice::from_raw_parts(address as *const u8, len as usize) })
}

/// Whether nobody has finished initialising the state: then nothing of it is there.
///
/// # Errors
/// `Damaged`, when something is there and it does not begin as a state does.
fn is_new(shadow: &Shadow) -> Result<bool> {
    // SAFETY: whole pages, all of the region; nobody else uses it yet.
    let words = unsafe { std::slice::from_raw_parts(shadow.base().cast::<u64>(), shadow.len() as usize / 8) };
    match words.first() {
        Some(&MAGIC) => Ok(false),
        _ if words.iter().all(|&word| word == 0) => Ok(true),
        _ => Err(Error::Damaged { what: "its first page does not begin as that of a state".into() }),
    }
}

/// What of the write set lies in the region, sorted and joined, into `out`; without what lies in no block any
/// more, if the batch freed any.
fn gather(
    writes: &WriteSet,
    base: usize,
    len: usize,
    free: Option<FreeBytes<'_>>,
    out: &mut Vec<(usize, usize)>,
) {
    out.clear();
    let block = writes.block_bytes();
    out.extend(
        writes
            .blocks()
            .iter()
            .map(|&b| b as usize)
            .filter(|b| b.wrapping_sub(base) < len)
            .map(|b| (b, block)),
    );
    for &(from, bytes) in writes.large() {
        let (from, until) = (from.max(base), (from + bytes).min(base + len));
        if from < until {
            out.push((from, until - from));
        }
    }
    out.sort_unstable();
    if let Some(mut free) = free {
        out.retain(|&(from, bytes)| !free.hold(from, bytes));
    }
    let mut kept = 0;
    for at in 0..out.len() {
        let (from, bytes) = out[at];
        if kept > 0 && from <= out[kept - 1].0 + out[kept - 1].1 {
            let last = &mut out[kept - 1];
            last.1 = last.1.max(from + bytes - last.0);
        } else {
            out[kept] = (from, bytes);
            kept += 1;
        }
    }
    out.truncate(kept);
}

/// Says who holds on to memory of a closed state, if that is what lies at `address`.
fn in_the_way(left: &[(Retired, LeftMemory)], address: u64) -> Option<Error> {
    let (memory, _) = left.iter().find(|(memory, _)| memory.span().contains(&(address as usize)))?;
    let library = system_library_that_points_into(&memory.span())?;
    Some(Error::Invalid {
        what: format!(
            "a state that this process closed was at {address:#x}, and {library} still uses memory of it, as the first use of \
             a stream, of setenv or of localtime inside a command makes it; open it in a new process, or use such things \
             once before opening"
        ),
    })
}

/// Why the state cannot live without the modules of `gone`, if it points into one.
///
/// # Errors
/// A sentence, when the arena's description is damaged.
fn points_there(heap: &Heap, head: &Header, gone: &[Gone]) -> std::result::Result<Option<String>, String> {
    if gone.is_empty() {
        return Ok(None);
    }
    let say = |at: usize, word: usize, which: usize| {
        format!("the durable state at {at:#x} points to {word:#x}, and {}", gone[which].why)
    };
    if let Some((at, which)) = find_pointer(&head.roots, gone) {
        return Ok(Some(say((&raw const head.roots[at]) as usize, head.roots[at], which)));
    }
    let destructors = head.keys.map(|key| key.destructor);
    if let Some((at, which)) = find_pointer(&destructors, gone) {
        return Ok(Some(say((&raw const head.keys[at].destructor) as usize, destructors[at], which)));
    }
    let mut found = None;
    heap.for_each_live(|from, len| {
        if found.is_some() || from as u64 == head.modules {
            return;
        }
        // SAFETY: a block in use or a mapping, in the region, aligned to 16; nobody writes during opening.
        let words = unsafe { std::slice::from_raw_parts(from as *const usize, len / size_of::<usize>()) };
        found = find_pointer(words, gone).map(|(at, which)| say(from + at * 8, words[at], which));
    })?;
    Ok(found)
}
