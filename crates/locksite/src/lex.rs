//! C text as tokens, each with the line that it is on.

use std::rc::Rc;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or a keyword.
    Word,
    Number,
    /// A string or a character constant.
    Text,
    Punctuation,
    /// Not of the source: a macro's expansion ends here, and its name may be expanded again.
    EndOfMacro,
}

/// A token of C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) text: Rc<str>,
    /// The line of the file; of what a macro stands for, the line of its use.
    pub(crate) line: u32,
    /// White space comes before it, which decides whether `#define f (x)` has parameters.
    pub(crate) spaced: bool,
}

impl Token {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.kind != Kind::Text && &*self.text == text
    }

    pub(crate) fn is_word(&self) -> bool {
        self.kind == Kind::Word
    }
}

/// Punctuation of more than one character, longest first.
const LONG: [&str; 24] = [
    "<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=",
    "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##", "::",
];

/// The text with comments made blank, so that every line keeps its number.
pub(crate) fn without_comments(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let rest = &text[at + 2..];
                let end = rest
                    .find("*/")
                    .map_or(bytes.len(), |found| at + 2 + found + 2);
                // One blank at least, for a comment separates tokens.
                out.push(b' ');
                out.extend(bytes[at..end].iter().filter(|&&byte| byte == b'\n'));
                at = end;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
            }
            quote @ (b'"' | b'\'') => {
                let end = end_of_text(bytes, at, quote);
                out.extend_from_slice(&bytes[at..end]);
                at = end;
            }
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Where the string or character constant ends that begins at `at`: at its quote, or, if it has
/// none, at the end of the line (an apostrophe in an `#error`, for example).
fn end_of_text(bytes: &[u8], at: usize, quote: u8) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != quote {
        match bytes[end] {
            b'\n' => return end,
            b'\\' => end += 2,
            _ => end += 1,
        }
    }
    (end + 1).min(bytes.len())
}

/// The tokens of text without comments, whose first line is `line`.
pub(crate) fn tokens(text: &str, mut line: u32) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut spaced = true;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte == b'\n' {
            line += 1;
        }
        if byte.is_ascii_whitespace() || (byte == b'\\' && at_line_end(bytes, at + 1)) {
            spaced = true;
            at += 1;
            continue;
        }
        let (kind, end) = token_at(text, at);
        let text = Rc::from(&text[at..end]);
        out.push(Token {
            kind,
            text,
            line,
            spaced,
        });
        spaced = false;
        at = end;
    }
    out
}

fn at_line_end(bytes: &[u8], at: usize) -> bool {
    matches!(bytes.get(at), None | Some(b'\n' | b'\r'))
}

/// The token that begins at `at`, and where it ends: always beyond `at`, at a character boundary.
fn token_at(text: &str, at: usize) -> (Kind, usize) {
    let bytes = text.as_bytes();
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$';
    match bytes[at] {
        b'"' | b'\'' => {
            let mut end = end_of_text(bytes, at, bytes[at]);
            while !text.is_char_boundary(end) {
                end += 1;
            }
            (Kind::Text, end)
        }
        b'0'..=b'9' => {
            let end = bytes[at..]
                .iter()
                .position(|&byte| !word(byte) && byte != b'.');
            (Kind::Number, end.map_or(bytes.len(), |length| at + length))
        }
        byte if word(byte) => {
            let end = bytes[at..].iter().position(|&byte| !word(byte));
            (Kind::Word, end.map_or(bytes.len(), |length| at + length))
        }
        _ => {
            let long = LONG.iter().find(|long| text[at..].starts_with(**long));
            let length = long.map_or_else(
                || text[at..].chars().next().map_or(1, char::len_utf8),
                |long| long.len(),
            );
            (Kind::Punctuation, at + length)
        }
    }
}

/// The index after the bracket that closes the one at `open`, or the end of the tokens.
pub(crate) fn after_closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        if token.kind != Kind::Punctuation {
            continue;
        }
        match &*token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

/// Splits at the `separator` where it is in no bracket. No tokens make no parts.
pub(crate) fn split<'t>(tokens: &'t [Token], separator: &str) -> Vec<&'t [Token]> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0_usize);
    for (index, token) in tokens.iter().enumerate() {
        if token.kind != Kind::Punctuation {
            continue;
        }
        match &*token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            found if found == separator && depth == 0 => {
                parts.push(&tokens[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    if !tokens.is_empty() {
        parts.push(&tokens[start..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{split, tokens, without_comments};

    fn texts(source: &str) -> Vec<String> {
        tokens(&without_comments(source), 1)
            .iter()
            .map(|token| token.text.to_string())
            .collect()
    }

    #[test]
    fn comments_separate_tokens_and_keep_line_numbers() {
        let all = tokens(&without_comments("a/* x\n\n */b // c\nd '/*' e"), 1);
        let lines: Vec<(&str, u32)> = all.iter().map(|token| (&*token.text, token.line)).collect();
        assert_eq!(lines, [("a", 1), ("b", 3), ("d", 4), ("'/*'", 4), ("e", 4)]);
    }

    #[test]
    fn the_longest_punctuation_is_taken() {
        assert_eq!(
            texts("a->b<<=c...d##e&&f"),
            ["a", "->", "b", "<<=", "c", "...", "d", "##", "e", "&&", "f"]
        );
    }

    #[test]
    fn commas_in_brackets_split_nothing() {
        let all = tokens("f(a, b), c[1, 2], {d, e}", 1);
        assert_eq!(split(&all, ",").len(), 3);
        assert!(split(&[], ",").is_empty());
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in any::<String>()) {
            let clean = without_comments(&text);
            tokens(&clean, 1);
        }
    }
}
