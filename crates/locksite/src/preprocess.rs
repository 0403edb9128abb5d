//! The macros that a compilation unit sees, as its preprocessor would have found them: includes are
//! followed, conditions are decided by the kernel's configuration.

use std::collections::HashMap;
use std::rc::Rc;

use crate::cursor::{Cursor, LEVELS};
use crate::lex::{self, Kind, Token};
use crate::source::{Directive, Macro, SourceFile, Sources, normal};

/// The macros of a compilation unit.
pub(crate) struct Macros {
    defined: HashMap<Rc<str>, Rc<Macro>>,
    /// Macros that were defined when a part of the unit was compiled, and no longer at its end.
    earlier: HashMap<Rc<str>, Rc<Macro>>,
}

/// Headers that are included before the first line of every file of a kernel (`LINUXINCLUDE` and
/// `KBUILD_CFLAGS` of the kernel's Makefile).
const FORCED: [&str; 2] = ["include/linux/kconfig.h", "include/linux/compiler_types.h"];

/// Where headers in angle brackets are looked for, in this order.
const SEARCHED: [&str; 4] = [
    "arch/x86/include",
    "include",
    "arch/x86/include/uapi",
    "include/uapi",
];

/// The macros that the compiler and the Makefile define, as far as headers need them.
const PREDEFINED: [(&str, &str); 14] = [
    ("__KERNEL__", "1"),
    ("__x86_64__", "1"),
    ("__amd64__", "1"),
    ("__LP64__", "1"),
    ("__SIZEOF_LONG__", "8"),
    ("__SIZEOF_POINTER__", "8"),
    ("__SIZEOF_INT128__", "16"),
    ("__BYTE_ORDER__", "1234"),
    ("__ORDER_LITTLE_ENDIAN__", "1234"),
    ("__GNUC__", "12"),
    ("__GNUC_MINOR__", "2"),
    ("__GNUC_PATCHLEVEL__", "0"),
    ("__STDC_VERSION__", "201112"),
    ("__OPTIMIZE__", "1"),
];

/// Headers include each other; a deeper nesting is an error.
const MAX_DEPTH: usize = 150;

/// Macros in a condition stand for others; a longer chain is an error.
const MAX_EXPANSIONS: u32 = 16;

impl Macros {
    /// The macros at the end of the unit that is compiled from `main`, a path below the source
    /// root. Costs some ten milliseconds, and the reading of files not seen before.
    pub(crate) fn of_unit(sources: &Sources, main: &str, module: bool) -> Self {
        let mut macros = Self {
            defined: HashMap::new(),
            earlier: HashMap::new(),
        };
        for (name, value) in PREDEFINED {
            macros.define(&Rc::from(name), &Rc::new(Macro::constant(value)));
        }
        if module {
            macros.define(&Rc::from("MODULE"), &Rc::new(Macro::constant("1")));
        }
        for (name, value) in sources.config() {
            macros.define(name, value);
        }
        for forced in FORCED {
            macros.include(sources, forced, main, 0);
        }
        macros.include(sources, main, main, 0);
        macros
    }

    /// The macro of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&Rc<Macro>> {
        self.defined.get(name).or_else(|| self.earlier.get(name))
    }

    fn define(&mut self, name: &Rc<str>, value: &Rc<Macro>) {
        self.defined.insert(Rc::clone(name), Rc::clone(value));
    }

    fn include(&mut self, sources: &Sources, path: &str, main: &str, depth: usize) {
        let Some(file) = sources.file(path) else {
            return;
        };
        if depth > MAX_DEPTH {
            return;
        }
        let mut conditions = Conditions::default();
        for (_, _, directive) in &file.directives {
            if conditions.step(self, directive) || !conditions.active() {
                continue;
            }
            match directive {
                Directive::Define(name, value) => self.define(name, value),
                Directive::Undefine(name) => {
                    if let Some(old) = self.defined.remove(name) {
                        self.earlier.insert(Rc::clone(name), old);
                    }
                }
                Directive::Include(named) => {
                    if let Some(found) = find(sources, named, &file.path, main) {
                        self.include(sources, &found, main, depth + 1);
                    }
                }
                _ => {}
            }
        }
    }

    /// The tokens of a file from `first` on, without the parts that conditions leave out, at most
    /// `limit` lines.
    pub(crate) fn lines(&self, file: &SourceFile, first: u32, limit: u32) -> Vec<Token> {
        let end = file.line_count().min(first.saturating_add(limit)) + 1;
        let mut conditions = Conditions::default();
        let mut out = Vec::new();
        let mut next = first;
        let after = file
            .directives
            .partition_point(|&(line, _, _)| line < first);
        for (line, behind, directive) in &file.directives[after..] {
            if *line >= end {
                break;
            }
            if conditions.active() {
                out.extend(file.tokens(next, *line));
            }
            conditions.step(self, directive);
            next = *behind;
        }
        if conditions.active() {
            out.extend(file.tokens(next, end));
        }
        out
    }

    /// Whether a line of a file is compiled.
    pub(crate) fn compiles(&self, file: &SourceFile, line: u32) -> bool {
        let mut conditions = Conditions::default();
        let before = file
            .directives
            .iter()
            .take_while(|(first, ..)| *first < line);
        for (index, (_, _, directive)) in before.enumerate() {
            let guard = index == 0 && is_guard(directive, file.directives.get(1));
            if guard {
                conditions.open.push((true, true));
            } else {
                conditions.step(self, directive);
            }
        }
        conditions.active()
    }

    /// The value of a condition; false if it cannot be evaluated.
    fn holds(&self, condition: &[Token]) -> bool {
        let tokens = self.answered(condition.to_vec(), MAX_EXPANSIONS);
        let mut evaluation = Evaluation(Cursor::new(&tokens));
        evaluation.conditional() != 0
    }

    /// Replaces names by their values, and questions about names by their answers.
    fn answered(&self, tokens: Vec<Token>, depth: u32) -> Vec<Token> {
        let mut out: Vec<Token> = Vec::new();
        let mut at = 0;
        let mut again = false;
        while at < tokens.len() {
            let token = tokens[at].clone();
            at += 1;
            if !token.is_word() {
                out.push(token);
                continue;
            }
            let end = if tokens.get(at).is_some_and(|next| next.is("(")) {
                lex::after_closing(&tokens, at)
            } else {
                at
            };
            let inside: Vec<&Token> = tokens[at..end].iter().collect();
            let argument = inside
                .iter()
                .find(|token| token.is_word())
                .map(|token| &*token.text);
            match &*token.text {
                "defined" => {
                    let bare = tokens.get(at).filter(|next| next.is_word());
                    let name = bare.map(|next| next.text.to_string());
                    let name = name.or(argument.map(str::to_owned)).unwrap_or_default();
                    at = if bare.is_some() { at + 1 } else { end };
                    out.push(truth(&token, self.defined.contains_key(&*name)));
                }
                question @ ("IS_ENABLED" | "IS_BUILTIN" | "IS_REACHABLE" | "IS_MODULE") => {
                    let name = argument.unwrap_or_default();
                    let built_in = question != "IS_MODULE" && self.defined.contains_key(name);
                    let module = question != "IS_BUILTIN"
                        && self.defined.contains_key(&*format!("{name}_MODULE"));
                    out.push(truth(&token, built_in || module));
                    at = end;
                }
                question if question.starts_with("__has_") => {
                    out.push(truth(&token, question != "__has_include"));
                    at = end;
                }
                name => match self.defined.get(name) {
                    Some(value) if value.params.is_none() && depth > 0 => {
                        out.extend(value.body().iter().cloned());
                        again = true;
                    }
                    _ => {
                        out.push(truth(&token, false));
                        at = end;
                    }
                },
            }
        }
        match again {
            true => self.answered(out, depth - 1),
            false => out,
        }
    }
}

/// Whether the first directive of a header keeps it from being read twice: at the end of a unit
/// its condition does not hold.
fn is_guard(first: &Directive, second: Option<&(u32, u32, Directive)>) -> bool {
    let (Directive::If(condition), Some((_, _, Directive::Define(name, _)))) = (first, second)
    else {
        return false;
    };
    condition.iter().any(|token| token.text == *name)
}

/// The file that an `#include` means.
fn find(sources: &Sources, named: &str, from: &str, main: &str) -> Option<String> {
    let quoted = named.starts_with('"');
    let name = named.get(1..)?.split(['"', '>']).next()?;
    // These define tracepoints by including themselves again; no lock is taken in them.
    if name == "trace/define_trace.h" {
        return None;
    }
    let directory = |path: &str| {
        path.rsplit_once('/')
            .map_or("", |(parent, _)| parent)
            .to_owned()
    };
    let mut places = Vec::new();
    if quoted {
        places.push(directory(from));
    }
    places.extend(SEARCHED.map(str::to_owned));
    places.push(directory(main));
    // Headers that the build generates mostly stand for the generic one.
    let generic = name
        .strip_prefix("asm/")
        .map(|rest| format!("include/asm-generic/{rest}"));
    places
        .into_iter()
        .map(|place| normal(&format!("{place}/{name}")).join("/"))
        .chain(generic)
        .find(|path| sources.file(path).is_some())
}

/// The conditions around a place in a file.
#[derive(Default)]
struct Conditions {
    /// For each: whether this part is compiled, and whether one before it was.
    open: Vec<(bool, bool)>,
}

impl Conditions {
    fn active(&self) -> bool {
        self.open.iter().all(|&(active, _)| active)
    }

    /// Follows the directive if it is a condition, and says whether it is.
    fn step(&mut self, macros: &Macros, directive: &Directive) -> bool {
        match directive {
            Directive::If(condition) => {
                let holds = self.active() && macros.holds(condition);
                self.open.push((holds, holds));
            }
            Directive::ElseIf(condition) => {
                if let Some((_, taken)) = self.open.pop() {
                    let holds = !taken && self.active() && macros.holds(condition);
                    self.open.push((holds, taken || holds));
                }
            }
            Directive::Else => {
                if let Some((_, taken)) = self.open.pop() {
                    self.open.push((!taken, true));
                }
            }
            Directive::EndIf => {
                self.open.pop();
            }
            _ => return false,
        }
        true
    }
}

/// An `#if` expression that is being evaluated: numbers and operators.
struct Evaluation<'t>(Cursor<'t>);

impl Evaluation<'_> {
    fn conditional(&mut self) -> i64 {
        let condition = self.binary(0);
        if !self.0.eat("?") {
            return condition;
        }
        let yes = self.conditional();
        self.0.eat(":");
        let no = self.conditional();
        if condition != 0 { yes } else { no }
    }

    fn binary(&mut self, level: usize) -> i64 {
        if level == LEVELS {
            return self.unary();
        }
        let mut left = self.binary(level + 1);
        while let Some(operator) = self.0.operator(level) {
            let right = self.binary(level + 1);
            left = apply(operator, left, right);
        }
        left
    }

    fn unary(&mut self) -> i64 {
        if self.0.eat("!") {
            return i64::from(self.unary() == 0);
        }
        if self.0.eat("-") {
            return self.unary().wrapping_neg();
        }
        if self.0.eat("+") {
            return self.unary();
        }
        if self.0.eat("~") {
            return !self.unary();
        }
        if self.0.eat("(") {
            let value = self.conditional();
            self.0.eat(")");
            return value;
        }
        let found = self.0.take().filter(|token| token.kind == Kind::Number);
        found.map_or(0, |token| number(&token.text))
    }
}

fn truth(like: &Token, value: bool) -> Token {
    Token {
        kind: Kind::Number,
        text: Rc::from(if value { "1" } else { "0" }),
        ..like.clone()
    }
}

fn number(text: &str) -> i64 {
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let parsed = match digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        Some(hexadecimal) => i64::from_str_radix(hexadecimal, 16),
        None if digits.len() > 1 && digits.starts_with('0') => i64::from_str_radix(digits, 8),
        None => digits.parse(),
    };
    parsed.unwrap_or(0)
}

fn apply(operator: &str, left: i64, right: i64) -> i64 {
    match operator {
        "||" => i64::from(left != 0 || right != 0),
        "&&" => i64::from(left != 0 && right != 0),
        "|" => left | right,
        "^" => left ^ right,
        "&" => left & right,
        "==" => i64::from(left == right),
        "!=" => i64::from(left != right),
        "<" => i64::from(left < right),
        ">" => i64::from(left > right),
        "<=" => i64::from(left <= right),
        ">=" => i64::from(left >= right),
        "<<" => left.wrapping_shl(right as u32),
        ">>" => left.wrapping_shr(right as u32),
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        "/" => left.checked_div(right).unwrap_or(0),
        _ => left.checked_rem(right).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Macros;
    use crate::source::Sources;

    fn body(macros: &Macros, name: &str) -> String {
        let body = macros
            .get(name)
            .map(|found| found.body().to_vec())
            .unwrap_or_default();
        body.iter().map(|token| &*token.text).collect()
    }

    #[test]
    fn conditions_choose_the_definition_that_the_kernel_was_built_with() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("include/linux")).unwrap();
        fs::create_dir_all(root.path().join("fs")).unwrap();
        let header = "#ifndef H\n#define H\n#if IS_ENABLED(CONFIG_A) && !defined(CONFIG_B)\n\
                      #define take(x) \\\n  first(x)\n#elif 1\n#define take(x) second(x)\n#endif\n\
                      #ifdef CONFIG_B\n#define size 1\n#else\n#define size (2 + 3)\n#endif\n\
                      #if size == 5 && 0x10 > 15\n#define big\n#endif\n#endif\n";
        fs::write(root.path().join("include/linux/h.h"), header).unwrap();
        fs::write(
            root.path().join("fs/l.h"),
            "#define local 1\n#undef local\n",
        )
        .unwrap();
        let main = "#include <linux/h.h>\n#include <linux/h.h>\n#include \"l.h\"\n";
        fs::write(root.path().join("fs/m.c"), main).unwrap();

        let sources = Sources::with_config(root.path(), "CONFIG_A=m\n# CONFIG_B is not set\n");
        let macros = Macros::of_unit(&sources, "fs/m.c", false);
        assert_eq!(body(&macros, "take"), "first(x)");
        assert!(macros.get("big").is_some());
        assert!(
            macros.get("local").is_some(),
            "a macro that was undefined later is still known"
        );

        let sources = Sources::with_config(root.path(), "CONFIG_A=m\nCONFIG_B=y\n");
        let macros = Macros::of_unit(&sources, "fs/m.c", false);
        assert_eq!(body(&macros, "take"), "second(x)");
        assert!(macros.get("big").is_none());
        let header = sources.file("include/linux/h.h").unwrap();
        let compiled: Vec<u32> = (1..=17)
            .filter(|&line| macros.compiles(&header, line))
            .collect();
        assert_eq!(compiled, [1, 2, 3, 7, 8, 9, 10, 11, 14, 17]);
    }
}
