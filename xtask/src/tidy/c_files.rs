//! Circles of C files: those whose header tells, under a comment with a file's name, what that file gives the others.

use super::circles::{self, Ties};
use super::modules::folder;
use super::sources::Sources;
use std::collections::{BTreeMap, BTreeSet};

/// Every circle of the C files of each directory. A file depends on another if it spells a name that the header
/// declares in the other's section.
pub(super) fn check(sources: &Sources) -> Vec<String> {
    let mut findings = Vec::new();
    for (header, text) in sources.ending(&[".h"]) {
        let folder = folder(header);
        let owners = owners(sources, folder, text);
        let mut ties = Ties::new();
        for (file, text) in sources.ending(&[".c"]).filter(|(file, _)| self::folder(file) == folder) {
            let code = code(text);
            for word in words(&code) {
                if let Some(owner) = owners.get(word).filter(|owner| *owner != file) {
                    let to = ties.entry(file.to_owned()).or_default().entry(owner.clone()).or_default();
                    to.insert(word.to_owned());
                }
            }
        }
        findings.extend(circles::circles(&ties).iter().map(|circle| circles::told(folder, circle, &ties)));
    }
    findings
}

/// For each name that `header` declares the file that defines it.
fn owners(sources: &Sources, folder: &str, header: &str) -> BTreeMap<String, String> {
    let mut sections: Vec<(String, String)> = Vec::new();
    for line in header.lines() {
        let title = line.trim().strip_prefix("/* ").and_then(|rest| rest.strip_suffix(" */"));
        if let Some(title) = title.filter(|title| title.ends_with(".c")) {
            sections.push((format!("{folder}/{title}"), String::new()));
        } else if let Some((_, section)) = sections.last_mut() {
            section.push_str(line);
            section.push('\n');
        }
    }
    let mut owners = BTreeMap::new();
    for (file, section) in sections.into_iter().filter(|(file, _)| sources.text(file).is_some()) {
        let (macros, rest): (Vec<&str>, Vec<&str>) =
            section.lines().partition(|line| line.trim_start().starts_with('#'));
        let macros =
            macros.iter().filter_map(|line| words(line.trim_start().strip_prefix("#define")?).next());
        let rest = code(&rest.join("\n"));
        for name in macros.chain(declared(&rest)) {
            owners.entry(name.to_owned()).or_insert_with(|| file.clone());
        }
    }
    owners
}

/// The names that `code` declares: what stands before `(`, `;`, `,`, `[` or `}`, and is no parameter.
fn declared(code: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let (mut depth, mut last) = (0, None);
    for (at, character) in code.char_indices() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if is_word(character) {
            let end = code[at..].find(|c| !is_word(c)).map_or(code.len(), |len| at + len);
            if !code[..at].ends_with(is_word) {
                last = Some(&code[at..end]);
            }
            continue;
        }
        if depth == 0 && matches!(character, '(' | ';' | ',' | '[' | '}') {
            names.extend(last);
        }
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        if !character.is_whitespace() {
            last = None;
        }
    }
    names
}

/// The text without comments, and with empty strings.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['/', '"', '\'']) {
        code.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = if rest.starts_with("/*") {
            rest.find("*/").map(|end| end + 2)
        } else if rest.starts_with("//") {
            rest.find('\n')
        } else if rest.starts_with('/') {
            Some(1)
        } else {
            closing(rest)
        };
        code.push(' ');
        rest = &rest[end.unwrap_or(rest.len())..];
    }
    code + rest
}

/// Behind the end of the string or character that `text` begins with.
fn closing(text: &str) -> Option<usize> {
    let quote = text.chars().next()?;
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, character)| {
        let found = *character == quote && !escaped;
        escaped = *character == '\\' && !escaped;
        found
    });
    end.map(|(at, _)| at + 1)
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
