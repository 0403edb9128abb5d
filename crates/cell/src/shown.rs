//! Text that a guest, or a client of one, may have chosen, where a terminal shows it.

use std::fmt::Write;

/// Whether a terminal would obey this character instead of showing it: control characters of one byte
/// and of ISO 8859, ends of lines and paragraphs, and marks that change the direction of text.
pub fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'
                | '\u{2029}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// Returns the text with escapes in place of all characters that a terminal would obey.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match is_obeyed(character) {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

/// Returns JSON with escapes in place of all characters that a terminal would obey. It means the same:
/// these characters are in strings only, if the JSON is in one line.
pub fn escaped_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        match is_obeyed(character) {
            // All of them have four digits at the most. Writing to a string cannot fail.
            true => drop(write!(shown, "\\u{:04x}", u32::from(character))),
            false => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::{escaped, escaped_json, is_obeyed};
    use proptest::prelude::*;

    /// What terminals obey, by the code charts, and all other characters.
    fn character() -> impl Strategy<Value = char> {
        prop_oneof![
            any::<char>(),
            proptest::char::range('\0', '\u{9f}'),
            proptest::char::range('\u{2000}', '\u{206f}'),
        ]
    }

    fn text() -> impl Strategy<Value = String> {
        prop::collection::vec(character(), 0..40).prop_map(|all| all.into_iter().collect())
    }

    proptest! {
        #[test]
        fn no_text_has_a_character_that_a_terminal_obeys(text in text()) {
            let shown = escaped(&text);
            prop_assert!(!shown.chars().any(is_obeyed));
            // The rest is as it was, in its order.
            let kept: String = text.chars().filter(|c| !is_obeyed(*c)).collect();
            let mut rest = shown.chars();
            prop_assert!(kept.chars().all(|c| rest.any(|shown| shown == c)));
        }

        #[test]
        fn json_has_none_either_and_means_the_same(text in text()) {
            let json = serde_json::Value::from(&*text).to_string();
            let shown = escaped_json(&json);
            prop_assert!(!shown.chars().any(is_obeyed));
            let read: String = serde_json::from_str(&shown).expect("JSON");
            prop_assert_eq!(read, text);
        }
    }

    #[test]
    fn the_characters_are_those_of_the_standards() {
        let obeyed = "\0\t\n\r\x1b\x7f\u{80}\u{85}\u{9b}\u{9f}\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}";
        assert!(obeyed.chars().all(is_obeyed));
        // A joiner, which words and families are written with, is none.
        assert!(
            !"größer 漢字 \u{a0}\u{200d}\u{2027}\u{202f}\u{2065}\u{206a}"
                .chars()
                .any(is_obeyed)
        );
        assert_eq!(escaped("a\u{202e}b"), "a\\u{202e}b");
    }
}
