//! The kernel's source tree: files without comments, and the preprocessor directives in them.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::error::Error;
use crate::lex::{self, Token};

/// A macro.
#[derive(Debug)]
pub(crate) struct Macro {
    /// `None` for one that is used without parentheses.
    pub(crate) params: Option<Vec<Rc<str>>>,
    /// The last parameter takes all arguments that are left.
    pub(crate) variadic: bool,
    text: String,
    body: OnceCell<Vec<Token>>,
}

impl Macro {
    /// `line` is the text after `#define`: a name, perhaps parameters, and the text.
    fn parse(definition: &str) -> Option<(Rc<str>, Self)> {
        let definition = definition.trim_start();
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = definition.find(|c| !word(c)).unwrap_or(definition.len());
        let (name, rest) = definition.split_at(end);
        if name.is_empty() {
            return None;
        }
        let mut parsed = Self {
            params: None,
            variadic: false,
            text: rest.to_owned(),
            body: OnceCell::new(),
        };
        if let Some(list) = rest.strip_prefix('(') {
            let (list, text) = list.split_once(')')?;
            let mut params = Vec::new();
            for param in list
                .split(',')
                .map(str::trim)
                .filter(|param| !param.is_empty())
            {
                let name = param.trim_end_matches("...").trim_end();
                parsed.variadic |= param.ends_with("...");
                params.push(Rc::from(if name.is_empty() { "__VA_ARGS__" } else { name }));
            }
            parsed.params = Some(params);
            parsed.text = text.to_owned();
        }
        Some((Rc::from(name), parsed))
    }

    /// One without parameters.
    pub(crate) fn constant(text: &str) -> Self {
        Self {
            params: None,
            variadic: false,
            text: text.to_owned(),
            body: OnceCell::new(),
        }
    }

    /// Its replacement.
    pub(crate) fn body(&self) -> &[Token] {
        self.body.get_or_init(|| lex::tokens(&self.text, 0))
    }
}

/// A line that begins with `#`, continuation lines included.
#[derive(Debug)]
pub(crate) enum Directive {
    Define(Rc<str>, Rc<Macro>),
    Undefine(Rc<str>),
    Include(String),
    /// `#if`, and `#ifdef` as `defined(…)`.
    If(Vec<Token>),
    ElseIf(Vec<Token>),
    Else,
    EndIf,
    Once,
}

impl Directive {
    fn parse(line: &str) -> Option<Self> {
        let line = line.trim_start().strip_prefix('#')?.trim_start();
        let end = line
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(line.len());
        let (word, rest) = line.split_at(end);
        let name = || Rc::from(rest.split_whitespace().next().unwrap_or(""));
        let defined = |not: &str| lex::tokens(&format!("{not}defined({rest})"), 0);
        Some(match word {
            "define" => {
                let (name, parsed) = Macro::parse(rest)?;
                Self::Define(name, Rc::new(parsed))
            }
            "undef" => Self::Undefine(name()),
            "include" => Self::Include(rest.trim().to_owned()),
            "if" => Self::If(lex::tokens(rest, 0)),
            "ifdef" => Self::If(defined("")),
            "ifndef" => Self::If(defined("!")),
            "elif" => Self::ElseIf(lex::tokens(rest, 0)),
            "else" => Self::Else,
            "endif" => Self::EndIf,
            "pragma" if rest.trim() == "once" => Self::Once,
            _ => return None,
        })
    }
}

/// A source file.
pub(crate) struct SourceFile {
    /// Below the root of the source tree.
    pub(crate) path: String,
    text: String,
    /// Where each line starts.
    lines: Vec<usize>,
    /// In the order of the file, with the first line and the one after the last.
    pub(crate) directives: Vec<(u32, u32, Directive)>,
}

impl SourceFile {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let text = lex::without_comments(text);
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        let lines: Vec<usize> = std::iter::once(0).chain(starts).collect();
        let mut file = Self {
            path: path.to_owned(),
            text,
            lines,
            directives: Vec::new(),
        };
        file.directives = file.find_directives();
        file
    }

    fn find_directives(&self) -> Vec<(u32, u32, Directive)> {
        let mut found = Vec::new();
        let mut line = 1;
        while line <= self.line_count() {
            let first = line;
            line += 1;
            if !self.line(first).trim_start().starts_with('#') {
                continue;
            }
            let mut whole = self.line(first).to_owned();
            while whole.ends_with('\\') && line <= self.line_count() {
                whole.pop();
                whole.push(' ');
                whole.push_str(self.line(line));
                line += 1;
            }
            if let Some(directive) = Directive::parse(&whole) {
                found.push((first, line, directive));
            } else {
                // Still not C: `#error`, `#warning`.
                found.push((first, line, Directive::Once));
            }
        }
        found
    }

    pub(crate) fn line_count(&self) -> u32 {
        self.lines.len() as u32
    }

    /// A line, from 1, without its end.
    fn line(&self, line: u32) -> &str {
        let start = self.lines[line as usize - 1];
        let end = self
            .lines
            .get(line as usize)
            .copied()
            .unwrap_or(self.text.len());
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }

    /// The tokens of lines `first` to `end`, the latter not included, in which no directive is.
    pub(crate) fn tokens(&self, first: u32, end: u32) -> Vec<Token> {
        if first == 0 || first >= end || first > self.line_count() {
            return Vec::new();
        }
        let start = self.lines[first as usize - 1];
        let end = self
            .lines
            .get(end as usize - 1)
            .copied()
            .unwrap_or(self.text.len());
        lex::tokens(&self.text[start..end], first)
    }

    /// The text without comments.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The line, from 1, on which the byte is.
    pub(crate) fn line_of(&self, byte: usize) -> u32 {
        self.lines.partition_point(|&start| start <= byte) as u32
    }
}

/// The source tree of a kernel and its configuration.
pub(crate) struct Sources {
    root: PathBuf,
    config: Vec<(Rc<str>, Rc<Macro>)>,
    files: RefCell<HashMap<String, Option<Rc<SourceFile>>>>,
    paths: RefCell<HashMap<String, Option<String>>>,
}

impl Sources {
    /// `root` is a kernel source tree, `config` the configuration that the kernel was built with
    /// (`/boot/config-*`).
    pub(crate) fn open(root: &Path, config: &Path) -> Result<Self, Error> {
        if !root.join("include/linux/spinlock.h").is_file() {
            return Err(Error::NoSource { path: root.into() });
        }
        let text = fs::read_to_string(config).map_err(|source| Error::Read {
            path: config.into(),
            source,
        })?;
        Ok(Self::with_config(root, &text))
    }

    /// The same for any tree of C files.
    pub(crate) fn with_config(root: &Path, config: &str) -> Self {
        Self {
            root: root.into(),
            config: config.lines().filter_map(option).collect(),
            files: RefCell::new(HashMap::new()),
            paths: RefCell::new(HashMap::new()),
        }
    }

    /// The macros that the configuration makes.
    pub(crate) fn config(&self) -> &[(Rc<str>, Rc<Macro>)] {
        &self.config
    }

    /// The file at a path below the root, if there is one.
    pub(crate) fn file(&self, path: &str) -> Option<Rc<SourceFile>> {
        if let Some(known) = self.files.borrow().get(path) {
            return known.clone();
        }
        let bytes = fs::read(self.root.join(path)).ok();
        let file =
            bytes.map(|bytes| Rc::new(SourceFile::new(path, &String::from_utf8_lossy(&bytes))));
        self.files
            .borrow_mut()
            .insert(path.to_owned(), file.clone());
        file
    }

    /// The path below the root of a file that debug information names: the compiler was told
    /// some path, absolute or relative, whose end is the same here.
    pub(crate) fn locate(&self, named: &str) -> Option<String> {
        if let Some(known) = self.paths.borrow().get(named) {
            return known.clone();
        }
        let parts = normal(named);
        let found = (0..parts.len())
            .map(|skipped| parts[skipped..].join("/"))
            .find(|path| self.root.join(path).is_file());
        self.paths
            .borrow_mut()
            .insert(named.to_owned(), found.clone());
        found
    }
}

/// The parts of a path without `.` and `..`.
pub(crate) fn normal(path: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts
}

/// A line of a kernel configuration, as the macro that C code sees.
fn option(line: &str) -> Option<(Rc<str>, Rc<Macro>)> {
    let (name, value) = line.split_once('=')?;
    if !name.starts_with("CONFIG_") {
        return None;
    }
    let (name, value) = match value.trim() {
        "y" => (name.to_owned(), "1"),
        "m" => (format!("{name}_MODULE"), "1"),
        other => (name.to_owned(), other),
    };
    Some((Rc::from(name), Rc::new(Macro::constant(value))))
}
