//! A table of a lease file that is stated as JSON, as the TOML that says the same.
//!
//! Keys go over one by one, so what TOML refuses is refused here, too. A key that is there twice is named.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt::{self, Write as _};

/// The keys of an object and their values, as TOML writes them.
struct Pairs(Vec<(String, String)>);

/// A value as TOML writes it in a line.
struct Inline(String);

/// Returns the TOML of the table of the tenant with this name.
///
/// # Errors
/// What is no JSON, no object, or has a null in it, which TOML lacks, or a key twice.
pub(super) fn toml_of(name: &str, body: &str) -> serde_json::Result<String> {
    let Pairs(pairs) = serde_json::from_str(body)?;
    let mut text = format!("[tenant.{name}]\n");
    for (key, value) in pairs {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{key} = {value}");
    }
    Ok(text)
}

/// Returns a string as TOML and JSON write it. TOML also forbids the delete character as it is, which JSON does not escape.
fn quoted(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.replace('\u{7f}', "\\u007f")
}

fn pairs<'de, A: MapAccess<'de>>(mut map: A) -> Result<Vec<(String, String)>, A::Error> {
    let (mut pairs, mut keys) = (Vec::new(), HashSet::new());
    while let Some(key) = map.next_key::<String>()? {
        let key = quoted(&key);
        if !keys.insert(key.clone()) {
            return Err(A::Error::custom(format!(
                "found the key {key} twice in an object of the JSON"
            )));
        }
        let Inline(value) = map.next_value()?;
        pairs.push((key, value));
    }
    Ok(pairs)
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Pairs, A::Error> {
                pairs(map).map(Pairs)
            }
        }
        from.deserialize_map(Object)
    }
}

impl<'de> Deserialize<'de> for Inline {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Value;
        impl<'de> Visitor<'de> for Value {
            type Value = Inline;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value that is not null")
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Inline, E> {
                Ok(Inline(value.to_string()))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Inline, E> {
                Ok(Inline(value.to_string()))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Inline, E> {
                Ok(Inline(value.to_string()))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Inline, E> {
                Ok(Inline(serde_json::Value::from(value).to_string()))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Inline, E> {
                Ok(Inline(quoted(value)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Inline, A::Error> {
                let mut values = Vec::new();
                while let Some(Inline(value)) = seq.next_element()? {
                    values.push(value);
                }
                Ok(Inline(format!("[{}]", values.join(", "))))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Inline, A::Error> {
                let pairs = pairs(map)?;
                let pairs: Vec<_> = pairs
                    .iter()
                    .map(|(key, value)| format!("{key} = {value}"))
                    .collect();
                Ok(Inline(format!("{{ {} }}", pairs.join(", "))))
            }
        }
        from.deserialize_any(Value)
    }
}

#[cfg(test)]
mod tests {
    use super::toml_of;
    use leasehold_lease::LeaseFile;
    use std::path::Path;

    fn parse(json: &str) -> Result<LeaseFile, String> {
        let text = toml_of("a", json).map_err(|error| error.to_string())?;
        let file = LeaseFile::parse(&text, Path::new("x/lease.toml"));
        file.map_err(|error| error.to_string())
    }

    #[test]
    fn a_table_as_json_is_the_same_lease_as_toml() {
        let json = r#"{"component": "a\"b.wasm", "reclaim": {"budget": "5ms"}, "args": ["1", "ü"],
            "cpu": {"budget": "1ms", "period": "10ms", "priority": 3}}"#;
        let file = parse(json).expect("a lease file");
        let tenant = &file.tenants[0];
        assert_eq!(tenant.component, Path::new("x/a\"b.wasm"));
        assert_eq!(
            (tenant.args.len(), tenant.lease.reclaim.budget.get()),
            (2, 5_000_000)
        );
    }

    /// All characters, in strings of at most so many.
    fn all_characters(most: usize) -> Vec<String> {
        let all: Vec<char> = ('\0'..=char::MAX).collect();
        all.chunks(most).map(String::from_iter).collect()
    }

    #[test]
    fn every_string_and_key_as_json_is_the_same_in_the_lease() {
        // With those that have a form of their own in JSON or TOML beside one another, too.
        let mixed = "\u{7f}\\u007f\u{7f}\"\\\u{7f}\0\u{8}\t\n\u{c}\r\u{1f}\u{80}\u{2028}\u{feff}"
            .to_owned();
        for text in all_characters(4096).into_iter().chain([mixed]) {
            let json = serde_json::json!({
                "component": "a.wasm", "reclaim": { "budget": "5ms" }, "config": { text.as_str(): text }
            });
            let file = parse(&json.to_string()).expect("a lease file");
            assert_eq!(file.tenants[0].config, [(text.clone(), text)]);
        }
    }

    #[test]
    fn every_argument_as_json_is_taken_but_one_with_nul_which_the_lease_refuses() {
        let json = |text: &str| {
            let json = serde_json::json!({
                "component": "a.wasm", "reclaim": { "budget": "5ms" }, "args": [text]
            });
            json.to_string()
        };
        for text in all_characters(4096) {
            let text = text.trim_start_matches('\0');
            let file = parse(&json(text)).expect("a lease file");
            assert_eq!(file.tenants[0].args, [text]);
        }
        let error = parse(&json("a\0b")).expect_err("NUL");
        assert!(error.contains("tenant.a.args"), "{error}");
    }

    #[test]
    fn what_a_lease_file_refuses_is_refused_as_json() {
        for (json, says) in [
            ("[]", "expected an object"),
            (r#"{"component": null}"#, "null"),
            (
                r#"{"component": "a.wasm", "component": "b.wasm"}"#,
                "found the key \"component\" twice in an object of the JSON",
            ),
            (
                r#"{"component": "a.wasm", "cpu": {"budget": "1ms", "budget": "2ms", "period": "9ms"}}"#,
                "found the key \"budget\" twice",
            ),
            (
                r#"{"component": "a.wasm", "files": {"open": 1e300}}"#,
                "files.open",
            ),
        ] {
            let error = parse(json).expect_err(json);
            assert!(error.contains(says), "{json}: {error}");
            assert!(!error.contains("no TOML"), "{json}: {error}");
        }
    }
}
