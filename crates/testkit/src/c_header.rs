//! Checks that every committed header and every entry point in it must pass.

use crate::c_library::CLibrary;
use crate::command::{run, said};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// A header that cbindgen writes from a crate's code, and that lies in the crate's `include` directory.
#[derive(Debug)]
pub struct Header<'a> {
    /// The library that it belongs to.
    pub library: &'a CLibrary,
    /// Its file name.
    pub file: &'a str,
    /// Its include guard.
    pub guard: &'a str,
    /// The options by which `cc` learns the C standard.
    pub flags: &'a [&'a str],
}

impl Header<'_> {
    fn path(&self) -> PathBuf {
        self.library.here().join("include").join(self.file)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap_or_default()
    }

    /// Checks that the committed header is what the code generates. With `BLESS` in the environment it writes the
    /// header instead.
    ///
    /// # Panics
    /// When they differ, with the first line that does.
    pub fn is_generated(&self) {
        let here = self.library.here();
        let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("cbindgen.toml");
        let mut generated = Vec::new();
        cbindgen::generate_with_config(here, config).expect("the header").write(&mut generated);
        let generated = String::from_utf8(generated).expect("UTF-8");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(self.path(), &generated).expect("write the header");
        }
        let committed = self.text();
        let line = committed.lines().zip(generated.lines()).position(|(a, b)| a != b);
        assert!(
            committed == generated,
            "include/{} differs from the code at line {}; renew it with\n    BLESS=1 cargo test -p {} --test header",
            self.file,
            line.unwrap_or_else(|| committed.lines().count().min(generated.lines().count())) + 1,
            self.library.package()
        );
    }

    /// Checks that the header, included twice and with nothing else, compiles as C and as C++17.
    ///
    /// # Panics
    /// With the compiler's message.
    pub fn compiles_alone(&self) {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let source = scratch.path().join("alone.c");
        let text = format!("#include <{0}>\n#include <{0}>\nint alone;\n", self.file);
        std::fs::write(&source, text).expect("write");
        run(self.library.cc(self.flags).arg("-fsyntax-only").arg(&source));
        let cxx = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        run(Command::new(cxx)
            .args(["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
            .args(["-x", "c++", "-I"])
            .arg(self.library.here().join("include"))
            .arg(&source));
    }

    /// Checks that the header has this line.
    ///
    /// # Panics
    /// When it has not.
    pub fn has_line(&self, line: &str) {
        assert!(self.text().lines().any(|l| l == line), "cbindgen.toml must say: {line}");
    }

    /// Functions that the header declares.
    ///
    /// # Panics
    /// Without an include guard.
    #[must_use]
    pub fn declared(&self) -> BTreeSet<String> {
        let text = self.text();
        let code = text.split(&format!("#ifndef {}\n", self.guard)).nth(1).expect("the include guard");
        code.lines()
            .filter(|l| {
                l.contains("mangrove_") && !l.starts_with([' ', '#', '/']) && !l.starts_with("typedef")
            })
            .filter_map(|l| l.split_once('(')?.0.rsplit([' ', '*']).next().map(str::to_owned))
            .collect()
    }

    /// Functions that the shared library exports.
    #[must_use]
    pub fn exported(&self) -> BTreeSet<String> {
        let table = said(Command::new("nm").args(["-D", "--defined-only"]).arg(self.library.shared()));
        let names = table.lines().filter_map(|l| l.rsplit(' ').next());
        names.map(|name| name.split('@').next().unwrap_or(name).to_owned()).collect()
    }

    /// Checks the SONAME of the shared library.
    ///
    /// # Panics
    /// When it is another one.
    pub fn has_soname(&self, soname: &str) {
        let dynamic = said(Command::new("readelf").arg("-d").arg(self.library.shared()));
        assert!(dynamic.contains(&format!("soname: [{soname}]")), "{dynamic}");
    }

    /// Checks that every entry point that can panic runs inside the guard: its body contains one of `guarded`, or
    /// one of `harmless`, which say why it cannot panic. Skips the files of `except`.
    ///
    /// # Panics
    /// At the first that does not, and when an entry point was not found in the sources.
    pub fn is_guarded(&self, guarded: &[&str], harmless: &[&str], except: &[&str]) {
        let mut seen = 0;
        let mut folders = vec![self.library.here().join("src")];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("a directory of sources") {
                let path = entry.expect("an entry").path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        for path in files {
            if except.iter().any(|name| path.ends_with(name)) {
                continue;
            }
            let source = std::fs::read_to_string(&path).expect("UTF-8");
            let source = source.split("#[cfg(test)]").next().unwrap_or_default();
            for part in source.split("#[unsafe(no_mangle)]").skip(1) {
                seen += 1;
                let body = part.split("\n}\n").next().unwrap_or_default();
                let name = body.split('(').next().unwrap_or_default().trim();
                assert!(
                    guarded.iter().chain(harmless).any(|w| body.contains(w)),
                    "{}: {name} runs outside the guard",
                    path.display()
                );
            }
        }
        assert_eq!(seen, self.declared().len(), "each entry point was looked at");
    }
}
