//! The durable application under test: blocks, a list and mappings in the arena, and variables of this program.

use crate::engines::durable_workload::{
    AppState, CommandStep, DurableCommand, MAP_COUNT, ROOMY_LEN, SLOT_COUNT, VARIABLE_COUNT, byte, page_of,
    patched,
};
use mangrove_durable::route::{
    mangrove_arena_alloc, mangrove_arena_alloc_zeroed, mangrove_arena_free, mangrove_arena_resize,
};
use mangrove_durable::{lab, will_write};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE_BYTES: u64 = 4096;
/// More than the working copy's address space.
const TOO_LONG_BYTES: usize = 1 << 40;
/// Blocks that one batch can free outside its commands.
const OUTSIDE_MAX: usize = 16;

/// Variables of the program. One that no command wrote holds the number of the opening.
static VARIABLES: [AtomicU64; VARIABLE_COUNT] = [const { AtomicU64::new(0) }; VARIABLE_COUNT];

#[repr(C)]
struct Block {
    len: u64,
    bytes: [u8; 0],
}

#[repr(C)]
struct Node {
    next: *mut Node,
    value: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Mapping {
    at: *mut u64,
    pages: u64,
}

#[repr(C)]
struct Table {
    slots: [*mut Block; SLOT_COUNT],
    list: *mut Node,
    maps: [Mapping; MAP_COUNT],
    commands: u64,
}

/// A batch's command, as its argument.
pub(crate) struct Call<'a> {
    command: &'a DurableCommand,
    roots: *mut usize,
    /// True if this program announces its writes; false if a tracker sees them.
    by_hand: bool,
    wrong: Option<&'static str>,
    outside: [*mut Block; OUTSIDE_MAX],
    outside_count: usize,
}

/// The result of one step.
type Done = Result<(), &'static str>;

impl<'a> Call<'a> {
    pub(crate) fn new(command: &'a DurableCommand, roots: *mut usize, by_hand: bool) -> Self {
        Self { command, roots, by_hand, wrong: None, outside: [null_mut(); OUTSIDE_MAX], outside_count: 0 }
    }

    /// Frees, after the command, the blocks that it gave up. Returns what went wrong in it.
    pub(crate) fn finish(self) -> Result<(), String> {
        for &block in &self.outside[..self.outside_count] {
            // SAFETY: the command took the block out of its slot: it is allocated, and nothing refers to it.
            unsafe { mangrove_arena_free(block.cast()) };
        }
        self.wrong.map_or(Ok(()), |wrong| Err(wrong.to_owned()))
    }

    fn put<T>(&self, at: *mut T, value: T) {
        if self.by_hand {
            will_write(at.cast(), size_of::<T>());
        }
        // SAFETY: a place of the state that the command owns.
        unsafe { at.write(value) };
    }

    fn fill(&self, bytes: *mut u8, range: std::ops::Range<usize>, seed: u8) {
        if self.by_hand && !range.is_empty() {
            will_write(bytes.wrapping_add(range.start), range.len());
        }
        for n in range {
            // SAFETY: inside the block, which the caller says is that long.
            unsafe { bytes.add(n).write(byte(seed, n)) };
        }
    }

    fn alloc(&self, bytes: usize) -> Result<*mut u8, &'static str> {
        let block = self.try_alloc(bytes);
        if block.is_null() { Err("the arena is full") } else { Ok(block) }
    }

    fn try_alloc(&self, bytes: usize) -> *mut u8 {
        // SAFETY: inside a command.
        if self.by_hand { lab::alloc(bytes) } else { unsafe { mangrove_arena_alloc(bytes, 16) } }
    }

    fn alloc_zeroed(&self, bytes: usize) -> Result<*mut u8, &'static str> {
        let block = if self.by_hand {
            lab::alloc_zeroed(bytes)
        } else {
            // SAFETY: inside a command.
            unsafe { mangrove_arena_alloc_zeroed(bytes, 16) }
        };
        if block.is_null() { Err("the arena is full") } else { Ok(block) }
    }

    fn resize(&self, block: *mut u8, bytes: usize) -> Result<*mut u8, &'static str> {
        let block = if self.by_hand {
            lab::resize(block, bytes).map_err(|_| "the arena does not know a block to be resized")?
        } else {
            // SAFETY: inside a command; a block of the state.
            unsafe { mangrove_arena_resize(block, bytes) }
        };
        if block.is_null() { Err("the arena is full") } else { Ok(block) }
    }

    fn free(&self, block: *mut u8) -> Done {
        if self.by_hand {
            return lab::free(block).map_err(|_| "the arena does not know a block to be freed");
        }
        // SAFETY: inside a command; a block of the state to which nothing refers any more.
        unsafe { mangrove_arena_free(block) };
        Ok(())
    }

    fn mmap(&self, pages: u64) -> Result<*mut u64, &'static str> {
        let len = pages * PAGE_BYTES;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = if self.by_hand {
            system_call(libc::SYS_mmap, &[0, len, access as u64, kind as u64, u64::MAX, 0])? as *mut u64
        } else {
            // SAFETY: a fresh mapping.
            unsafe { libc::mmap(null_mut(), len as usize, access, kind, -1, 0) }.cast()
        };
        if at as isize >= -4095 && (at as isize) < 0 { Err("mmap failed") } else { Ok(at) }
    }

    fn munmap(&self, map: Mapping) -> Done {
        let answer = if self.by_hand {
            system_call(libc::SYS_munmap, &[map.at as u64, map.pages * PAGE_BYTES, 0, 0, 0, 0])?
        } else {
            // SAFETY: a mapping of the state to which nothing refers any more.
            i64::from(unsafe { libc::munmap(map.at.cast(), (map.pages * PAGE_BYTES) as usize) })
        };
        if answer == 0 { Ok(()) } else { Err("munmap failed") }
    }

    fn mremap(&self, map: Mapping, pages: u64) -> Result<*mut u64, &'static str> {
        let (old, new) = (map.pages * PAGE_BYTES, pages * PAGE_BYTES);
        let at = if self.by_hand {
            let flags = libc::MREMAP_MAYMOVE as u64;
            system_call(libc::SYS_mremap, &[map.at as u64, old, new, flags, 0, 0])? as *mut u64
        } else {
            // SAFETY: a mapping of the state; whatever holds its address gets the new one.
            unsafe { libc::mremap(map.at.cast(), old as usize, new as usize, libc::MREMAP_MAYMOVE) }.cast()
        };
        if at as isize >= -4095 && (at as isize) < 0 { Err("mremap failed") } else { Ok(at) }
    }

    fn run(&mut self) -> Done {
        // SAFETY: the first root is the table since the initialisation; one command runs at a time.
        let table = unsafe { &mut *(*self.roots as *mut Table) };
        self.put(&raw mut table.commands, table.commands + 1);
        let command = self.command;
        for step in &command.0 {
            self.step(table, step)?;
        }
        Ok(())
    }

    fn step(&mut self, table: &mut Table, step: &CommandStep) -> Done {
        match *step {
            CommandStep::Put(slot, len, seed) => {
                self.put_block(&mut table.slots[usize::from(slot)], len, seed)?
            }
            CommandStep::Zeroed(slot, len) => {
                let slot = &mut table.slots[usize::from(slot)];
                if !slot.is_null() {
                    self.free(slot.cast())?;
                }
                let block = self.alloc_zeroed(size_of::<Block>() + len as usize)?.cast::<Block>();
                self.put(slot, block);
                // SAFETY: a block of the state.
                self.put(unsafe { &raw mut (*block).len }, u64::from(len));
            }
            CommandStep::Roomy(slot, bytes, seed) => {
                let slot = &mut table.slots[usize::from(slot)];
                if !slot.is_null() {
                    self.free(slot.cast())?;
                }
                let block = self.alloc(size_of::<Block>() + bytes as usize)?.cast::<Block>();
                self.put(slot, block);
                // SAFETY: a block of the state, longer than what it uses.
                unsafe {
                    self.put(&raw mut (*block).len, u64::from(ROOMY_LEN));
                    self.fill((&raw mut (*block).bytes).cast(), 0..ROOMY_LEN as usize, seed);
                }
            }
            CommandStep::TooLong => {
                if !self.try_alloc(TOO_LONG_BYTES).is_null() {
                    return Err("the arena gave more than it has");
                }
            }
            CommandStep::Patch(slot, at, count, seed) => {
                let block = table.slots[usize::from(slot)];
                if !block.is_null() {
                    // SAFETY: a block of the state.
                    let (bytes, len) = unsafe { ((&raw mut (*block).bytes).cast(), (*block).len) };
                    self.fill(bytes, patched(len as usize, at, count), seed);
                }
            }
            CommandStep::Free(slot) | CommandStep::FreeOutside(slot) => {
                let slot = &mut table.slots[usize::from(slot)];
                let block = *slot;
                if !block.is_null() {
                    self.put(slot, null_mut());
                    if matches!(step, CommandStep::Free(_)) {
                        self.free(block.cast())?;
                    } else {
                        self.outside[self.outside_count] = block;
                        self.outside_count += 1;
                    }
                }
            }
            CommandStep::Push(value) => {
                let node = self.alloc(size_of::<Node>())?.cast::<Node>();
                self.put(node, Node { next: table.list, value });
                self.put(&raw mut table.list, node);
            }
            CommandStep::Pop => {
                let node = table.list;
                if !node.is_null() {
                    // SAFETY: a node of the list.
                    self.put(&raw mut table.list, unsafe { (*node).next });
                    self.free(node.cast())?;
                }
            }
            CommandStep::Variable(at, value) => self.put(VARIABLES[usize::from(at)].as_ptr(), value),
            CommandStep::Map(at, pages) => {
                let map = &mut table.maps[usize::from(at)];
                if map.pages > 0 {
                    self.munmap(*map)?;
                }
                let at = self.mmap(pages)?;
                self.put(map, Mapping { at, pages });
            }
            CommandStep::Word(at, page, value) => {
                let map = table.maps[usize::from(at)];
                if map.pages > 0 {
                    let page = page_of(map.pages, page);
                    self.put(map.at.wrapping_add((page * PAGE_BYTES / 8) as usize), value);
                }
            }
            CommandStep::Remap(at, pages) => {
                let map = &mut table.maps[usize::from(at)];
                if map.pages > 0 {
                    let at = self.mremap(*map, pages)?;
                    self.put(map, Mapping { at, pages });
                }
            }
            CommandStep::Unmap(at) => {
                let map = &mut table.maps[usize::from(at)];
                if map.pages > 0 {
                    self.munmap(*map)?;
                    self.put(map, Mapping { at: null_mut(), pages: 0 });
                }
            }
        }
        Ok(())
    }

    fn put_block(&self, slot: &mut *mut Block, len: u32, seed: u8) -> Done {
        let bytes = size_of::<Block>() + len as usize;
        let old = if slot.is_null() {
            let block = self.alloc(bytes)?.cast::<Block>();
            self.put(slot, block);
            0
        } else {
            // SAFETY: a block of the state.
            let old = unsafe { (**slot).len };
            let block = self.resize(slot.cast(), bytes)?.cast::<Block>();
            self.put(slot, block);
            old as usize
        };
        let block = *slot;
        // SAFETY: a block of the state, of this many bytes.
        unsafe {
            self.put(&raw mut (*block).len, u64::from(len));
            self.fill((&raw mut (*block).bytes).cast(), old.min(len as usize)..len as usize, seed);
        }
        Ok(())
    }
}

fn system_call(number: i64, args: &[u64; 6]) -> Result<i64, &'static str> {
    match lab::system_call(number, args) {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err("a mapping of the state was left to the kernel"),
        Err(_) => Err("a mapping of the state was refused"),
    }
}

/// The command.
///
/// # Safety
/// `arg` is a `Call` with the roots of the runtime that runs it; nothing else uses the state.
pub(crate) unsafe extern "C" fn run_call(arg: *mut c_void) {
    // SAFETY: by contract.
    let call = unsafe { &mut *arg.cast::<Call<'_>>() };
    if let Err(wrong) = call.run() {
        call.wrong = Some(wrong);
    }
}

/// Where the initialisation finds the roots, and whether the program announces its writes.
pub(crate) struct Making {
    pub(crate) by_hand: bool,
    pub(crate) roots: *mut usize,
}

/// Makes the table, and notes it in the first root.
///
/// # Safety
/// `arg` is a `Making`, with the roots of the runtime that runs it.
pub(crate) unsafe extern "C" fn make(arg: *mut c_void) -> c_int {
    // SAFETY: by contract.
    let making = unsafe { &mut *arg.cast::<Making>() };
    let block = if making.by_hand {
        lab::alloc(size_of::<Table>())
    } else {
        // SAFETY: inside a command.
        unsafe { mangrove_arena_alloc(size_of::<Table>(), 16) }
    };
    if block.is_null() {
        return 1;
    }
    if making.by_hand {
        will_write(block, size_of::<Table>());
        will_write(making.roots.cast(), size_of::<usize>());
    }
    // SAFETY: a fresh block of this size, and a word of the state.
    unsafe {
        block.write_bytes(0, size_of::<Table>());
        making.roots.write(block as usize);
    }
    0
}

/// Sets the variables as a program finds them that has just started: to its own values, not the state's.
pub(crate) fn fresh_variables(run: u64) {
    for variable in &VARIABLES {
        variable.store(run, Ordering::Relaxed);
    }
}

/// Where the state differs from the model, if it does; a variable that no command wrote must hold `run`.
///
/// # Safety
/// `roots` are the runtime's, and no command runs.
pub(crate) unsafe fn difference(roots: *const usize, state: &AppState, run: u64) -> Option<String> {
    // SAFETY: by contract; the first root is the table, or 0.
    let table = unsafe { (*roots as *const Table).as_ref() };
    let Some(table) = table else { return Some("there is no table".to_owned()) };
    if table.commands != state.commands {
        return Some(format!("{} commands have run, not {}", table.commands, state.commands));
    }
    for (at, (&block, wanted)) in table.slots.iter().zip(&state.slots).enumerate() {
        // SAFETY: null, or a block of the state.
        let len = unsafe { block.as_ref() }.map(|block| block.len as usize);
        if len != wanted.as_ref().map(Vec::len) {
            return Some(format!("slot {at} has {len:?} bytes, not {:?}", wanted.as_ref().map(Vec::len)));
        }
        if let (Some(len), Some(wanted)) = (len, wanted) {
            // SAFETY: the block's bytes.
            let found = unsafe { std::slice::from_raw_parts((&raw const (*block).bytes).cast::<u8>(), len) };
            if let Some(n) = (0..len).find(|&n| found[n] != wanted[n]) {
                return Some(format!(
                    "byte {n} of {len} in slot {at} is {:#x}, not {:#x}",
                    found[n], wanted[n]
                ));
            }
        }
    }
    let mut node = table.list.cast_const();
    for (n, &wanted) in state.list.iter().rev().enumerate() {
        // SAFETY: null, or a node of the list.
        let Some(found) = (unsafe { node.as_ref() }) else {
            return Some(format!("the list has {n} nodes, not {}", state.list.len()));
        };
        if found.value != wanted {
            return Some(format!("node {n} of the list is {:#x}, not {wanted:#x}", found.value));
        }
        node = found.next;
    }
    if !node.is_null() {
        return Some(format!("the list has more than {} nodes", state.list.len()));
    }
    for (at, variable) in VARIABLES.iter().enumerate() {
        let (found, wanted) =
            (variable.load(Ordering::Relaxed), state.variables.get(&(at as u16)).copied().unwrap_or(run));
        if found != wanted {
            return Some(format!("variable {at} is {found:#x}, not {wanted:#x}"));
        }
    }
    for (n, (map, wanted)) in table.maps.iter().zip(&state.maps).enumerate() {
        if map.pages != wanted.as_ref().map_or(0, |map| map.pages) {
            return Some(format!("mapping {n} has {} pages", map.pages));
        }
        let Some(wanted) = wanted else { continue };
        for page in 0..map.pages {
            // SAFETY: inside the mapping.
            let words = unsafe { std::slice::from_raw_parts(map.at.add((page * 512) as usize), 512) };
            let first = wanted.words.get(&page).copied().unwrap_or(0);
            if words[0] != first || words[1..].iter().any(|&word| word != 0) {
                return Some(format!(
                    "page {page} of mapping {n} begins with {:#x}, not {first:#x}",
                    words[0]
                ));
            }
        }
    }
    None
}
