//! A help for porting: reports where the durable state depends on what will not be there in the next run.
//!
//! On with MANGROVE_AUDIT in the environment. Every word that a batch wrote into the state, or into a variable that
//! belongs to it, is compared with what a pointer of this run only can point to: memory of the process's heap, its
//! stacks and anonymous mappings; mappings of files that are no modules; what libc keeps. At the first commit
//! variables that look like hash seeds are compared with what the module's file has. A finding is reported on
//! standard error, once for each address. It may be harmless: a pointer that the program does not follow after a
//! restart, or that `on_recover` sets anew.
//!
//! So that few numbers are taken for pointers, only pages count that are in memory (the trackers reserve 64 GiB, of
//! which little is), and of the committing thread's stack only what is in use.

use crate::alloc::stderr_line::StderrLine;
use crate::alloc::symbols::{OBJECT, SymbolFile, push_name};
use crate::image::modules::{Modules, is_libc};
use crate::image::variables::Globals;
use mangrove_sys::{Mapped, loaded_modules, mapped};
use std::collections::HashSet;
use std::ffi::CString;
use std::ops::Range;

/// The most findings that are reported.
const REPORT_COUNT_MAX: usize = 50;
const PAGE_BYTES: usize = 4096;
/// A hash seed has at most so many bytes: CPython's secret has 24, SipHash's key 16.
const SEED_BYTES_MAX: usize = 64;

const STREAM: &str =
    "is in a stream of libc (FILE), whose file is not open in the next run; open it in on_recover";
const LOCALE: &str =
    "is in a locale of libc (locale_t), which leads to memory of this run; make it in on_recover";
/// Where libc has the files of locales.
const LOCALE_FILES: &str = "/locale/";
/// No address.
const LOCALE_KEY: usize = 1;

/// What MANGROVE_AUDIT asks for: 2 is the write fence, 3 both, any other value the search for pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuditLevel {
    pub(crate) pointers: bool,
    pub(crate) writers: bool,
}

impl AuditLevel {
    pub(crate) fn of_environment() -> Self {
        let value = std::env::var_os("MANGROVE_AUDIT");
        let is = |text: &str| value.as_ref().is_some_and(|value| value == text);
        Self { pointers: value.is_some() && !is("2"), writers: is("2") || is("3") }
    }
}

pub(crate) struct Audit {
    is_on: bool,
    has_sought_seeds: bool,
    reported: HashSet<usize>,
}

/// Memory that the state should not point to.
struct Suspect {
    span: Range<usize>,
    what: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Heap, stack, anonymous mapping.
    Own,
    File(String),
    /// Variables of libc.
    Libc,
}

impl Suspect {
    /// What is reported once: a pointer; of a mapping of a file, and of locales, one of all.
    fn key(&self, word: usize) -> usize {
        match &self.what {
            Kind::File(path) if path.contains(LOCALE_FILES) => LOCALE_KEY,
            Kind::File(_) => self.span.start,
            Kind::Own | Kind::Libc => word,
        }
    }
}

impl Audit {
    pub(crate) fn new() -> Self {
        let is_on = AuditLevel::of_environment().pointers;
        Self { is_on, has_sought_seeds: false, reported: HashSet::new() }
    }

    /// Looks at what a batch wrote: variables, and memory of the state, which lies at `region`.
    #[inline]
    pub(crate) fn look(
        &mut self,
        modules: &Modules,
        globals: &Globals,
        variables: &[(usize, usize)],
        written: &[(usize, usize)],
        region: &Range<usize>,
    ) {
        if self.is_on {
            if !std::mem::replace(&mut self.has_sought_seeds, true) {
                self.seek_seeds(modules, globals);
            }
            self.look_closely(variables, written, region);
        }
    }

    #[cold]
    fn look_closely(
        &mut self,
        variables: &[(usize, usize)],
        written: &[(usize, usize)],
        region: &Range<usize>,
    ) {
        let here = 0u8;
        let suspects = suspects(region, (&raw const here) as usize);
        let objects = libc_objects();
        for (what, ranges) in [("variable", variables), ("memory", written)] {
            for &(from, len) in ranges {
                let words = from.next_multiple_of(8)..from + len;
                for at in words.step_by(8).filter(|at| at + 8 <= from + len) {
                    // SAFETY: a commit takes these bytes now; they are mapped, and no thread writes them.
                    let word = unsafe { (at as *const usize).read() };
                    if let Some((_, why)) = objects.iter().find(|object| object.0 == word) {
                        // One line for all locales.
                        let key = if *why == LOCALE { LOCALE_KEY } else { at };
                        self.report(key, at, what, |line| line.push(why));
                    } else if let Some(suspect) = suspects.iter().find(|s| s.span.contains(&word))
                        && !region.contains(&word)
                        && is_in_memory(word)
                    {
                        self.report(suspect.key(word), at, what, |line| suspect.what.tell(line, word));
                    }
                }
            }
        }
    }

    /// Reports variables that look like hash seeds of this run: by name, and since they are not as in the file and no
    /// command wrote them.
    #[cold]
    fn seek_seeds(&mut self, modules: &Modules, globals: &Globals) {
        let names = ["seed", "salt", "hash_secret", "hashsecret", "hash_key", "hashkey"];
        for module in loaded_modules() {
            let path = if module.is_program { "/proc/self/exe" } else { module.path.as_str() };
            let Some(file) = CString::new(path).ok().and_then(|path| SymbolFile::open(&path)) else {
                continue;
            };
            let mut found = Vec::new();
            file.each(OBJECT, |symbol| {
                let name = symbol.name.to_ascii_lowercase();
                if (4..=SEED_BYTES_MAX).contains(&symbol.bytes)
                    && names.iter().any(|part| name.contains(part))
                {
                    found.push((symbol.address, symbol.bytes));
                }
                true
            });
            for (offset, bytes) in found {
                let at = module.bias.wrapping_add(offset);
                let is_kept = |at: usize| modules.is_variable(at) && !globals.has(at);
                if !(at..at + bytes).all(is_kept) {
                    continue;
                }
                // SAFETY: variables of a loaded module.
                let now = unsafe { std::slice::from_raw_parts(at as *const u8, bytes) };
                let as_linked = match file.initial(offset, bytes) {
                    Some(initial) => now == initial,
                    None => now.iter().all(|&byte| byte == 0),
                };
                if !as_linked {
                    self.report(at, at, "state may depend on a hash seed: variable", |line| {
                        push_name(line, at, OBJECT);
                        line.push(
                            " was set in this run and is not in the state; draw it in init_state, or fix it",
                        );
                    });
                }
            }
        }
    }

    /// Once for each `key`.
    fn report(&mut self, key: usize, at: usize, what: &str, tell: impl FnOnce(&mut StderrLine)) {
        if self.reported.len() >= REPORT_COUNT_MAX || !self.reported.insert(key) {
            return;
        }
        let mut line = StderrLine::new();
        line.push("the durable ");
        line.push(what);
        line.push(" ");
        if what == "variable" || what == "memory" {
            line.push("at ");
            if what == "variable" {
                push_name(&mut line, at, OBJECT)
            } else {
                line.push_hex(at)
            }
            line.push(" ");
        }
        tell(&mut line);
        line.print();
    }
}

impl Kind {
    fn tell(&self, line: &mut StderrLine, word: usize) {
        line.push("points to ");
        match self {
            Self::Own => {
                line.push_hex(word);
                line.push(", memory of this run only; make what it points to in init_state or in a command");
            }
            Self::File(path) if path.contains(LOCALE_FILES) => {
                line.push_hex(word);
                line.push(", and ");
                line.push(LOCALE);
            }
            Self::File(path) => {
                line.push_hex(word);
                line.push(", a mapping of ");
                line.push(path);
                line.push(
                    " in this run only; copy the bytes, or map the file in a command or again in on_recover",
                );
            }
            Self::Libc => {
                push_name(line, word, OBJECT);
                line.push(", an object of libc that the next run makes anew; set the pointer in on_recover");
            }
        }
    }
}

/// What the state should not point to, in order of trust.
fn suspects(region: &Range<usize>, stack: usize) -> Vec<Suspect> {
    let modules = loaded_modules();
    let mut own = Vec::new();
    mangrove_tracker::own_memory_spans(|span| own.push(span));
    let is_ours = |span: &Range<usize>| {
        own.iter().chain([region]).any(|ours| ours.start < span.end && span.start < ours.end)
    };
    let mut all = Vec::new();
    for Mapped { span, name, is_writable, is_shared } in mapped().unwrap_or_default() {
        let in_module = modules.iter().any(|m| m.span.start < span.end && span.start < m.span.end);
        let is_anonymous = name.is_empty()
            || name == "[heap]"
            || name.starts_with("[stack")
            || name.starts_with("[anon")
            || name.starts_with("/dev/zero");
        if in_module || name.starts_with("/memfd:mangrove") {
            continue;
        }
        if is_anonymous && is_writable {
            // What the trackers reserve may lie in one mapping with memory of the program.
            for span in without(span, &own, region) {
                let used = if span.contains(&stack) { stack..span.end } else { span };
                all.push(Suspect { span: used, what: Kind::Own });
            }
        } else if name.starts_with('/') && !is_ours(&span) && !(is_shared && name.starts_with("/memfd:")) {
            all.push(Suspect { span, what: Kind::File(name) });
        }
    }
    for module in modules.iter().filter(|module| is_libc(&module.path)) {
        all.extend(module.data.iter().map(|span| Suspect { span: span.clone(), what: Kind::Libc }));
    }
    all
}

/// `span` without what is ours.
fn without(span: Range<usize>, own: &[Range<usize>], region: &Range<usize>) -> Vec<Range<usize>> {
    let mut parts = vec![span];
    for ours in own.iter().chain([region]) {
        let cut = |part: Range<usize>| {
            let before = part.start..part.end.min(ours.start);
            let after = part.start.max(ours.end)..part.end;
            if ours.start >= part.end || ours.end <= part.start {
                return vec![part];
            }
            [before, after].into_iter().filter(|part| part.start < part.end).collect()
        };
        parts = parts.into_iter().flat_map(cut).collect();
    }
    parts
}

/// Words by which objects of libc are known, with what to do.
fn libc_objects() -> Vec<(usize, &'static str)> {
    let mut all = Vec::new();
    for name in [c"_IO_file_jumps", c"_IO_wfile_jumps"] {
        // SAFETY: asks the dynamic linker for a name.
        let table = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if !table.is_null() {
            all.push((table.expose_provenance(), STREAM));
        }
    }
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            fn __ctype_tolower_loc() -> *const usize;
            fn __ctype_toupper_loc() -> *const usize;
        }
        // SAFETY: the calling thread's tables of the present locale.
        all.extend(unsafe { [(*__ctype_tolower_loc(), LOCALE), (*__ctype_toupper_loc(), LOCALE)] });
    }
    all
}

/// Whether the page of `address` is in memory: reserved pages are not.
fn is_in_memory(address: usize) -> bool {
    let mut present = 0u8;
    let page = std::ptr::with_exposed_provenance_mut(address & !(PAGE_BYTES - 1));
    // SAFETY: asks about one page, whose answer is one byte.
    unsafe { libc::mincore(page, PAGE_BYTES, &raw mut present) == 0 && present & 1 != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_without_ours() {
        let cut = |span, own: &[[usize; 2]]| {
            let own: Vec<_> = own.iter().map(|&[from, to]| from..to).collect();
            let parts = without(span, &own, &(1000..1100));
            parts.into_iter().map(|part| [part.start, part.end]).collect::<Vec<_>>()
        };
        assert_eq!(cut(0..10, &[]), [[0, 10]]);
        assert_eq!(cut(0..10, &[[3, 5]]), [[0, 3], [5, 10]]);
        assert_eq!(cut(0..10, &[[0, 4], [8, 20]]), [[4, 8]]);
        assert!(cut(0..10, &[[0, 10]]).is_empty());
        assert_eq!(cut(990..1200, &[]), [[990, 1000], [1100, 1200]]);
    }
}
