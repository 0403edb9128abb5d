//! C expressions, as far as they denote objects. Computations with numbers are kept, but not
//! interpreted.

use std::rc::Rc;

use crate::cursor::{Cursor, LEVELS};
use crate::lex::{self, Kind, Token};

/// A type that is named in an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TypeName {
    pub(crate) base: Base,
    pub(crate) pointers: u32,
}

/// The base of a type name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Base {
    /// `struct x` or `union x`.
    Tag(Rc<str>),
    /// A typedef, or a type that is part of C.
    Name(Rc<str>),
    /// `typeof(x)`.
    TypeOf(Box<Expr>),
    /// `typeof(struct x *)`.
    Same(Box<TypeName>),
}

/// A variable that a statement expression declares.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Let {
    pub(crate) name: Rc<str>,
    pub(crate) type_name: TypeName,
    pub(crate) value: Option<Expr>,
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    Name(Rc<str>),
    /// A number or a text.
    Constant,
    Call {
        function: Box<Expr>,
        arguments: Vec<Expr>,
    },
    Member {
        base: Box<Expr>,
        field: Rc<str>,
        arrow: bool,
    },
    Index {
        base: Box<Expr>,
        index: Box<Expr>,
    },
    AddressOf(Box<Expr>),
    Follow(Box<Expr>),
    /// Plus or minus, with a pointer or an array on the left, or numbers.
    Sum(Box<Expr>, Box<Expr>),
    /// Any other operation: a number.
    Number(Vec<Expr>),
    Conditional {
        condition: Box<Expr>,
        yes: Option<Box<Expr>>,
        no: Box<Expr>,
    },
    Assign {
        to: Box<Expr>,
        value: Box<Expr>,
    },
    Cast {
        to: TypeName,
        value: Box<Expr>,
    },
    Comma(Vec<Expr>),
    /// `({ … })`.
    Block {
        lets: Vec<Let>,
        last: Box<Expr>,
    },
    /// A type where an argument is expected.
    Type(TypeName),
}

impl Expr {
    /// The expression that all the tokens are, or that they begin with.
    pub(crate) fn parse(tokens: &[Token], is_type: &dyn Fn(&str) -> bool) -> Option<Self> {
        Parser::new(tokens, is_type).comma()
    }

    /// The expression that the tokens begin with, up to a comma.
    pub(crate) fn value(tokens: &[Token], is_type: &dyn Fn(&str) -> bool) -> Option<Self> {
        Parser::new(tokens, is_type).assignment()
    }

    /// Reads one argument of a call: an expression, or a type.
    pub(crate) fn of_argument(tokens: &[Token], is_type: &dyn Fn(&str) -> bool) -> Option<Self> {
        match type_name(tokens, is_type) {
            Some((found, [])) => Some(Self::Type(found)),
            _ => Self::value(tokens, is_type),
        }
    }
}

/// The deepest nesting of expressions in a kernel's text.
const MAX_DEPTH: u32 = 200;

/// Words that a type may begin with.
const TYPE_WORDS: [&str; 19] = [
    "struct",
    "union",
    "enum",
    "const",
    "volatile",
    "unsigned",
    "signed",
    "void",
    "char",
    "short",
    "int",
    "long",
    "float",
    "double",
    "_Bool",
    "bool",
    "typeof",
    "__typeof__",
    "__typeof",
];

/// Annotations of the kernel that mean nothing here.
const ANNOTATIONS: [&str; 9] = [
    "__user",
    "__rcu",
    "__iomem",
    "__percpu",
    "__force",
    "__bitwise",
    "__private",
    "__unused",
    "__maybe_unused",
];

/// Whether a declaration can begin with the token: reads the type and returns what follows it.
pub(crate) fn type_name<'t>(
    tokens: &'t [Token],
    is_type: &dyn Fn(&str) -> bool,
) -> Option<(TypeName, &'t [Token])> {
    let mut parser = Parser::new(tokens, is_type);
    let found = parser.type_name()?;
    Some((found, parser.cursor.rest()))
}

struct Parser<'t, 'f> {
    cursor: Cursor<'t>,
    is_type: &'f dyn Fn(&str) -> bool,
    depth: u32,
}

impl<'t, 'f> Parser<'t, 'f> {
    fn new(tokens: &'t [Token], is_type: &'f dyn Fn(&str) -> bool) -> Self {
        Self {
            cursor: Cursor::new(tokens),
            is_type,
            depth: 0,
        }
    }

    fn comma(&mut self) -> Option<Expr> {
        let mut parts = vec![self.assignment()?];
        while self.cursor.eat(",") {
            parts.push(self.assignment()?);
        }
        Some(if parts.len() == 1 {
            parts.remove(0)
        } else {
            Expr::Comma(parts)
        })
    }

    fn assignment(&mut self) -> Option<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let left = self.conditional()?;
        let compound = ["+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="];
        let whole = if self.cursor.eat("=") {
            Expr::Assign {
                to: Box::new(left),
                value: Box::new(self.assignment()?),
            }
        } else if compound.iter().any(|operator| self.cursor.eat(operator)) {
            Expr::Number(vec![left, self.assignment()?])
        } else {
            left
        };
        self.depth -= 1;
        Some(whole)
    }

    fn conditional(&mut self) -> Option<Expr> {
        let condition = self.binary(0)?;
        if !self.cursor.eat("?") {
            return Some(condition);
        }
        let yes = if self.cursor.sees(":") {
            None
        } else {
            Some(Box::new(self.comma()?))
        };
        if !self.cursor.eat(":") {
            return None;
        }
        let no = Box::new(self.assignment()?);
        Some(Expr::Conditional {
            condition: Box::new(condition),
            yes,
            no,
        })
    }

    fn binary(&mut self, level: usize) -> Option<Expr> {
        if level == LEVELS {
            return self.cast();
        }
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.cursor.operator(level) {
            let right = self.binary(level + 1)?;
            left = match operator {
                "+" | "-" => Expr::Sum(Box::new(left), Box::new(right)),
                _ => Expr::Number(vec![left, right]),
            };
        }
        Some(left)
    }

    fn cast(&mut self) -> Option<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let found = self.cast_or_unary();
        self.depth -= 1;
        found
    }

    fn cast_or_unary(&mut self) -> Option<Expr> {
        let start = self.cursor;
        if self.cursor.eat("(") && self.starts_type() {
            let found = self.type_name();
            if let Some(to) = found
                && self.cursor.eat(")")
            {
                if self.cursor.sees("{") {
                    // A compound literal: an object of its own.
                    self.cursor.bracketed()?;
                    let value = Box::new(Expr::Constant);
                    return self.postfix(Expr::Cast { to, value });
                }
                let value = self.cast()?;
                return Some(Expr::Cast {
                    to,
                    value: Box::new(value),
                });
            }
        }
        self.cursor = start;
        self.unary()
    }

    fn unary(&mut self) -> Option<Expr> {
        if self.cursor.eat("&") {
            return Some(Expr::AddressOf(Box::new(self.cast()?)));
        }
        if self.cursor.eat("*") {
            return Some(Expr::Follow(Box::new(self.cast()?)));
        }
        for operator in ["!", "~", "-", "+"] {
            if self.cursor.eat(operator) {
                return Some(Expr::Number(vec![self.cast()?]));
            }
        }
        if self.cursor.eat("++") || self.cursor.eat("--") {
            return self.cast();
        }
        if self.cursor.sees("sizeof")
            || self.cursor.sees("_Alignof")
            || self.cursor.sees("__alignof__")
        {
            self.cursor.skip(1);
            if self.cursor.sees("(") {
                self.cursor.bracketed()?;
            } else {
                self.unary()?;
            }
            return Some(Expr::Constant);
        }
        let first = self.primary()?;
        self.postfix(first)
    }

    fn primary(&mut self) -> Option<Expr> {
        let token = self.cursor.peek()?;
        match token.kind {
            Kind::Number | Kind::Text => {
                self.cursor.skip(1);
                while self
                    .cursor
                    .peek()
                    .is_some_and(|token| token.kind == Kind::Text)
                {
                    self.cursor.skip(1);
                }
                Some(Expr::Constant)
            }
            Kind::Word => {
                self.cursor.skip(1);
                if token.is("__extension__") {
                    return self.cast();
                }
                if token.is("_Generic") && self.cursor.sees("(") {
                    return self.generic();
                }
                Some(Expr::Name(Rc::clone(&token.text)))
            }
            Kind::Punctuation if token.is("(") => {
                self.cursor.skip(1);
                if self.cursor.sees("{") {
                    return self.block();
                }
                let inner = self.comma()?;
                self.cursor.eat(")").then_some(inner)
            }
            _ => None,
        }
    }

    /// `({ … })`, from the brace on.
    fn block(&mut self) -> Option<Expr> {
        let inside = self.cursor.bracketed()?;
        self.cursor.eat(")");
        let mut lets = Vec::new();
        let mut last = None;
        for statement in statements(inside) {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return None;
            }
            if let Some(declared) = declarations(statement, self.is_type) {
                lets.extend(declared);
            } else if let Some(expression) = Expr::parse(statement, self.is_type) {
                last = Some(expression);
            }
            self.depth -= 1;
        }
        Some(Expr::Block {
            lets,
            last: Box::new(last.unwrap_or(Expr::Constant)),
        })
    }

    fn postfix(&mut self, mut base: Expr) -> Option<Expr> {
        loop {
            if self.cursor.eat("(") {
                let mut arguments = Vec::new();
                while !self.cursor.eat(")") {
                    arguments.push(self.argument()?);
                    if !self.cursor.eat(",") && !self.cursor.sees(")") {
                        return None;
                    }
                }
                base = Expr::Call {
                    function: Box::new(base),
                    arguments,
                };
            } else if self.cursor.eat("[") {
                let index = Box::new(self.comma()?);
                if !self.cursor.eat("]") {
                    return None;
                }
                base = Expr::Index {
                    base: Box::new(base),
                    index,
                };
            } else if self.cursor.sees("->") || self.cursor.sees(".") {
                let arrow = self.cursor.sees("->");
                self.cursor.skip(1);
                base = Expr::Member {
                    base: Box::new(base),
                    field: self.cursor.word()?,
                    arrow,
                };
            } else if self.cursor.eat("++") || self.cursor.eat("--") {
            } else {
                return Some(base);
            }
        }
    }

    /// An argument; one that is not understood is a constant, so that the others still count.
    fn argument(&mut self) -> Option<Expr> {
        let start = self.cursor;
        if self.starts_type()
            && let Some(found) = self.type_name()
            && (self.cursor.sees(",") || self.cursor.sees(")"))
        {
            return Some(Expr::Type(found));
        }
        self.cursor = start;
        let depth = self.depth;
        if let Some(found) = self.assignment()
            && (self.cursor.sees(",") || self.cursor.sees(")"))
        {
            return Some(found);
        }
        self.depth = depth;
        let rest = start.rest();
        let length = lex::split(rest, ",").first()?.len();
        let closed = (0..length).find(|&at| rest[at].is(")") && unopened(&rest[..at]));
        let length = closed.unwrap_or(length);
        self.cursor = start;
        self.cursor.skip(length);
        (length > 0).then_some(Expr::Constant)
    }

    /// `_Generic(x, T: a, U: b)`, from the parenthesis on. Kernels choose by it between constant
    /// and other pointers to the same: what is said of the last is said of all.
    fn generic(&mut self) -> Option<Expr> {
        let inside = self.cursor.bracketed()?;
        let last = *lex::split(inside, ",").last()?;
        let colon = last.iter().position(|token| token.is(":"))?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut inner = Parser {
            cursor: Cursor::new(&last[colon + 1..]),
            ..*self
        };
        let found = inner.assignment();
        self.depth -= 1;
        found
    }

    fn starts_type(&self) -> bool {
        self.cursor.peek().is_some_and(|token| {
            token.is_word() && (TYPE_WORDS.contains(&&*token.text) || (self.is_type)(&token.text))
        })
    }

    fn type_name(&mut self) -> Option<TypeName> {
        let mut base = None;
        loop {
            let token = self.cursor.peek().filter(|token| token.is_word())?;
            match &*token.text {
                "struct" | "union" | "enum" => {
                    self.cursor.skip(1);
                    base = Some(Base::Tag(self.cursor.word()?));
                }
                "typeof" | "__typeof__" | "__typeof" => {
                    self.cursor.skip(1);
                    let inside = self.cursor.bracketed()?;
                    base = Some(match type_name(inside, self.is_type) {
                        Some((inner, [])) => Base::Same(Box::new(inner)),
                        _ => Base::TypeOf(Box::new(Expr::parse(inside, self.is_type)?)),
                    });
                }
                "const" | "volatile" | "register" | "static" => self.cursor.skip(1),
                word if ANNOTATIONS.contains(&word) => self.cursor.skip(1),
                word if TYPE_WORDS.contains(&word) => {
                    self.cursor.skip(1);
                    base = Some(Base::Name(Rc::clone(&token.text)));
                }
                word if base.is_none() && (self.is_type)(word) => {
                    self.cursor.skip(1);
                    base = Some(Base::Name(Rc::clone(&token.text)));
                }
                _ => break,
            }
            if !self.cursor.peek().is_some_and(Token::is_word) {
                break;
            }
        }
        let mut pointers = 0;
        while let Some(token) = self.cursor.peek() {
            match &*token.text {
                "*" => pointers += 1,
                "const" | "volatile" | "restrict" | "__restrict" => {}
                word if ANNOTATIONS.contains(&word) => {}
                _ => break,
            }
            self.cursor.skip(1);
        }
        Some(TypeName {
            base: base?,
            pointers,
        })
    }
}

/// No bracket is open at the end of the tokens.
fn unopened(tokens: &[Token]) -> bool {
    let count = |bracket: &str| tokens.iter().filter(|token| token.is(bracket)).count();
    count("(") == count(")")
}

/// The statements of a block, split at semicolons; braces do not nest into them.
fn statements(tokens: &[Token]) -> Vec<&[Token]> {
    let mut parts = lex::split(tokens, ";");
    parts.retain(|part| !part.is_empty());
    parts
}

/// The variables that a statement declares, if it is a declaration.
pub(crate) fn declarations(
    statement: &[Token],
    is_type: &dyn Fn(&str) -> bool,
) -> Option<Vec<Let>> {
    let (first, rest) = type_name(statement, is_type)?;
    if !rest.first().is_some_and(Token::is_word) {
        return None;
    }
    let mut lets = Vec::new();
    for (index, part) in lex::split(rest, ",").into_iter().enumerate() {
        let stars = part.iter().take_while(|token| token.is("*")).count();
        let name = part.get(stars).filter(|token| token.is_word())?;
        let value = match part.iter().position(|token| token.is("=")) {
            Some(equals) => Expr::parse(&part[equals + 1..], is_type),
            None => None,
        };
        // In `T *a, b` the star belongs to `a` alone.
        let own = if index == 0 { first.pointers } else { 0 };
        let type_name = TypeName {
            base: first.base.clone(),
            pointers: own + stars as u32,
        };
        lets.push(Let {
            name: Rc::clone(&name.text),
            type_name,
            value,
        });
    }
    Some(lets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;

    use super::{Base, Expr, declarations};
    use crate::lex;

    fn parse(text: &str) -> Option<Expr> {
        Expr::parse(&lex::tokens(text, 1), &|name| name.ends_with("_t"))
    }

    fn name(text: &str) -> Box<Expr> {
        Box::new(Expr::Name(text.into()))
    }

    #[test]
    fn member_access_binds_more_than_address_of() {
        let expected = Expr::AddressOf(Box::new(Expr::Member {
            base: Box::new(Expr::Member {
                base: name("inode"),
                field: "i_data".into(),
                arrow: true,
            }),
            field: "lock".into(),
            arrow: false,
        }));
        assert_eq!(parse("&inode->i_data.lock"), Some(expected));
    }

    #[test]
    fn casts_are_told_from_calls_by_the_types_that_there_are() {
        assert!(matches!(parse("(lock_t *)(x)"), Some(Expr::Cast { .. })));
        assert!(matches!(parse("(lock)(x)"), Some(Expr::Call { .. })));
        assert!(matches!(parse("(struct page *)x + 1"), Some(Expr::Sum(..))));
    }

    #[test]
    fn types_can_be_arguments() {
        let Some(Expr::Call { arguments, .. }) = parse("container_of(x, struct foo, bar.baz)")
        else {
            panic!("not a call")
        };
        assert!(
            matches!(&arguments[1], Expr::Type(found) if found.base == Base::Tag("foo".into()))
        );
        assert_eq!(arguments.len(), 3);
    }

    #[test]
    fn an_argument_that_is_not_understood_leaves_the_others() {
        let Some(Expr::Call { arguments, .. }) = parse("f(a b, &c, (1 2), d)") else {
            panic!("not a call")
        };
        assert_eq!(arguments.len(), 4);
        assert_eq!(arguments[1], Expr::AddressOf(name("c")));
        assert_eq!(arguments[3], *name("d"));
    }

    #[test]
    fn a_choice_by_type_is_what_it_chooses_last() {
        let choice = "f(_Generic((p), const struct page *: (const struct a *)p, struct page *: (struct a *)(p)))";
        let Some(Expr::Call { arguments, .. }) = parse(choice) else {
            panic!("not a call")
        };
        assert!(matches!(&arguments[0], Expr::Cast { to, .. } if to.pointers == 1));
    }

    #[test]
    fn a_block_has_the_value_of_its_last_statement() {
        let block = parse("({ struct foo *f = g(x); do { } while (0); &f->lock; })");
        let Some(Expr::Block { lets, last }) = block else {
            panic!("not a block")
        };
        assert_eq!((&*lets[0].name, lets[0].type_name.pointers), ("f", 1));
        assert!(matches!(*last, Expr::AddressOf(_)));
    }

    #[test]
    fn declarations_give_each_variable_its_own_stars() {
        let tokens = lex::tokens("struct foo *a = b, c, **d", 1);
        let lets = declarations(&tokens, &|_| false).unwrap();
        let found: Vec<(&str, u32)> = lets
            .iter()
            .map(|one| (&*one.name, one.type_name.pointers))
            .collect();
        assert_eq!(found, [("a", 1), ("c", 0), ("d", 2)]);
        assert_eq!(declarations(&lex::tokens("a = b", 1), &|_| false), None);
    }

    proptest! {
        #[test]
        fn no_tokens_are_too_strange(text in "[a-z(){}\\[\\]*&.,;?:=<>+ -]{0,200}") {
            parse(&text);
        }

        #[test]
        fn deep_nesting_is_refused(depth in 0_usize..5000) {
            parse(&"(".repeat(depth));
            parse(&"*".repeat(depth));
            parse(&"!".repeat(depth));
        }
    }
}
