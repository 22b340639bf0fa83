//! The modules that the state's addresses belong to, and whether each is still where it was.
//!
//! The state holds addresses of functions, vtables, constants and variables. So it records every module with its
//! build id and place, and opening compares them with the process. There are two kinds:
//!
//! - *program modules*: the executable and its own libraries. Their variables are part of the state, so they must
//!   be the same builds.
//! - *system modules*: the C and C++ runtimes, the dynamic linker, this library. Their variables are not part of the
//!   state, and another build of them is accepted as long as the state does not hold their addresses.
//!
//! A module that moved is accepted under the same condition, which opening checks word by word.
//!
//! A library that is not loaded at opening is *awaited* if the state has variables of it: they stay in their
//! mirrors until the library is loaded. A library that the state only points to is not awaited, since it may be
//! loaded at another address: a commit refuses pointers into a library that was loaded after opening, and opening
//! refuses pointers into a library that is missing.

use crate::{Error, Result};
use mangrove_sys::{Module, loaded_modules};
use std::collections::BTreeSet;
use std::ops::Range;

/// Libraries whose variables are not part of the state, by the names that programs are linked to. A longer version
/// may follow the name. A program's own `libutil.so` is not one of them.
const SYSTEM_LIBRARIES: [&str; 18] = [
    "libc.so.6",
    "libm.so.6",
    "libmvec.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
    "libresolv.so.2",
    "libanl.so.1",
    "libnsl.so.1",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libc++.so.1",
    "libc++abi.so.1",
    "libunwind.so.1",
    "libunwind.so.8",
    "ld.so.1",
    "linux-vdso.so.1",
];

/// The same by how their names begin.
const SYSTEM_BEGINNINGS: [&str; 8] = [
    "ld-linux",
    "ld-musl-",
    "libc.musl-",
    "libmangrove_",
    "libjemalloc.so",
    "libtcmalloc",
    "libmimalloc",
    "libnss_",
];

/// Parts of glibc before 2.34 by the names of their files: `libc-2.31.so`.
const GLIBC_PARTS: [&str; 10] =
    ["ld", "libc", "libm", "libmvec", "libpthread", "libdl", "librt", "libutil", "libresolv", "libanl"];

/// A module as the state's table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) path: String,
    pub(crate) id: Vec<u8>,
    pub(crate) bias: usize,
    pub(crate) span: Range<usize>,
    pub(crate) is_executable: bool,
    pub(crate) is_system: bool,
}

/// The modules of this process, in the order of the state's table.
#[derive(Debug)]
pub(crate) struct Modules {
    recorded: Vec<Recorded>,
    /// Where the module of each entry is now, if it is loaded.
    now: Vec<Option<Module>>,
    /// Places of entries that were not loaded at opening, or came back elsewhere: no commit may point there.
    late: BTreeSet<usize>,
    /// Places of entries whose variables the state has, and which were never loaded since opening.
    awaited: BTreeSet<usize>,
    /// Why no command and no read may run: in place of an awaited library another build of it was loaded.
    usurper: Option<String>,
    /// Whether the variables of program modules are part of the state.
    keeps_variables: bool,
    /// Whether the state may have addresses of modules at all.
    matter: bool,
}

/// What [`Modules::refresh`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refreshed {
    /// Modules were loaded that were not there before: the table has changed.
    pub(crate) came: bool,
    /// Modules are no longer where they were.
    pub(crate) went: bool,
}

/// A part of the address space that the state must not point into, since what lay there does not lie there now.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    pub(crate) span: Range<usize>,
    pub(crate) why: String,
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether libc loads this module for itself, when a command converts text or looks up a name. Of it the state holds
/// only what libc and the dynamic linker keep, and no later run reads that.
pub(crate) fn is_libcs_own(path: &str) -> bool {
    path.contains("/gconv/") || file_name(path).starts_with("libnss_")
}

/// libc itself.
pub(crate) fn is_libc(path: &str) -> bool {
    let name = file_name(path);
    name.starts_with("libc.so") || name.starts_with("libc-2.") || name.starts_with("ld-musl-")
}

/// The modules of this process. A variable of a library that lies in the program, because the program names it,
/// counts as that library's: those of system modules (`stdout`, `std::cout`) are left out.
fn modules_of_this_process() -> Vec<Module> {
    let mut all = loaded_modules();
    for at in 0..all.len() {
        for copy in std::mem::take(&mut all[at].copies) {
            // The dynamic linker took the first in this order too.
            let owner =
                all.iter().enumerate().find(|(other, module)| *other != at && module.defines(&copy.name));
            if owner.is_none_or(|(_, module)| is_system(module)) {
                all[at].leave_out(&copy.range);
            }
        }
    }
    all
}

/// The system library whose variables point into `span`, if one does.
pub(crate) fn system_library_that_points_into(span: &Range<usize>) -> Option<String> {
    let points = |module: &Module| {
        module.data.iter().any(|range| {
            let (from, to) = (range.start.next_multiple_of(8), range.end & !7);
            // SAFETY: aligned words of variables, which are mapped; what another thread stores meanwhile is old or new.
            (from..to).step_by(8).any(|at| span.contains(&unsafe { (at as *const usize).read_volatile() }))
        })
    };
    let modules = loaded_modules().into_iter();
    let mut others = modules.filter(|module| {
        // This library's own variables point to states anyway.
        is_system(module) && !file_name(&module.path).starts_with("libmangrove")
    });
    others.find(points).map(|module| module.path)
}

fn is_system(module: &Module) -> bool {
    let name = file_name(&module.path);
    let is_library =
        |known: &&str| name.strip_prefix(*known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let is_part = |part: &&str| {
        let version = name.strip_prefix(*part).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".so"));
        version.is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()))
    };
    !module.is_program
        && (name.is_empty()
            || is_libcs_own(&module.path)
            || SYSTEM_LIBRARIES.iter().any(is_library)
            || SYSTEM_BEGINNINGS.iter().any(|known| name.starts_with(known))
            || GLIBC_PARTS.iter().any(is_part))
}

impl Recorded {
    fn of(module: &Module) -> Self {
        Self {
            path: module.path.clone(),
            id: identity(module),
            bias: module.bias,
            span: module.span.clone(),
            is_executable: module.is_program,
            is_system: is_system(module),
        }
    }

    /// How well this entry names `module`; 0 if it cannot be it. The executable matches the executable. A library
    /// matches by its path, or by its name in another directory, as the same build or another.
    fn fits(&self, module: &Self) -> u32 {
        if self.is_executable || module.is_executable {
            return u32::from(self.is_executable && module.is_executable);
        }
        match file_name(&self.path) == file_name(&module.path) {
            true if self.path == module.path => 3 + u32::from(self.id == module.id),
            true if self.id == module.id => 2,
            same_name => same_name.into(),
        }
    }
}

/// For each of `recorded` its place among `present`, if it is there: several libraries may have one name.
fn pair(recorded: &[Recorded], present: &[Recorded]) -> Vec<Option<usize>> {
    let mut pairs = vec![None; recorded.len()];
    let mut is_taken = vec![false; present.len()];
    for fit in (1..=4).rev() {
        for (was, pair) in recorded.iter().zip(&mut pairs).filter(|(_, pair)| pair.is_none()) {
            *pair = (0..present.len()).find(|&at| !is_taken[at] && was.fits(&present[at]) == fit);
            pair.iter().for_each(|&at| is_taken[at] = true);
        }
    }
    pairs
}

/// The build id; of a module without one a checksum of its code and constants.
fn identity(module: &Module) -> Vec<u8> {
    if !module.build_id.is_empty() {
        return module.build_id.clone();
    }
    let mut sum = 0u32;
    let mut bytes = 0;
    for range in &module.fixed {
        // SAFETY: a segment of a loaded module that is readable and does not change.
        let code = unsafe { std::slice::from_raw_parts(range.start as *const u8, range.len()) };
        sum = crc32c::crc32c_append(sum, code);
        bytes += range.len();
    }
    let mut id = b"code".to_vec();
    id.extend(sum.to_le_bytes());
    id.extend((bytes as u64).to_le_bytes());
    id
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl Modules {
    /// The modules of this process, for a new state.
    pub(crate) fn present(keeps_variables: bool) -> Self {
        let now = modules_of_this_process();
        let recorded = now.iter().map(Recorded::of).collect();
        Self::new(recorded, now.into_iter().map(Some).collect(), keeps_variables)
    }

    fn new(recorded: Vec<Recorded>, now: Vec<Option<Module>>, keeps_variables: bool) -> Self {
        let late = (0..now.len()).filter(|&at| now[at].is_none()).collect();
        Self { recorded, now, late, keeps_variables, matter: true, ..Self::none() }
    }

    /// No modules, now and later: for a state that points only into itself.
    pub(crate) fn none() -> Self {
        Self {
            recorded: Vec::new(),
            now: Vec::new(),
            late: BTreeSet::new(),
            awaited: BTreeSet::new(),
            usurper: None,
            keeps_variables: false,
            matter: false,
        }
    }

    /// Records what was loaded and unloaded since. No module leaves the table.
    pub(crate) fn refresh(&mut self) -> Refreshed {
        if !self.matter {
            return Refreshed::default();
        }
        // Copies of variables exist in the executable alone, which is recorded already. To look for their owners
        // takes the dynamic linker's lock, and the thread that holds it may be waiting for this commit.
        let (mut is, mut now): (Vec<_>, Vec<_>) =
            loaded_modules().into_iter().map(|module| (Recorded::of(&module), Some(module))).unzip();
        let mut refreshed = Refreshed::default();
        self.usurper = None;
        for (at, pair) in pair(&self.recorded, &is).into_iter().enumerate() {
            // Another build of the same name is another library, but not of one that is awaited.
            let found = pair.filter(|&found| self.recorded[at].id == is[found].id);
            if let Some(other) = pair.filter(|_| found.is_none() && self.awaited.contains(&at)) {
                self.usurper = Some(another_build(&self.recorded[at], &is[other]));
            }
            let stays = found.is_some_and(|found| self.recorded[at].span == is[found].span);
            refreshed.went |= self.now[at].is_some() && !stays;
            let Some(found) = found else {
                self.now[at] = None;
                continue;
            };
            let module = now[found].take();
            if self.now[at].is_none() || !stays {
                if self.recorded[at].span != is[found].span {
                    self.late.insert(at);
                }
                self.recorded[at] = is[found].clone();
                self.now[at] = module;
                refreshed.came = true;
            }
        }
        for (is, module) in is.drain(..).zip(now).filter(|(_, module)| module.is_some()) {
            self.late.insert(self.recorded.len());
            self.recorded.push(is);
            self.now.push(module);
            refreshed.came = true;
        }
        refreshed
    }

    /// Whether the state has variables of libraries that were not loaded since opening.
    pub(crate) fn awaits_any(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// The places of awaited libraries that have come; they are awaited no longer.
    ///
    /// # Errors
    /// `Foreign`: another build has come instead.
    pub(crate) fn arrived(&mut self) -> Result<BTreeSet<usize>> {
        self.is_usurped()?;
        let arrived: BTreeSet<_> =
            self.awaited.iter().copied().filter(|&at| self.now[at].is_some()).collect();
        self.awaited.retain(|at| !arrived.contains(at));
        Ok(arrived)
    }

    /// # Errors
    /// `Foreign`: another build has come in place of an awaited library.
    pub(crate) fn is_usurped(&self) -> Result<()> {
        self.usurper.as_ref().map_or(Ok(()), |what| Err(Error::Foreign { what: what.clone() }))
    }

    /// Where libraries are that came after opening: the state must not point there.
    pub(crate) fn late(&self) -> impl Iterator<Item = Gone> {
        let loaded = self.late.iter().filter(|&&at| self.now[at].is_some()).map(|&at| &self.recorded[at]);
        loaded.filter(|entry| !is_libcs_own(&entry.path)).map(|entry| Gone {
            span: entry.span.clone(),
            why: format!(
                "{} was loaded after the state was opened, so the next start would not find it there; load it \
                 before opening",
                entry.path
            ),
        })
    }

    /// Compares a state's table with this process. Returns the modules in the table's order, followed by the other
    /// modules of this process, and the ranges that the state must not point into.
    ///
    /// # Errors
    /// A program module is another build; the state has no modules, so no program like this one made it.
    pub(crate) fn compare(recorded: Vec<Recorded>, keeps_variables: bool) -> Result<(Self, Vec<Gone>)> {
        if recorded.is_empty() {
            // Nothing else would tell it from this program's: its roots would be taken for pointers of this one.
            let what = "this state points only into itself, as a LevelDB database does, and is not this program's; \
                        open it by what made it, or with Options::self_contained";
            return Err(Error::Foreign { what: what.into() });
        }
        let mut present = modules_of_this_process();
        let mut is: Vec<_> = present.iter().map(Recorded::of).collect();
        let pairs = pair(&recorded, &is);
        let mut gone = Vec::new();
        // Libraries lie one after another: another size of one moves the others.
        let mut both = recorded.iter().zip(&pairs).filter_map(|(was, at)| Some((was, &is[(*at)?])));
        let changed = both.find(|(was, is)| is.id != was.id).map(|(was, _)| was.path.clone());
        let (mut table, mut now) = (Vec::new(), Vec::new());
        let mut present: Vec<_> = is.drain(..).zip(present.drain(..)).map(Some).collect();
        for (was, pair) in recorded.into_iter().zip(pairs) {
            let libcs_own = is_libcs_own(&was.path);
            let Some((is, module)) = pair.and_then(|at| present[at].take()) else {
                if !libcs_own && !was.span.is_empty() {
                    gone.push(Gone {
                        span: was.span.clone(),
                        why: format!("{} is not loaded now; load it before opening", was.path),
                    });
                }
                table.push(was);
                now.push(None);
                continue;
            };
            if libcs_own {
                // Nothing that a later run reads points there.
            } else if is.id != was.id {
                if !was.is_system {
                    return Err(Error::Foreign { what: another_build(&was, &is) });
                }
                gone.push(Gone {
                    span: was.span.clone(),
                    why: format!("{} is another build now; install the one of before", was.path),
                });
            } else if is.span != was.span {
                let because = changed.as_ref().map_or(String::new(), |path| {
                    format!(" since {path} is another build and takes other room")
                });
                gone.push(Gone {
                    span: was.span.clone(),
                    why: format!(
                        "{} was at {:#x} and is at {:#x} now{because}; start the program with the same libraries, environment and limits, without address randomisation",
                        was.path, was.span.start, is.span.start
                    ),
                });
            }
            table.push(is);
            now.push(Some(module));
        }
        for (is, module) in present.into_iter().flatten() {
            table.push(is);
            now.push(Some(module));
        }
        Ok((Self::new(table, now, keeps_variables), gone))
    }

    /// Forgets where the modules that are not loaded were, once the state is known not to point there: what lies there
    /// now may be another module, which the state may point to.
    pub(crate) fn forget_places_of_missing(&mut self) {
        for (entry, _) in self.recorded.iter_mut().zip(&self.now).filter(|(_, now)| now.is_none()) {
            entry.span.end = entry.span.start;
        }
    }

    /// A module of the program's own that a start may put elsewhere: it is linked to lie anywhere.
    pub(crate) fn movable_program(&self) -> Option<&str> {
        let movable = self.movable().find(|(entry, _)| !entry.is_system);
        movable.map(|(entry, _)| entry.path.as_str())
    }

    /// All modules that a start may put elsewhere, and where they are now.
    pub(crate) fn movable(&self) -> impl Iterator<Item = (&Recorded, Range<usize>)> {
        let loaded =
            self.recorded.iter().zip(&self.now).filter(|(entry, now)| now.is_some() && entry.bias != 0);
        loaded.map(|(entry, _)| (entry, entry.span.clone()))
    }

    /// The table as it lies in the state.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = (self.recorded.len() as u32).to_le_bytes().to_vec();
        for entry in &self.recorded {
            for bytes in [entry.path.as_bytes(), &entry.id] {
                out.extend((bytes.len() as u32).to_le_bytes());
                out.extend(bytes);
            }
            for number in [entry.bias, entry.span.start, entry.span.end] {
                out.extend((number as u64).to_le_bytes());
            }
            out.push(u8::from(entry.is_executable) | u8::from(entry.is_system) << 1);
        }
        out
    }

    /// Reads what [`Modules::encode`] wrote; `None` if it is not that.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Recorded>> {
        let mut rest = bytes;
        let mut take = |len: usize| {
            let (head, tail) = rest.split_at_checked(len)?;
            rest = tail;
            Some(head)
        };
        let count = u32::from_le_bytes(take(4)?.try_into().ok()?);
        let mut all = Vec::new();
        for _ in 0..count {
            let mut text = || {
                let len = u32::from_le_bytes(take(4)?.try_into().ok()?);
                Some(take(len as usize)?.to_vec())
            };
            let path = String::from_utf8(text()?).ok()?;
            let id = text()?;
            let mut number = || Some(u64::from_le_bytes(take(8)?.try_into().ok()?) as usize);
            let (bias, start, end) = (number()?, number()?, number()?);
            let flags = take(1)?[0];
            all.push(Recorded {
                path,
                id,
                bias,
                span: start..end,
                is_executable: flags & 1 != 0,
                is_system: flags & 2 != 0,
            });
        }
        rest.is_empty().then_some(all)
    }

    /// Variables that belong to the state if a command writes them, as (address, bytes).
    pub(crate) fn variables(&self) -> Vec<(usize, usize)> {
        self.kept().flat_map(|(_, m)| m.data.iter().map(|r| (r.start, r.len()))).collect()
    }

    fn kept(&self) -> impl Iterator<Item = (usize, &Module)> {
        let keeps = self.keeps_variables;
        self.recorded.iter().zip(&self.now).enumerate().filter_map(move |(at, (entry, now))| {
            (keeps && !entry.is_system).then_some(()).and(now.as_ref()).map(|m| (at, m))
        })
    }

    /// The module with variables in the page at `page`: its place in the table, and its bias.
    pub(crate) fn variable_owner(&self, page: usize) -> Option<(usize, usize)> {
        self.kept()
            .find(|(_, m)| m.data.iter().any(|r| r.start < page + 4096 && page < r.end))
            .map(|(at, m)| (at, m.bias))
    }

    /// Whether this byte is a variable of a program module.
    pub(crate) fn is_variable(&self, address: usize) -> bool {
        self.kept().any(|(_, m)| m.data.iter().any(|r| r.contains(&address)))
    }

    /// Where the page of variables at `offset` of a module is now; `None` while the module is not loaded.
    ///
    /// # Errors
    /// `Invalid` where variables are not kept; `Damaged` if there can be no such page.
    pub(crate) fn variable_page(&self, module: usize, offset: usize) -> Result<Option<usize>> {
        let damaged = |what: String| Error::Damaged { what };
        let entry = self
            .recorded
            .get(module)
            .ok_or_else(|| damaged(format!("variables of module {module} of {}", self.recorded.len())))?;
        if !self.keeps_variables {
            return Err(Error::Invalid {
                what: "the state has variables of the program, but was opened without; open it as it was written"
                    .into(),
            });
        }
        let Some(now) = self.now[module].as_ref() else { return Ok(None) };
        let page = now.bias.wrapping_add(offset);
        if page % 4096 != 0 || !now.data.iter().any(|r| r.start < page + 4096 && page < r.end) {
            return Err(damaged(format!(
                "the state has variables at {page:#x}, where {} has none",
                entry.path
            )));
        }
        Ok(Some(page))
    }

    /// The state has variables of a module that is not loaded.
    pub(crate) fn await_module(&mut self, module: usize) {
        self.awaited.insert(module);
    }
}

fn another_build(was: &Recorded, is: &Recorded) -> String {
    format!(
        "this state was written by build {} of {}, and {} is build {}: its addresses of functions and constants \
         mean nothing here; start the build that wrote it, or have that build write the data out and read it in \
         with this one",
        hex(&was.id),
        was.path,
        is.path,
        hex(&is.id)
    )
}

/// The first word of `memory` that points into one of `gone`, with its place among them.
pub(crate) fn find_pointer(memory: &[usize], gone: &[Gone]) -> Option<(usize, usize)> {
    let low = gone.iter().map(|g| g.span.start).min()?;
    let reach = gone.iter().map(|g| g.span.end).max()? - low;
    memory.iter().enumerate().find_map(|(at, &word)| {
        if word.wrapping_sub(low) >= reach {
            return None;
        }
        gone.iter().position(|g| g.span.contains(&word)).map(|which| (at, which))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_comes_back_and_torn_ones_do_not() {
        let here = Modules::present(true);
        let bytes = here.encode();
        assert_eq!(Modules::decode(&bytes).unwrap(), here.recorded);
        for len in 0..bytes.len() {
            assert_eq!(Modules::decode(&bytes[..len]), None);
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(Modules::decode(&longer), None);
    }

    #[test]
    fn the_program_is_a_program_module_and_libc_is_not() {
        let here = Modules::present(true);
        assert!(here.recorded[0].is_executable && !here.recorded[0].is_system);
        let libc = here.recorded.iter().find(|r| r.path.contains("libc.so")).unwrap();
        assert!(libc.is_system && !libc.is_executable);
        static VARIABLE: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(3);
        assert!(here.is_variable(VARIABLE.as_ptr() as usize));
        assert!(!Modules::present(false).is_variable(VARIABLE.as_ptr() as usize));
        assert!(!here.is_variable(Modules::present as *const () as usize));
    }

    #[test]
    fn the_same_process_has_nothing_gone() {
        let here = Modules::present(true);
        let (again, gone) = Modules::compare(here.recorded.clone(), true).unwrap();
        assert!(gone.is_empty(), "{gone:?}");
        assert_eq!(again.encode(), here.encode());
    }

    #[test]
    fn another_program_is_refused_another_libc_and_moved_modules_are_looked_into() {
        let here = Modules::present(true).recorded;
        let mut other = here.clone();
        other[0].id[0] ^= 1;
        let error = Modules::compare(other, true).unwrap_err().to_string();
        assert!(error.contains("start the build that wrote it"), "{error}");

        let libc = here.iter().position(|r| r.path.contains("libc.so")).unwrap();
        for (at, change) in [(libc, true), (libc, false), (0, false)] {
            let mut other = here.clone();
            if change {
                other[at].id[0] ^= 1;
            } else {
                other[at].span = other[at].span.start - 4096..other[at].span.end - 4096;
            }
            let (_, gone) = Modules::compare(other.clone(), true).unwrap();
            assert_eq!(gone.len(), 1);
            assert_eq!(gone[0].span, other[at].span);
        }

        let mut other = here.clone();
        other[libc].id[0] ^= 1;
        other[0].span = 4096..8192;
        let (_, gone) = Modules::compare(other, true).unwrap();
        let because = format!("since {} is another build", here[libc].path);
        assert!(gone.iter().any(|gone| gone.why.contains(&because)), "{gone:?}");

        let mut more = here.clone();
        more.push(Recorded {
            path: "/lib/plugin.so".into(),
            is_executable: false,
            span: 4096..8192,
            ..here[0].clone()
        });
        for path in ["/usr/lib/x86_64-linux-gnu/gconv/ISO8859-15.so", "/lib/libnss_dns.so.2"] {
            let mut libcs = more.clone();
            libcs[here.len()].path = path.into();
            let (_, gone) = Modules::compare(libcs, true).unwrap();
            assert!(gone.is_empty(), "{gone:?}");
        }
        let (modules, gone) = Modules::compare(more, true).unwrap();
        assert!(gone[0].why.contains("load it before opening"));
        assert_eq!(modules.variable_page(here.len(), 0).unwrap(), None);
    }

    #[test]
    fn a_module_that_went_has_no_variables_and_another_build_in_its_place_is_another() {
        let mut here = Modules::present(true);
        assert_eq!(here.refresh(), Refreshed::default());
        let count = here.recorded.len();
        let mut plugin = here.now[0].clone().unwrap();
        (plugin.is_program, plugin.path, plugin.bias) = (false, "/lib/plugin.so".into(), 4096);
        plugin.data = std::iter::once(4096..8192).collect();
        here.recorded.push(Recorded::of(&plugin));
        here.now.push(Some(plugin));
        assert!(here.is_variable(5000) && here.variable_page(count, 0).is_ok());
        assert_eq!(here.refresh(), Refreshed { came: false, went: true });
        assert!(!here.is_variable(5000) && here.variable_owner(4096).is_none());
        assert_eq!(here.variable_page(count, 0).unwrap(), None);
        assert_eq!(here.refresh(), Refreshed::default());
        assert_eq!(here.recorded.len(), count + 1);

        // As if another libc had been there.
        let libc = here.recorded.iter().position(|r| r.path.contains("libc.so")).unwrap();
        let now = here.recorded[libc].clone();
        here.recorded[libc].id[0] ^= 1;
        assert_eq!(here.refresh(), Refreshed { came: true, went: true });
        assert!(here.now[libc].is_none());
        assert_eq!(here.recorded.last(), Some(&now));
        assert_eq!(here.refresh(), Refreshed::default());
        // The next start finds the one build, and is not refused for the other.
        let (again, gone) = Modules::compare(here.recorded.clone(), true).unwrap();
        assert_eq!(again.now[libc], None);
        assert!(gone.iter().any(|gone| gone.span == now.span), "{gone:?}");
    }

    #[test]
    fn pointers_are_found_at_both_ends() {
        let gone: Vec<_> =
            [100..200, 400..500].into_iter().map(|span| Gone { span, why: String::new() }).collect();
        for (word, which) in [
            (99, None),
            (100, Some(0)),
            (199, Some(0)),
            (200, None),
            (400, Some(1)),
            (499, Some(1)),
            (500, None),
            (0, None),
            (usize::MAX, None),
        ] {
            assert_eq!(find_pointer(&[0, word, 0], &gone), which.map(|w| (1, w)), "{word}");
        }
        assert_eq!(find_pointer(&[1], &[]), None);
    }
}
