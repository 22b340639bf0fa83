//! Names of functions and variables, from the symbol tables of the modules' files.
//!
//! It allocates nothing, so that a signal handler may use it.

use crate::alloc::stderr_line::StderrLine;
use std::ffi::{CStr, c_void};

const SYMBOL_BYTES: usize = 24;
const SECTION_BYTES: usize = 64;
const SYMTAB: u32 = 2;
const DYNSYM: u32 = 11;
/// Types of symbols.
pub(crate) const OBJECT: u8 = 1;
pub(crate) const FUNCTION: u8 = 2;

/// A symbol of a module.
pub(crate) struct Symbol<'a> {
    pub(crate) name: &'a str,
    /// As in the file: less the module's bias.
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

/// A module's file, mapped.
pub(crate) struct SymbolFile {
    base: *mut c_void,
    len: usize,
}

impl Drop for SymbolFile {
    fn drop(&mut self) {
        // SAFETY: the mapping of `open`, which nothing refers to any more.
        unsafe { libc::munmap(self.base, self.len) };
    }
}

impl SymbolFile {
    pub(crate) fn open(path: &CStr) -> Option<Self> {
        // SAFETY: a path; the descriptor is closed again; the file is only read.
        unsafe {
            let descriptor = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            if descriptor < 0 {
                return None;
            }
            let mut stat: libc::stat = std::mem::zeroed();
            let len = if libc::fstat(descriptor, &raw mut stat) == 0 { stat.st_size as usize } else { 0 };
            let base = if len == 0 {
                libc::MAP_FAILED
            } else {
                libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, descriptor, 0)
            };
            libc::close(descriptor);
            let file = (base != libc::MAP_FAILED).then_some(Self { base, len })?;
            file.bytes(0, 5).is_some_and(|head| head == b"\x7fELF\x02").then_some(file)
        }
    }

    pub(crate) fn bytes(&self, at: usize, len: usize) -> Option<&[u8]> {
        if at.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: inside the mapping.
        Some(unsafe { std::slice::from_raw_parts(self.base.cast::<u8>().add(at), len) })
    }

    fn number(&self, at: usize, len: usize) -> Option<usize> {
        let mut wide = [0; 8];
        wide.get_mut(..len)?.copy_from_slice(self.bytes(at, len)?);
        Some(u64::from_le_bytes(wide) as usize)
    }

    /// True for a program that lies where its file says.
    fn is_fixed(&self) -> bool {
        self.number(16, 2) == Some(2)
    }

    /// What the file has for variables at `address` (as in the file); `None`: zeros, or nothing.
    pub(crate) fn initial(&self, address: usize, len: usize) -> Option<&[u8]> {
        let (table, bytes, count) = (self.number(32, 8)?, self.number(54, 2)?, self.number(56, 2)?);
        (0..count).find_map(|index| {
            let at = table.checked_add(index * bytes)?;
            let (from, start, filled) =
                (self.number(at + 8, 8)?, self.number(at + 16, 8)?, self.number(at + 32, 8)?);
            let offset = address.checked_sub(start)?;
            (self.number(at, 4)? == 1 && offset.checked_add(len)? <= filled).then_some(())?;
            self.bytes(from.checked_add(offset)?, len)
        })
    }

    fn section(&self, index: usize) -> Option<usize> {
        let (table, count) = (self.number(40, 8)?, self.number(60, 2)?);
        (index < count && self.number(58, 2)? == SECTION_BYTES)
            .then(|| table.checked_add(index * SECTION_BYTES))?
    }

    /// Symbols of a kind, of the whole table if the file has it, else those for other modules. `each` ends the
    /// search by returning false.
    pub(crate) fn each(&self, kind: u8, mut each: impl FnMut(Symbol<'_>) -> bool) {
        for table in [SYMTAB, DYNSYM] {
            let sections = (0..self.number(60, 2).unwrap_or(0)).filter_map(|index| self.section(index));
            let found =
                sections.into_iter().find(|&at| self.number(at + 4, 4).is_some_and(|t| t as u32 == table));
            if let Some(at) = found {
                let _ = self.each_of(at, kind, &mut each);
                return;
            }
        }
    }

    fn each_of(&self, section: usize, kind: u8, each: &mut impl FnMut(Symbol<'_>) -> bool) -> Option<()> {
        let symbols = self.bytes(self.number(section + 24, 8)?, self.number(section + 32, 8)?)?;
        let names = self.section(self.number(section + 40, 4)?)?;
        let names = self.bytes(self.number(names + 24, 8)?, self.number(names + 32, 8)?)?;
        for symbol in symbols.chunks_exact(SYMBOL_BYTES) {
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| symbol[at + i])) as usize;
            // A symbol without a section is another module's.
            if symbol[4] & 15 != kind || (symbol[6] == 0 && symbol[7] == 0) {
                continue;
            }
            let name = names.get(word(0) as u32 as usize..)?;
            let end = name.iter().position(|&b| b == 0)?;
            let Ok(name) = std::str::from_utf8(&name[..end]) else { continue };
            if !each(Symbol { name, address: word(8), bytes: word(16) }) {
                break;
            }
        }
        Some(())
    }
}

/// Adds the name of the function or variable at `address`, with its module: "push+0x12 in /bin/server".
pub(crate) fn push_name(line: &mut StderrLine, address: usize, kind: u8) {
    line.push_hex(address);
    // SAFETY: plain numbers and pointers, which `dladdr` sets.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let known = unsafe { libc::dladdr(std::ptr::with_exposed_provenance(address), &raw mut info) } != 0;
    if !known || info.dli_fname.is_null() {
        return;
    }
    // SAFETY: a string of the dynamic linker's, of a module that is loaded.
    let path = unsafe { CStr::from_ptr(info.dli_fname) };
    let base = info.dli_fbase as usize;
    // The program's own name may be relative to a directory that it has left.
    // SAFETY: only reads a number.
    let is_program = unsafe { libc::getauxval(libc::AT_PHDR) } as usize & !4095 == base;
    let file = SymbolFile::open(if is_program { c"/proc/self/exe" } else { path });
    let offset = file.as_ref().map_or(0, |file| address.wrapping_sub(if file.is_fixed() { 0 } else { base }));
    let mut is_named = false;
    if let Some(file) = &file {
        file.each(kind, |symbol| {
            is_named = offset.wrapping_sub(symbol.address) < symbol.bytes;
            if is_named {
                line.push(" ");
                line.push(symbol.name);
                line.push("+");
                line.push_hex(offset - symbol.address);
            }
            !is_named
        });
    }
    line.push(" in ");
    line.push(path.to_str().unwrap_or("?"));
    if !is_named {
        line.push("+");
        line.push_hex(address.wrapping_sub(base));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[unsafe(no_mangle)]
    extern "C" fn mangrove_a_function_with_a_name() -> u32 {
        std::hint::black_box(7)
    }

    #[test]
    fn functions_have_their_names_and_other_addresses_their_modules() {
        let name_of = |address: usize| {
            let mut line = StderrLine::new();
            push_name(&mut line, address, FUNCTION);
            line.text().to_owned()
        };
        assert_eq!(mangrove_a_function_with_a_name(), 7);
        let own = name_of(mangrove_a_function_with_a_name as *const () as usize + 1);
        assert!(own.contains(" mangrove_a_function_with_a_name+0x1 in "), "{own}");
        let libcs = name_of(libc::getenv as *const () as usize);
        assert!(libcs.contains("libc.so.6"), "{libcs}");
        let nowhere = name_of(0x1234);
        assert!(nowhere.ends_with("0x1234"), "{nowhere}");
    }

    #[test]
    fn a_torn_file_has_no_names() {
        let exe = std::fs::read("/proc/self/exe").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("torn");
        for len in [0, 3, 40, 63, 64, 1000, exe.len() / 2, exe.len() - 100] {
            std::fs::write(&path, &exe[..len]).unwrap();
            let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
            if let Some(file) = SymbolFile::open(&text) {
                file.each(FUNCTION, |_| true);
            }
        }
    }
}
