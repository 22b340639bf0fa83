//! The modules of this process: its program and the loaded libraries, as the dynamic linker lists them.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// A variable of a library that lies in the program, because the program was linked to name it directly (a copy
/// relocation). The library itself uses this copy, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedVariable {
    /// Its name among the library's symbols.
    pub name: CString,
    /// Where it is.
    pub range: Range<usize>,
}

/// One loaded program or library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// The file's path as the dynamic linker knows it; the program's own from /proc/self/exe.
    pub path: String,
    /// The difference between an address in memory and the address in the file.
    pub bias: usize,
    /// The program itself.
    pub is_program: bool,
    /// First address and the one after the last, over all its segments.
    pub span: Range<usize>,
    /// GNU build id; empty if the linker left it out.
    pub build_id: Vec<u8>,
    /// Parts that stay writable while it runs: writable segments without those made read-only after relocation
    /// (RELRO), and without the jump table of lazy binding.
    pub data: Vec<Range<usize>>,
    /// Variables of other modules that lie in `data`.
    pub copies: Vec<CopiedVariable>,
    /// Segments that hold code.
    pub code: Vec<Range<usize>>,
    /// Segments that are never written, code among them.
    pub fixed: Vec<Range<usize>>,
}

impl Module {
    /// Whether this library itself, not one that it needs, has a symbol of this name. O(1), with a look-up by the
    /// dynamic linker.
    #[must_use]
    pub fn defines(&self, name: &CStr) -> bool {
        let Ok(path) = CString::new(self.path.as_bytes()) else { return false };
        // SAFETY: reads about what is loaded already, and closes the handle.
        unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() {
                return false;
            }
            let address = libc::dlsym(handle, name.as_ptr());
            libc::dlclose(handle);
            self.span.contains(&(address as usize))
        }
    }

    /// Keeps this library loaded as long as the process. `None` where it is not loaded, or the linker does not
    /// return its description.
    fn keep(&self) -> Option<&'static LinkMap> {
        let path = CString::new(self.path.as_bytes()).ok()?;
        // SAFETY: reads about what is loaded already. The handle is never closed, so its description stays.
        unsafe {
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() { None } else { link_map(handle) }
        }
    }

    /// Removes a part from `data`.
    pub fn leave_out(&mut self, part: &Range<usize>) {
        cut(&mut self.data, part);
    }
}

/// Every module, the program first.
#[must_use]
pub fn loaded_modules() -> Vec<Module> {
    unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, to: *mut c_void) -> c_int {
        // SAFETY: the linker passes a valid description, and `to` is the vector below.
        unsafe {
            let to = &mut *to.cast::<Vec<Module>>();
            let first = to.is_empty();
            to.push(read_module(&*info, first));
        }
        0
    }
    let mut all: Vec<Module> = Vec::new();
    // SAFETY: the callback has the promised signature and only runs during the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut all).cast()) };
    all.retain(|module| !module.span.is_empty());
    all
}

/// Reads a byte of each page of code and constants of the module in which `address` lies, so that the pages are mapped
/// and marked as accessed. O(size of the module). Nothing, if there is no such module.
pub fn touch_module(address: usize) {
    const PAGE_BYTES: usize = 4096;
    let Some(module) = loaded_modules().into_iter().find(|module| module.span.contains(&address)) else {
        return;
    };
    for part in &module.fixed {
        // From the beginning of the first page: a segment may begin within it, and end early in its last one.
        for page in (part.start & !(PAGE_BYTES - 1)..part.end).step_by(PAGE_BYTES) {
            // SAFETY: the module is loaded as long as code at `address` runs, and its segments are mapped by whole
            // pages.
            std::hint::black_box(unsafe { (page as *const u8).read_volatile() });
        }
    }
}

/// Detects cheaply whether libraries were loaded or unloaded. Libraries that are loaded when the watch begins stay
/// loaded as long as the process: dlclose does not unload them.
#[derive(Debug)]
pub struct ModulesWatch {
    /// The last entry of the dynamic linker's list when the watch began, if it is sure to stay.
    last: Option<&'static LinkMap>,
    /// No entry followed `last` when the list was last read, or since the reading before.
    is_last: AtomicBool,
    /// How many libraries were ever loaded and unloaded, when the list was last read.
    came: AtomicU64,
    went: AtomicU64,
}

/// The beginning of the dynamic linker's description of a module (link.h). New ones are appended to the list.
#[repr(C)]
#[derive(Debug)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
    dynamic: *const c_void,
    next: AtomicPtr<LinkMap>,
}

// SAFETY: the pointers are not followed, and the constant fields do not change.
unsafe impl Sync for LinkMap {}

impl ModulesWatch {
    /// Begins a watch. The caller reads the list of modules afterwards, so that it misses none.
    #[must_use]
    pub fn begin() -> Self {
        let (before, _) = look_at_list(None);
        // A module without a path is the program, or the kernel's.
        let mut libraries = loaded_modules().into_iter().filter(|m| !m.is_program && m.path.contains('/'));
        let last = libraries.try_fold(None, |_, library| library.keep().map(Some)).flatten();
        let (counts, is_last) = look_at_list(last);
        let last = last.filter(|_| is_last && counts == before);
        let [came, went] = counts.map(AtomicU64::new);
        Self { last, is_last: AtomicBool::new(last.is_some()), came, went }
    }

    /// Whether a library was loaded or unloaded since the last call, or the beginning. One caller at a time. Costs
    /// three loads while only the libraries of the beginning are loaded; otherwise as much as a lock.
    #[inline]
    #[must_use]
    pub fn has_changed(&self) -> bool {
        // Relaxed: a thread that calls into a library has synchronised with the one that loaded it.
        let is_quiet = self.is_last.load(Ordering::Relaxed)
            && self.last.is_some_and(|last| last.next.load(Ordering::Relaxed).is_null());
        !is_quiet && self.look()
    }

    #[cold]
    fn look(&self) -> bool {
        let (counts, is_last) = look_at_list(self.last);
        let known = [&self.came, &self.went];
        let before = [0, 1].map(|which| known[which].swap(counts[which], Ordering::Relaxed));
        let has_changed = before != counts;
        // Only if the counts of the last reading are those of this one.
        self.is_last.store(is_last && !has_changed, Ordering::Relaxed);
        has_changed
    }

    /// How many libraries had been unloaded, in all the process's life, when this watch last read the list.
    #[inline]
    #[must_use]
    pub fn unloaded(&self) -> u64 {
        self.went.load(Ordering::Relaxed)
    }
}

/// # Safety
/// `handle` is one of dlopen that is never closed.
#[cfg(target_env = "gnu")]
unsafe fn link_map(handle: *mut c_void) -> Option<&'static LinkMap> {
    let mut map = std::ptr::null::<LinkMap>();
    // SAFETY: a valid handle, which is asked for a pointer; the description stays as long as the library.
    unsafe {
        let answer = libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast());
        if answer == 0 { map.as_ref() } else { None }
    }
}

/// # Safety
/// None.
#[cfg(not(target_env = "gnu"))]
unsafe fn link_map(_: *mut c_void) -> Option<&'static LinkMap> {
    None
}

/// How many libraries were ever loaded and unloaded, and whether `last` is the last of the list then.
fn look_at_list(last: Option<&'static LinkMap>) -> ([u64; 2], bool) {
    struct Look(Option<&'static LinkMap>, [u64; 2], bool);
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, to: *mut c_void) -> c_int {
        // SAFETY: as in `loaded_modules`. The linker locks its list meanwhile.
        unsafe {
            let look = &mut *to.cast::<Look>();
            look.1 = [(*info).dlpi_adds, (*info).dlpi_subs];
            look.2 = look.0.is_some_and(|last| last.next.load(Ordering::Relaxed).is_null());
        }
        1
    }
    let mut look = Look(last, [0; 2], false);
    // SAFETY: as in `loaded_modules`.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut look).cast()) };
    (look.1, look.2)
}

/// # Safety
/// `info` describes a module that stays loaded during the call.
unsafe fn read_module(info: &libc::dl_phdr_info, is_program: bool) -> Module {
    let bias = info.dlpi_addr as usize;
    // SAFETY: the linker's own table, `dlpi_phnum` entries long.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
    let range = |h: &libc::Elf64_Phdr| {
        let from = bias.wrapping_add(h.p_vaddr as usize);
        from..from.wrapping_add(h.p_memsz as usize)
    };
    let mut module = Module { bias, is_program, ..Module::default() };
    let loads = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    if let (Some(from), Some(to)) =
        (loads().map(|h| range(h).start).min(), loads().map(|h| range(h).end).max())
    {
        module.span = from..to;
    }
    module.code = loads().filter(|h| h.p_flags & libc::PF_X != 0).map(range).collect();
    let is_fixed = |h: &&libc::Elf64_Phdr| h.p_flags & (libc::PF_W | libc::PF_R) == libc::PF_R;
    module.fixed = loads().filter(is_fixed).map(range).collect();
    module.data = loads().filter(|h| h.p_flags & libc::PF_W != 0).map(range).collect();
    for relro in headers.iter().filter(|h| h.p_type == libc::PT_GNU_RELRO) {
        // The linker protects whole pages only.
        let part = range(relro);
        cut(&mut module.data, &(part.start..part.end & !4095));
    }
    if let Some(dynamic) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) {
        // SAFETY: the dynamic section of a loaded module is mapped and ends with a DT_NULL entry.
        let parts = unsafe { linkers_parts(bias, range(dynamic).start, &module.span) };
        cut(&mut module.data, &parts.jump_table);
        module.copies = parts.copies;
        cut(&mut module.data, &range(dynamic));
    }
    for note in headers.iter().filter(|h| h.p_type == libc::PT_NOTE) {
        let part = range(note);
        // SAFETY: a note segment is part of a loaded, readable segment.
        let bytes = unsafe { std::slice::from_raw_parts(part.start as *const u8, part.len()) };
        if let Some(id) = build_id(bytes) {
            module.build_id = id.to_vec();
        }
    }
    module.path = if is_program {
        std::fs::read_link("/proc/self/exe").map(|p| p.to_string_lossy().into_owned()).unwrap_or_default()
    } else if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: a NUL-terminated string of the linker's.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
    };
    module
}

/// The dynamic linker's parts of a module's variables.
#[derive(Default)]
struct LinkersParts {
    /// The table of lazily bound functions, written while the program runs.
    jump_table: Range<usize>,
    copies: Vec<CopiedVariable>,
}

/// # Safety
/// `dynamic` is the address of a loaded module's dynamic section.
unsafe fn linkers_parts(bias: usize, dynamic: usize, span: &Range<usize>) -> LinkersParts {
    const DT_PLTRELSZ: u64 = 2;
    const DT_PLTGOT: u64 = 3;
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const DT_RELA: u64 = 7;
    const DT_RELASZ: u64 = 8;
    const RELA_BYTES: usize = 24;
    // R_X86_64_COPY and R_AARCH64_COPY.
    const COPY: u32 = if cfg!(target_arch = "aarch64") { 1024 } else { 5 };

    let (mut jump_bytes, mut table, mut names, mut symbols, mut rela, mut rela_bytes) = (0, 0, 0, 0, 0, 0);
    let mut entry = dynamic as *const [u64; 2];
    loop {
        // SAFETY: the section ends with a zero tag.
        let [tag, value] = unsafe { entry.read_unaligned() };
        // glibc stores addresses here, other linkers leave the file's.
        let address = || {
            let value = value as usize;
            if span.contains(&value) { value } else { bias.wrapping_add(value) }
        };
        match tag {
            0 => break,
            DT_PLTRELSZ => jump_bytes = value as usize,
            DT_PLTGOT => table = address(),
            DT_STRTAB => names = address(),
            DT_SYMTAB => symbols = address(),
            DT_RELA => rela = address(),
            DT_RELASZ => rela_bytes = value as usize,
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
    let mut parts = LinkersParts::default();
    if span.contains(&table) {
        parts.jump_table = table..table + 8 * (3 + jump_bytes / RELA_BYTES);
    }
    if [rela, symbols, names].iter().all(|at| span.contains(at)) {
        for at in 0..rela_bytes / RELA_BYTES {
            // SAFETY: the relocation table of a loaded module is mapped, and so are the symbols it names and their
            // names.
            unsafe {
                let [offset, info, _] = (rela as *const [u64; 3]).add(at).read_unaligned();
                if info as u32 == COPY {
                    let symbol =
                        (symbols as *const libc::Elf64_Sym).add((info >> 32) as usize).read_unaligned();
                    let from = bias.wrapping_add(offset as usize);
                    parts.copies.push(CopiedVariable {
                        name: CStr::from_ptr((names as *const std::ffi::c_char).add(symbol.st_name as usize))
                            .into(),
                        range: from..from + symbol.st_size as usize,
                    });
                }
            }
        }
    }
    parts
}

/// Removes `part` from sorted ranges.
fn cut(ranges: &mut Vec<Range<usize>>, part: &Range<usize>) {
    if part.is_empty() {
        return;
    }
    *ranges = ranges
        .iter()
        .flat_map(|r| [r.start..r.end.min(part.start), r.start.max(part.end)..r.end])
        .filter(|r| !r.is_empty())
        .collect();
}

/// The GNU build id among ELF notes.
fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    while notes.len() >= 12 {
        let word = |at: usize| u32::from_le_bytes(notes[at..at + 4].try_into().expect("four bytes"));
        let (name_len, len, kind) = (word(0) as usize, word(4) as usize, word(8));
        let from = 12 + name_len.next_multiple_of(4);
        let end = from.checked_add(len)?;
        if end > notes.len() {
            return None;
        }
        if kind == NT_GNU_BUILD_ID && notes[12..].starts_with(b"GNU\0") {
            return Some(&notes[from..end]);
        }
        notes = notes.get(end.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    static VARIABLE: AtomicU64 = AtomicU64::new(1);
    static ZERO: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn this_program_is_found_with_its_variables_and_code() {
        let all = loaded_modules();
        let me = &all[0];
        assert!(me.is_program && me.path.starts_with('/'), "{me:?}");
        let holds = |ranges: &[Range<usize>], at: usize| ranges.iter().any(|r| r.contains(&at));
        assert!(holds(&me.data, std::ptr::from_ref(&VARIABLE) as usize));
        assert!(holds(&me.data, std::ptr::from_ref(&ZERO) as usize));
        assert!(holds(&me.code, loaded_modules as *const () as usize));
        assert!(me.span.contains(&(loaded_modules as *const () as usize)));
        let relro: &dyn std::any::Any = &VARIABLE;
        // A vtable is read-only after relocation.
        // SAFETY: a fat pointer is two words, the second its vtable.
        let vtable = unsafe { std::mem::transmute::<&dyn std::any::Any, [usize; 2]>(relro)[1] };
        assert!(me.span.contains(&vtable) && !holds(&me.data, vtable));
        let libc = all.iter().find(|m| m.path.contains("libc.so")).unwrap();
        assert!(!libc.build_id.is_empty() && !libc.data.is_empty());
        VARIABLE.fetch_add(ZERO.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    #[test]
    fn libraries_that_come_and_go_are_noticed_and_those_of_the_beginning_stay() {
        let load = |name: &CStr| {
            // SAFETY: libc's own libraries, whose initialisers do nothing.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
            assert!(!handle.is_null());
            handle
        };
        let is_there = |name: &str| loaded_modules().iter().any(|m| m.path.contains(name));
        let early = load(c"libnsl.so.1");
        let watch = ModulesWatch::begin();
        assert!(!watch.has_changed() && cfg!(target_env = "gnu") == watch.last.is_some());
        // SAFETY: handles of `load`, once each.
        let unload = |handle| unsafe { libc::dlclose(handle) };
        unload(early);
        assert!(is_there("libnsl") && !watch.has_changed());
        for _ in 0..3 {
            let late = load(c"libutil.so.1");
            assert!(watch.has_changed() && !watch.has_changed() && !watch.has_changed());
            let before = watch.unloaded();
            unload(late);
            assert!(!is_there("libutil") && watch.has_changed() && !watch.has_changed());
            assert!(watch.unloaded() > before);
            assert!(watch.is_last.load(Ordering::Relaxed), "back to a glance");
        }
        let [one, other] = [load(c"libutil.so.1"), load(c"libanl.so.1")];
        assert!(watch.has_changed() && !watch.has_changed());
        unload(one);
        assert!(watch.has_changed() && !watch.has_changed());
        // One library unloaded and another one loaded.
        let again = load(c"libutil.so.1");
        unload(other);
        assert!(watch.has_changed() && !watch.has_changed());
        unload(again);
        assert!(watch.has_changed());
    }

    #[test]
    fn parts_are_cut_out() {
        let mut ranges = vec![10..20, 30..40];
        cut(&mut ranges, &(0..5));
        cut(&mut ranges, &(15..15));
        assert_eq!(ranges, [10..20, 30..40]);
        cut(&mut ranges, &(12..14));
        cut(&mut ranges, &(18..35));
        assert_eq!(ranges, [10..12, 14..18, 35..40]);
        cut(&mut ranges, &(0..100));
        assert_eq!(ranges, []);
    }

    #[test]
    fn build_ids_are_found_among_notes_and_torn_notes_are_not_read() {
        let mut notes = vec![];
        for (kind, id) in [(1u32, &[9u8; 5][..]), (3, &[1, 2, 3, 4, 5][..])] {
            notes.extend(4u32.to_le_bytes());
            notes.extend((id.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            notes.extend(b"GNU\0");
            notes.extend(id);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(build_id(&notes), Some(&[1, 2, 3, 4, 5][..]));
        for len in 0..notes.len() - 3 {
            assert_eq!(build_id(&notes[..len]), None);
        }
    }
}
