//! Macro expansion, as the compiler does it. Every token of an expansion is on the line where the
//! macro was used, as in the debug information that compilers write.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::intrinsic;
use crate::lex::{self, Kind, Token};
use crate::preprocess::Macros;
use crate::source::Macro;

/// No function of a kernel has more tokens.
const MAX_TOKENS: usize = 400_000;

/// The tokens with all macros expanded but those that are understood as they are
/// ([`intrinsic`]).
pub(crate) fn expand(macros: &Macros, tokens: Vec<Token>) -> Vec<Token> {
    let mut expansion = Expansion {
        macros,
        active: Vec::new(),
        budget: MAX_TOKENS,
    };
    expansion.run(tokens)
}

struct Expansion<'m> {
    macros: &'m Macros,
    /// Names that are being expanded, which stand for themselves inside.
    active: Vec<Rc<str>>,
    /// How many tokens may still be made.
    budget: usize,
}

impl Expansion<'_> {
    fn run(&mut self, tokens: Vec<Token>) -> Vec<Token> {
        let mut input = VecDeque::from(tokens);
        let mut out = Vec::new();
        while let Some(token) = input.pop_front() {
            if token.kind == Kind::EndOfMacro {
                self.active.retain(|name| *name != token.text);
                continue;
            }
            match self.replacement(&token, &mut input) {
                Some(tokens) => {
                    for token in tokens.into_iter().rev() {
                        input.push_front(token);
                    }
                }
                None => out.push(token),
            }
        }
        out
    }

    /// The replacement of the token if it is the use of a macro; its arguments are then taken from
    /// the input.
    fn replacement(&mut self, token: &Token, input: &mut VecDeque<Token>) -> Option<Vec<Token>> {
        if !token.is_word() || intrinsic::known(&token.text) || self.active.contains(&token.text) {
            return None;
        }
        let found = Rc::clone(self.macros.get(&token.text)?);
        let mut tokens = match &found.params {
            None => found.body().to_vec(),
            Some(params) => {
                let arguments = self.arguments(input)?;
                self.substitute(&found, params, &arguments)
            }
        };
        self.budget = self.budget.checked_sub(tokens.len() + 1)?;
        for made in &mut tokens {
            made.line = token.line;
        }
        if let Some(first) = tokens.first_mut() {
            first.spaced = token.spaced;
        }
        self.active.push(Rc::clone(&token.text));
        tokens.push(Token {
            kind: Kind::EndOfMacro,
            ..token.clone()
        });
        Some(tokens)
    }

    /// Takes the arguments of a use off the input. `None` if there are none: then it is no use.
    fn arguments(&mut self, input: &mut VecDeque<Token>) -> Option<Vec<Vec<Token>>> {
        let open = input
            .iter()
            .position(|token| token.kind != Kind::EndOfMacro)?;
        if !input[open].is("(") {
            return None;
        }
        for ended in input.drain(..open) {
            self.active.retain(|name| *name != ended.text);
        }
        let mut list = Vec::new();
        let mut depth = 0_usize;
        while let Some(token) = input.pop_front() {
            if token.is("(") {
                depth += 1;
            } else if token.is(")") {
                depth -= 1;
                if depth == 0 {
                    break;
                }
            }
            list.push(token);
        }
        list.remove(0);
        Some(
            lex::split(&list, ",")
                .into_iter()
                .map(<[Token]>::to_vec)
                .collect(),
        )
    }

    /// The body with the arguments in place of the parameters.
    fn substitute(
        &mut self,
        found: &Macro,
        params: &[Rc<str>],
        arguments: &[Vec<Token>],
    ) -> Vec<Token> {
        let argument = |name: &str| -> Option<Vec<Token>> {
            let index = params.iter().position(|param| **param == *name)?;
            if !(found.variadic && index + 1 == params.len()) {
                return Some(arguments.get(index).cloned().unwrap_or_default());
            }
            let rest = arguments.get(index..).unwrap_or_default();
            Some(joined(rest))
        };
        let body = found.body();
        let mut out: Vec<Token> = Vec::new();
        let mut at = 0;
        while at < body.len() {
            let token = &body[at];
            at += 1;
            if token.is("##") {
                let Some(right) = body.get(at) else { break };
                at += 1;
                let right = argument(&right.text).unwrap_or_else(|| vec![right.clone()]);
                paste(&mut out, right);
                continue;
            }
            if token.is("#")
                && let Some(named) = body.get(at).and_then(|name| argument(&name.text))
            {
                at += 1;
                out.push(in_quotes(token, &named));
                continue;
            }
            match argument(&token.text).filter(|_| token.is_word()) {
                Some(plain) if body.get(at).is_some_and(|next| next.is("##")) => {
                    // Pasting nothing to a token leaves the token: `EndOfMacro` with no name.
                    if plain.is_empty() {
                        out.push(Token {
                            kind: Kind::EndOfMacro,
                            text: Rc::from(""),
                            ..token.clone()
                        });
                    }
                    out.extend(plain);
                }
                Some(plain) => out.extend(self.argument(plain)),
                None => out.push(token.clone()),
            }
        }
        out
    }

    /// An argument, expanded by itself.
    fn argument(&mut self, tokens: Vec<Token>) -> Vec<Token> {
        let active = self.active.clone();
        let expanded = self.run(tokens);
        self.active = active;
        expanded
    }
}

fn joined(parts: &[Vec<Token>]) -> Vec<Token> {
    let mut out: Vec<Token> = Vec::new();
    for part in parts {
        if let Some(like) = out.last().cloned() {
            out.push(Token {
                kind: Kind::Punctuation,
                text: Rc::from(","),
                ..like
            });
        }
        out.extend(part.iter().cloned());
    }
    out
}

/// `a ## b`. A comma before an empty variable part disappears, as GNU C has it.
fn paste(out: &mut Vec<Token>, right: Vec<Token>) {
    let mut right = right.into_iter();
    let Some(left) = out.pop() else {
        out.extend(right);
        return;
    };
    match right.next() {
        None if left.is(",") => {}
        None => out.push(left),
        Some(first) if left.is(",") => out.extend([left, first]),
        Some(first) => {
            let text = if left.kind == Kind::EndOfMacro {
                ""
            } else {
                &*left.text
            };
            let text = format!("{text}{}", first.text);
            let kind = if left.kind == Kind::EndOfMacro {
                first.kind
            } else {
                left.kind
            };
            out.push(Token {
                kind,
                text: Rc::from(text),
                ..left
            });
        }
    }
    out.extend(right);
}

fn in_quotes(like: &Token, tokens: &[Token]) -> Token {
    let mut text = String::from("\"");
    for token in tokens {
        text.push_str(&token.text);
    }
    text.push('"');
    Token {
        kind: Kind::Text,
        text: Rc::from(text),
        ..like.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::expand;
    use crate::lex;
    use crate::preprocess::Macros;
    use crate::source::Sources;

    /// `text` after `definitions`, expanded.
    fn expanded(definitions: &str, text: &str) -> String {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("m.c"), definitions).unwrap();
        let sources = Sources::with_config(root.path(), "");
        let macros = Macros::of_unit(&sources, "m.c", false);
        let tokens = expand(&macros, lex::tokens(text, 7));
        assert!(
            tokens.iter().all(|token| token.line == 7),
            "tokens are on the line of the use"
        );
        tokens
            .iter()
            .map(|token| &*token.text)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn macros_are_expanded_inside_of_each_other() {
        let definitions = "#define raw_lock(l) _raw_lock(l)\n\
            #define lock_irqsave(l, f) do { raw_lock(check(l), f); } while (0)\n\
            #define LOCK (&x->lock)\n";
        assert_eq!(
            expanded(definitions, "lock_irqsave(LOCK, flags);"),
            "do { _raw_lock ( check ( ( & x -> lock ) ) ) ; } while ( 0 ) ;"
        );
    }

    #[test]
    fn a_macro_is_not_expanded_inside_of_itself() {
        assert_eq!(
            expanded("#define lock(x) lock(x, 0)\n", "lock(lock(a))"),
            "lock ( lock ( a , 0 ) , 0 )"
        );
        assert_eq!(expanded("#define a b\n#define b a\n", "a b"), "a b");
    }

    #[test]
    fn names_can_be_pasted_and_then_used() {
        let definitions = "#define guard(n) CLASS(n, unique)\n\
            #define CLASS(n, v) class_##n##_t v = class_##n##_constructor\n";
        assert_eq!(
            expanded(definitions, "guard(mutex)(&x->lock);"),
            "class_mutex_t unique = class_mutex_constructor ( & x -> lock ) ;"
        );
    }

    #[test]
    fn variable_arguments_may_be_missing() {
        let definitions = "#define say(f, ...) print(#f, ##__VA_ARGS__)\n#define all(a...) f(a)\n";
        assert_eq!(
            expanded(definitions, "say(x) all(1, 2)"),
            "print ( \"x\" ) f ( 1 , 2 )"
        );
    }
}
