//! The text of one function, as the compiler saw it: macros expanded, conditions decided.

use std::rc::Rc;

use crate::expand::expand;
use crate::expr::{self, Expr, Let};
use crate::lex::{self, Token};
use crate::preprocess::Macros;
use crate::source::SourceFile;

/// A number of lines that most functions stay below, and one that all stay below.
const LINES: [u32; 2] = [250, 4000];

/// A function's parameters and statements.
pub(crate) struct Body {
    tokens: Vec<Token>,
    /// Where the parameter list and the statements are.
    params: std::ops::Range<usize>,
    statements: std::ops::Range<usize>,
}

/// A call in a body.
#[derive(Clone, Copy)]
pub(crate) struct Call<'b> {
    pub(crate) name: &'b Rc<str>,
    pub(crate) line: u32,
    /// Index of the name.
    at: usize,
}

impl Body {
    /// The function of that name that is defined at a line of a file, by itself or by a macro.
    pub(crate) fn find(macros: &Macros, file: &SourceFile, line: u32, name: &str) -> Option<Self> {
        LINES.into_iter().find_map(|limit| {
            let raw = macros.lines(file, line, limit);
            if let Some(found) = definition(&raw, name)
                && raw[found.start].line <= line + 3
            {
                return Self::new(expand(macros, raw[found].to_vec()));
            }
            // The line has a macro that makes the function, or all of it except the body.
            let end = raw.iter().position(|token| token.is("(")).unwrap_or(0);
            let end = lex::after_closing(&raw, end);
            let (head, rest) = raw.split_at(end);
            let mut tokens = expand(macros, head.to_vec());
            tokens.extend_from_slice(rest);
            let found = definition(&tokens, name)?;
            Self::new(expand(macros, tokens[found].to_vec()))
        })
    }

    /// From the function's name to the closing brace.
    fn new(tokens: Vec<Token>) -> Option<Self> {
        let open = tokens.iter().position(|token| token.is("("))?;
        let close = lex::after_closing(&tokens, open);
        let brace = close + tokens[close..].iter().position(|token| token.is("{"))?;
        let end = lex::after_closing(&tokens, brace);
        Some(Self {
            params: open + 1..close - 1,
            statements: brace + 1..end - 1,
            tokens,
        })
    }

    /// The parameters that the text declares, in their order.
    pub(crate) fn params(&self, is_type: &dyn Fn(&str) -> bool) -> Vec<Let> {
        let parts = lex::split(&self.tokens[self.params.clone()], ",");
        let declared = parts
            .into_iter()
            .map(|part| expr::declarations(part, is_type));
        declared
            .map(|found| found.and_then(|mut lets| lets.pop()))
            .map_while(|one| one)
            .collect()
    }

    /// The variables that the text declares.
    pub(crate) fn variables(&self, is_type: &dyn Fn(&str) -> bool) -> Vec<Let> {
        let mut found = Vec::new();
        let tokens = &self.tokens[self.statements.clone()];
        for (index, token) in tokens.iter().enumerate() {
            let begins = index == 0
                || [";", "{", "}"].iter().any(|end| tokens[index - 1].is(end))
                || (index > 1 && tokens[index - 1].is("(") && tokens[index - 2].is("for"));
            if begins && token.is_word() {
                let end = tokens[index..].iter().position(|token| token.is(";"));
                let end = end.map_or(tokens.len(), |length| index + length);
                found.extend(expr::declarations(&tokens[index..end], is_type).unwrap_or_default());
            }
        }
        found
    }

    /// All calls, in the order of the text.
    pub(crate) fn calls(&self) -> impl Iterator<Item = Call<'_>> {
        self.statements.clone().filter_map(|at| {
            let token = &self.tokens[at];
            let called = token.is_word()
                && self.tokens.get(at + 1).is_some_and(|next| next.is("("))
                && !["if", "while", "for", "switch", "return", "sizeof", "typeof"]
                    .contains(&&*token.text);
            called.then_some(Call {
                name: &token.text,
                line: token.line,
                at,
            })
        })
    }

    /// The arguments of a call, as far as they can be understood.
    pub(crate) fn arguments(&self, call: Call<'_>, is_type: &dyn Fn(&str) -> bool) -> Vec<Expr> {
        let close = lex::after_closing(&self.tokens, call.at + 1);
        let inside = self
            .tokens
            .get(call.at + 2..close.saturating_sub(1))
            .unwrap_or_default();
        let parts = lex::split(inside, ",").into_iter();
        parts
            .map(|part| Expr::of_argument(part, is_type).unwrap_or(Expr::Constant))
            .collect()
    }

    /// The values that are assigned to a variable, each with its line.
    pub(crate) fn assigned(&self, name: &str, is_type: &dyn Fn(&str) -> bool) -> Vec<(u32, Expr)> {
        self.values_after(is_type, |at| {
            self.tokens[at].is(name) && !self.is_member(at) && !self.is_followed(at)
        })
    }

    /// The values that are assigned to any member of that name, or that such a member of a new
    /// object is made with.
    pub(crate) fn assigned_to_member(
        &self,
        field: &str,
        is_type: &dyn Fn(&str) -> bool,
    ) -> Vec<(u32, Expr)> {
        self.values_after(is_type, |at| {
            self.tokens[at].is(field) && self.is_member(at)
        })
    }

    /// The values that are stored where a pointer variable points to: `*name = value`.
    pub(crate) fn stored_through(
        &self,
        name: &str,
        is_type: &dyn Fn(&str) -> bool,
    ) -> Vec<(u32, Expr)> {
        self.values_after(is_type, |at| {
            self.tokens[at].is(name) && self.is_followed(at)
        })
    }

    fn values_after(
        &self,
        is_type: &dyn Fn(&str) -> bool,
        wanted: impl Fn(usize) -> bool,
    ) -> Vec<(u32, Expr)> {
        let mut found = Vec::new();
        for at in self.statements.clone() {
            let token = &self.tokens[at];
            let assigned = self.tokens.get(at + 1).is_some_and(|next| next.is("="));
            if assigned
                && wanted(at)
                && let Some(value) = Expr::value(&self.tokens[at + 2..self.statements.end], is_type)
            {
                found.push((token.line, value));
            }
        }
        found
    }

    /// The token at an index is the name of a member.
    fn is_member(&self, at: usize) -> bool {
        self.tokens[at - 1].is("->") || self.tokens[at - 1].is(".")
    }

    /// The token at an index is followed as a pointer by a statement that begins there, and not
    /// declared as one.
    fn is_followed(&self, at: usize) -> bool {
        let before = |back: usize| at.checked_sub(back).map(|index| &self.tokens[index]);
        before(1).is_some_and(|token| token.is("*"))
            && before(2).is_some_and(|token| [";", "{", "}", ")"].iter().any(|b| token.is(b)))
    }

    /// The calls that get the address of a variable, each with the argument's number.
    pub(crate) fn given_address_of(&self, name: &str) -> Vec<(Call<'_>, usize)> {
        let passed = |at: usize| {
            let is = |index: usize, text: &str| {
                self.tokens.get(index).is_some_and(|token| token.is(text))
            };
            self.tokens[at].is(name)
                && is(at - 1, "&")
                && (is(at - 2, "(") || is(at - 2, ","))
                && (is(at + 1, ")") || is(at + 1, ","))
        };
        let inside = self.statements.clone().filter(|&at| at >= 2 && passed(at));
        inside.filter_map(|at| self.call_around(at)).collect()
    }

    /// The innermost call that a token is in, and in which argument.
    fn call_around(&self, at: usize) -> Option<(Call<'_>, usize)> {
        let (mut depth, mut argument) = (0_usize, 0);
        for before in (self.statements.start..at).rev() {
            let token = &self.tokens[before];
            if token.is(")") {
                depth += 1;
            } else if token.is(",") && depth == 0 {
                argument += 1;
            } else if token.is("(") && depth > 0 {
                depth -= 1;
            } else if token.is("(") {
                let name = self.tokens.get(before.checked_sub(1)?)?;
                let call = Call {
                    name: &name.text,
                    line: name.line,
                    at: before - 1,
                };
                return name.is_word().then_some((call, argument));
            }
        }
        None
    }

    /// The values that the function returns.
    pub(crate) fn returned(&self, is_type: &dyn Fn(&str) -> bool) -> Vec<Expr> {
        let returns = self
            .statements
            .clone()
            .filter(|&at| self.tokens[at].is("return"));
        returns
            .filter_map(|at| Expr::value(&self.tokens[at + 1..self.statements.end], is_type))
            .collect()
    }
}

/// Where in the tokens the definition of a function is, from its name on.
fn definition(tokens: &[Token], name: &str) -> Option<std::ops::Range<usize>> {
    (0..tokens.len()).find_map(|at| {
        if !tokens[at].is(name) || !tokens.get(at + 1)?.is("(") {
            return None;
        }
        let mut next = lex::after_closing(tokens, at + 1);
        // Attributes and annotations may come before the body.
        while tokens.get(next).is_some_and(Token::is_word) {
            next += 1;
            if tokens.get(next).is_some_and(|token| token.is("(")) {
                next = lex::after_closing(tokens, next);
            }
        }
        if !tokens.get(next)?.is("{") {
            return None;
        }
        let end = lex::after_closing(tokens, next);
        tokens[end - 1].is("}").then_some(at..end)
    })
}
