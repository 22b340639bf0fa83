//! Injected faults: a small workspace in which all is well, and each rule broken once in a copy of it.

use super::run::CHECKS;
use super::sources::Sources;
use super::{c_files, circles, docs, floors, form, names, orphans};

/// A workspace without a finding: two crates, one above the other, and what points at them.
const CLEAN: [(&str, &str); 9] = [
    (
        "ARCHITECTURE.md",
        "# A\n\n## Floors\n\n| floor | crate | what |\n|---|---|---|\n| 1 | `high` | x |\n\
         | 0 | `mangrove` `low` | y |\n| - | `kit` | z |\n\n## B\n\n\
         See `heap.rs`, `take`, and `high/top.rs`: `Heap::take`, `Level::Low`, `heap::take_all`.\n",
    ),
    (
        "crates/high/Cargo.toml",
        "[package]\nname = \"mangrove-high\"\n[dependencies]\nmangrove-low.workspace = true\n[dev-dependencies]\n\
         mangrove-kit.workspace = true\n",
    ),
    ("crates/high/src/lib.rs", "mod top;\npub use top::Top;\n"),
    ("crates/high/src/top.rs", "pub struct Top;\n"),
    ("crates/low/Cargo.toml", "[package]\nname = \"mangrove-low\"\n[dependencies]\nlibc = \"1\"\n"),
    ("crates/low/src/lib.rs", "mod heap;\nmod level;\npub(crate) use heap::Heap;\npub use level::Level;\n"),
    (
        "crates/low/src/heap.rs",
        "use crate::level;\npub struct Heap(level::Level);\nimpl Heap {\n    pub fn take(&self) {}\n}\nfn take_all() {}\n",
    ),
    ("crates/low/src/level.rs", "pub enum Level {\n    Low,\n    High,\n}\n"),
    ("crates/mangrove/Cargo.toml", "[package]\nname = \"mangrove\"\n"),
];
const KIT: (&str, &str) = ("crates/kit/Cargo.toml", "[package]\nname = \"mangrove-kit\"\n");

/// The clean workspace with these files instead of, or beside, its own.
fn workspace(changes: &[(&str, &str)]) -> Sources {
    let folder = tempfile::tempdir().expect("a directory");
    let files = || CLEAN.iter().chain([&KIT]).chain(changes);
    for (name, text) in files() {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    Sources::read(folder.path(), files().map(|(name, _)| *name)).expect("the workspace")
}

#[test]
fn the_files_of_an_unpacked_archive_are_those_that_git_would_track() {
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(folder.path().join("target")).expect("a directory");
    for (name, text) in [(".gitignore", "/target\n"), ("target/built", ""), ("lib.rs", "")] {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    let sources = Sources::tracked(folder.path()).expect("its files");
    assert_eq!(sources.names().collect::<Vec<_>>(), [".gitignore", "lib.rs"]);
}

/// The one finding of a check.
fn one(check: fn(&Sources) -> Vec<String>, changes: &[(&str, &str)]) -> String {
    let mut found = check(&workspace(changes));
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

fn none(check: fn(&Sources) -> Vec<String>, changes: &[(&str, &str)]) {
    assert_eq!(check(&workspace(changes)), [""; 0]);
}

#[test]
fn a_clean_workspace_passes() {
    for (name, check) in CHECKS {
        assert_eq!(check(&workspace(&[])), [""; 0], "{name}");
    }
}

/// Files of one crate, of which heap.rs uses level.rs.
fn level(text: &str) -> Vec<(&str, &str)> {
    vec![("crates/low/src/level.rs", text)]
}

#[test]
fn a_circle_of_two_through_a_re_export_is_found() {
    let found = one(circles::check, &level("use crate::{Heap as H};\npub struct Level(Box<H>);\n"));
    assert_eq!(
        found,
        "crates/low/src: a circle of 2 files: heap.rs, level.rs\n  heap.rs -> level.rs: Level\n  level.rs -> heap.rs: Heap"
    );
}

#[test]
fn every_way_to_name_something_closes_a_circle() {
    for text in [
        "fn f() { crate::heap::take_all(); }",
        "use super::heap;\nfn f() { heap::take_all(); }",
        "use super::heap as h;\nfn f() { h::take_all(); }",
        "use crate::{heap::{self}};\nfn f() { heap::take_all(); }",
        "fn f() { use super::*; let x: Heap; }",
        "use crate::heap::*;\nfn f(x: &Heap) {}",
        "fn f() { assert!(vec![1] == [super::heap::take_all()]); }",
        "mod inner { use super::super::Heap; }",
        "impl crate::Heap { fn g() {} }",
        "#[cfg(not(test))] fn f(x: <crate::Heap as Iterator>::Item) {}",
    ] {
        let text = format!("{text}\npub struct Level;");
        let found = one(circles::check, &level(&text));
        assert!(found.contains("level.rs -> heap.rs: "), "{text}: {found}");
    }
}

#[test]
fn what_is_no_code_and_what_only_tests_compile_closes_no_circle() {
    for text in [
        "// crate::heap::take_all()",
        "/// See [`crate::Heap`].\nfn f() { g(\"crate::heap::take_all()\"); }",
        "use crate::heap;",
        "pub(in crate::heap) fn f() {}",
        "#[cfg(test)]\n#[allow(x)]\nmod tests { use crate::Heap; }",
        "#[cfg(all(test, not(loom)))]\npub(crate) fn f<A, B>(x: &crate::Heap) {}",
        "struct S { a: u8, #[cfg(test)] pub(crate) b: crate::Heap, c: u8 }",
        "fn f() { #[cfg(test)] crate::heap::take_all(); }",
        "use other::heap::Heap;\nfn f(x: Heap) {}",
        "use crate::heap;\nfn f() { ::heap::take_all(); }",
        "#![cfg(test)]\nuse crate::Heap;",
    ] {
        none(circles::check, &level(&format!("{text}\npub struct Level;")));
    }
    none(
        circles::check,
        &[
            (
                "crates/low/src/level.rs",
                "#[cfg(test)]\n#[path = \"level_tests.rs\"]\nmod tests;\npub struct Level;",
            ),
            ("crates/low/src/level_tests.rs", "use crate::Heap; use super::Level;"),
        ],
    );
}

#[test]
fn a_circle_of_three_in_a_folder_is_found() {
    let found = one(
        circles::check,
        &[
            ("crates/low/src/lib.rs", "mod heap;\nmod level;\nmod ring;\npub(crate) use heap::Heap;"),
            (
                "crates/low/src/ring/mod.rs",
                "//! A ring.\n\nmod a;\nmod b;\n#[path = \"../see.rs\"]\nmod c;\npub(crate) use c::C;\n",
            ),
            ("crates/low/src/ring/a.rs", "use super::b::B;\npub struct A(B);"),
            ("crates/low/src/ring/b.rs", "pub struct B(Box<super::C>);"),
            ("crates/low/src/see.rs", "use super::a;\npub struct C(a::A);"),
        ],
    );
    assert!(
        found.starts_with("crates/low/src: a circle of 3 files: ring/a.rs, ring/b.rs, see.rs\n"),
        "{found}"
    );
    assert!(found.contains("ring/b.rs -> see.rs: C") && found.contains("see.rs -> ring/a.rs: A"), "{found}");
}

/// Two C files, of which top.c uses base.c, and what base.c holds.
fn glue(base: &str) -> Vec<(&str, &str)> {
    vec![
        (
            "crates/low/glue/all.h",
            "typedef struct top top_t;\n/* base.c */\nextern int depth,\n    width; /* f(rise) */\n\
             #define DEEP(x) (depth += x)\n/* top.c */\nvoid rise(int depth_min,\n    int by), fall(void);\n",
        ),
        ("crates/low/glue/top.c", "#include \"all.h\"\nvoid rise(int a, int by) { DEEP(a / by); }\n"),
        ("crates/low/glue/base.c", base),
    ]
}

#[test]
fn a_circle_of_c_files_is_found() {
    none(
        c_files::check,
        &glue("int depth = 1 / 2; /* rise() */ char *s = \"fall(\\\")\"; int by, depth_min; // fall"),
    );
    let found = one(c_files::check, &glue("int depth; int f(void) { fall(); return '\"'; }"));
    assert_eq!(
        found,
        "crates/low/glue: a circle of 2 files: base.c, top.c\n  base.c -> top.c: fall\n  top.c -> base.c: DEEP"
    );
}

#[test]
fn what_lib_rs_defines_ties_and_what_it_re_exports_does_not() {
    let lib = "mod heap;\nmod level;\npub use heap::Heap;\npub const N: usize = 1;\n";
    let level = "pub struct Level([u8; crate::N]);\npub fn g() {}";
    none(circles::check, &[("crates/low/src/lib.rs", lib), ("crates/low/src/level.rs", level)]);
    for uses in ["fn f() { level::g(); }", "use level::g;"] {
        let lib = format!("{lib}{uses}");
        let found =
            one(circles::check, &[("crates/low/src/lib.rs", &lib), ("crates/low/src/level.rs", level)]);
        assert!(
            found.contains("lib.rs -> level.rs: g") && found.contains("level.rs -> lib.rs: N"),
            "{found}"
        );
    }
}

#[test]
fn an_ordinary_file_that_hands_a_name_on_is_part_of_the_circle() {
    let found = one(
        circles::check,
        &[
            ("crates/low/src/lib.rs", "mod heap;\nmod level;\nmod other;"),
            ("crates/low/src/level.rs", "pub(crate) use crate::other::Level;"),
            ("crates/low/src/other.rs", "use crate::heap::Heap;\npub struct Level(Box<Heap>);"),
        ],
    );
    assert!(
        found.starts_with("crates/low/src: a circle of 3 files: heap.rs, level.rs, other.rs\n"),
        "{found}"
    );
}

#[test]
fn macros_without_a_path_tie() {
    let found = one(
        circles::check,
        &[
            ("crates/low/src/lib.rs", "#[macro_use]\nmod heap;\nmod level;"),
            ("crates/low/src/heap.rs", "use crate::level::Level;\nmacro_rules! say { () => {} }"),
            ("crates/low/src/level.rs", "pub struct Level;\nfn f() { say!(); }"),
        ],
    );
    assert!(found.contains("level.rs -> heap.rs: say!"), "{found}");
}

fn fat(text: &str) -> [(&str, &str); 1] {
    [("crates/low/src/x/mod.rs", text)]
}

#[test]
fn a_fat_mod_rs_is_found() {
    none(
        form::module_files,
        &fat("//! X.\n#[macro_use]\nmod a;\n#[cfg(test)]\nmod tests;\npub(crate) use a::{A, B};\n"),
    );
    for item in ["pub const X: u8 = 1;", "fn f() {}", "mod b { }", "pub(crate) struct S;", "say!();"] {
        let text = format!("//! X.\nmod a;\n{item}\n");
        let found = one(form::module_files, &fat(&text));
        assert!(found.starts_with("crates/low/src/x/mod.rs: holds more than mod and use: "), "{found}");
    }
    assert!(one(form::module_files, &fat("mod a;\n")).contains("does not say in a //! line"));
}

#[test]
fn a_long_line_is_found() {
    let (long, limit) = (format!("fn f() {{\n    {};\n}}\n", "x+".repeat(60)), "ä".repeat(118));
    assert_eq!(one(form::long_lines, &level(&long)), "crates/low/src/level.rs:2: 125 columns, at most 120");
    let one_string = format!("    f(\"{}\\\" {}\");\n", "a ".repeat(40), "b ".repeat(20));
    let address = format!("//! https://example.org/{}\n//{limit}\n", "x".repeat(120));
    none(form::long_lines, &[("crates/low/src/level.rs", &one_string), ("crates/low/src/a.h", &address)]);
    let two_strings = format!("    f(\"{}\", \"{}\");\n", "a ".repeat(30), "b ".repeat(30));
    one(form::long_lines, &[("examples/c/main.c", &two_strings)]);
    none(form::long_lines, &[("other/main.c", &two_strings), ("README.md", &two_strings)]);
}

#[test]
fn a_long_file_is_found() {
    let lines = "fn f() {}\n".repeat(801);
    let found = one(form::long_files, &level(&lines));
    assert!(found.starts_with("crates/low/src/level.rs: 801 lines, at most 800"), "{found}");
    for reason in ["Long because", "This file is long because"] {
        none(form::long_files, &level(&format!("//! Levels.\n//!\n//! {reason} they are many.\n{lines}")));
        one(form::long_files, &level(&format!("{lines}// {reason} they are many.\n")));
    }
}

#[test]
fn a_dependency_that_does_not_go_down_is_found() {
    let uses = |what: &'static str| [("crates/low/Cargo.toml", what)];
    let high = "[package]\nname = \"mangrove-low\"\n[dependencies]\nmangrove-high.workspace = true # up\n";
    let found = one(floors::check, &uses(high));
    assert_eq!(found, "crates/low/Cargo.toml: `low`, on floor 0, uses `high`, which is on floor 1");
    for section in [
        "[dependencies]\nmangrove = { workspace = true }",
        "[dependencies.mangrove]\nworkspace = true",
        "[target.'cfg(unix)'.dependencies]\nm = { package = \"mangrove\", path = \"../mangrove\" }",
        "[dependencies]\nmangrove-kit.workspace = true",
    ] {
        let manifest = format!("[package]\nname = \"mangrove-low\"\n{section}\n");
        one(floors::check, &[("crates/low/Cargo.toml", &manifest)]);
    }
    none(
        floors::check,
        &uses("[package]\n[dev-dependencies]\nmangrove-high = \"1\"\n[build-dependencies.mangrove-high]\n"),
    );
    none(floors::check, &uses("[package]\n[dependencies]\nhigh = \"1\"\n"));
}

#[test]
fn a_crate_that_the_table_does_not_name_is_found() {
    let found = one(floors::check, &[("crates/new/Cargo.toml", "[package]\nname = \"mangrove-new\"\n")]);
    assert_eq!(found, "ARCHITECTURE.md: the table \"Floors\" does not name crates/new");
    let table = format!("{}\n", CLEAN[0].1.replace("`low`", "`low` `gone`"));
    assert!(one(floors::check, &[("ARCHITECTURE.md", &table)]).ends_with("names `gone`, which is no crate"));
    assert!(one(floors::check, &[("ARCHITECTURE.md", "# A\n")]).contains("no table"));
}

#[test]
fn a_name_of_two_types_is_found() {
    // A private one is its file's own matter.
    let found = one(names::check, &[("crates/high/src/top.rs", "pub(crate) trait Heap {}\nstruct Level;")]);
    assert_eq!(found, "Heap: trait crates/high/src/top.rs, struct crates/low/src/heap.rs");
}

#[test]
fn a_name_in_a_document_that_is_not_there_is_found() {
    let wrong = |text: &str| one(docs::check, &[("docs/x.md", text)]);
    assert_eq!(wrong("a\nb `write.rs` c"), "docs/x.md:2: there is no file `write.rs`");
    assert_eq!(wrong("`low/src/top.rs`"), "docs/x.md:1: there is no file `low/src/top.rs`");
    assert_eq!(wrong("x `heap.rs`, `replace` y"), "docs/x.md:1: no heap.rs has a `replace`");
    assert_eq!(wrong("see `Heap::give(x)`"), "docs/x.md:1: `Heap` has no `give` (`Heap::give(x)`)");
    assert_eq!(
        wrong("see `a\n b` and `Level::Middle`"),
        "docs/x.md:2: `Level` has no `Middle` (`Level::Middle`)"
    );
    assert_eq!(wrong("`Tower::new`"), "docs/x.md:1: there is no type or module `Tower` (`Tower::new`)");
    assert_eq!(wrong("`specs/Gone.tla`"), "docs/x.md:1: there is no file `specs/Gone.tla`");
}

#[test]
fn names_that_are_there_and_those_of_others_are_no_finding() {
    let text = "`crates/low/src/heap.rs`, `low/heap.rs`, `heap.rs` and `replace`, `std::map`, `.rs`, \
                `/usr/include/x.h`, `a + b::c`\n\n```\n`Gone::x` `gone.rs`\n```\n\none ` alone\n\n\
                `mangrove_low::Heap`, `level::Level`\n";
    none(docs::check, &[("docs/x.md", text)]);
}

#[test]
fn a_test_that_no_program_has_is_found() {
    let main =
        ("crates/low/tests/together/main.rs", "#[path = \"../support/mod.rs\"]\nmod support;\nmod used;\n");
    let others = [
        ("crates/low/tests/support/mod.rs", "pub mod words;\n"),
        ("crates/low/tests/support/words.rs", ""),
        ("crates/low/tests/together/used.rs", ""),
        ("crates/low/tests/alone.rs", ""),
    ];
    let all: Vec<_> = others.into_iter().chain([main]).collect();
    none(orphans::check, &all);
    let lost = "crates/low/tests/together/lost.rs";
    let found = one(orphans::check, &[&all[..], &[(lost, "")]].concat());
    assert!(found.starts_with(lost), "{found}");
}
