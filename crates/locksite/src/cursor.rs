//! A place in a list of tokens that moves forward. The readers of expressions and of conditions
//! share it.

use std::rc::Rc;

use crate::lex::{self, Token};

/// Operators of two operands, from those that bind least (C11 §6.5.5 to §6.5.14).
const OPERATORS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", ">", "<=", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// The number of levels of operators: operands come after the last one.
pub(crate) const LEVELS: usize = OPERATORS.len();

/// A place in a list of tokens.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'t> {
    tokens: &'t [Token],
    at: usize,
}

impl<'t> Cursor<'t> {
    /// At the first token.
    pub(crate) fn new(tokens: &'t [Token]) -> Self {
        Self { tokens, at: 0 }
    }

    /// The tokens that are left.
    pub(crate) fn rest(&self) -> &'t [Token] {
        self.tokens.get(self.at..).unwrap_or_default()
    }

    /// The next token, which stays the next one.
    pub(crate) fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.at)
    }

    /// Whether the next token is this one.
    pub(crate) fn sees(&self, text: &str) -> bool {
        self.peek().is_some_and(|token| token.is(text))
    }

    /// Skips the next token if it is this one.
    pub(crate) fn eat(&mut self, text: &str) -> bool {
        let found = self.sees(text);
        self.at += usize::from(found);
        found
    }

    /// Skips this many tokens.
    pub(crate) fn skip(&mut self, tokens: usize) {
        self.at += tokens;
    }

    /// Takes the next token, if there is one.
    pub(crate) fn take(&mut self) -> Option<&'t Token> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    /// Takes the next token if it is a word.
    pub(crate) fn word(&mut self) -> Option<Rc<str>> {
        let token = self.peek().filter(|token| token.is_word())?;
        self.at += 1;
        Some(Rc::clone(&token.text))
    }

    /// Takes an operator of this level, if one is next.
    pub(crate) fn operator(&mut self, level: usize) -> Option<&'static str> {
        let operators = OPERATORS.get(level)?;
        operators
            .iter()
            .copied()
            .find(|operator| self.eat(operator))
    }

    /// Skips the bracket that is next and the one that closes it, and returns the tokens between
    /// them. None if no token is left.
    pub(crate) fn bracketed(&mut self) -> Option<&'t [Token]> {
        let end = lex::after_closing(self.tokens, self.at);
        let inside = self.tokens.get(self.at + 1..end.checked_sub(1)?)?;
        self.at = end;
        Some(inside)
    }
}

#[cfg(test)]
mod tests {
    use super::{Cursor, LEVELS};
    use crate::lex;

    #[test]
    fn what_is_not_next_is_not_gone_over() {
        let tokens = lex::tokens("a << b", 1);
        let mut cursor = Cursor::new(&tokens);
        assert_eq!(cursor.word().as_deref(), Some("a"));
        assert!(!cursor.eat("<") && cursor.word().is_none());
        let found: Vec<_> = (0..LEVELS)
            .filter_map(|level| cursor.operator(level))
            .collect();
        assert_eq!(found, ["<<"]);
        assert_eq!(cursor.rest().len(), 1);
    }

    #[test]
    fn brackets_are_gone_over_with_all_that_is_in_them() {
        let tokens = lex::tokens("((a, b)[1]) c", 1);
        let mut cursor = Cursor::new(&tokens);
        assert_eq!(cursor.bracketed().map(<[_]>::len), Some(8));
        assert!(cursor.sees("c"));
    }

    #[test]
    fn behind_the_end_is_nothing() {
        let mut cursor = Cursor::new(&[]);
        cursor.skip(3);
        assert!(cursor.peek().is_none() && cursor.take().is_none() && cursor.rest().is_empty());
        assert!(cursor.bracketed().is_none());
    }
}
