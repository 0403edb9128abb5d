//! The page that operators look at: one file without any request to elsewhere.
//!
//! `scripts/page` makes it of the sources in `page/`, together with the policy that lets a browser run
//! exactly that script and that style, and connect to nothing but the node itself. The page holds nothing
//! secret: what it shows it asks of the control interface, with the operator's token.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::response::{IntoResponse, Response};

const PAGE: &str = include_str!("../page/index.html");
const POLICY: &str = include_str!("../page/policy.txt");

const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_TYPE, "text/html; charset=utf-8"),
    (CONTENT_SECURITY_POLICY, POLICY),
    (CACHE_CONTROL, "no-store"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (X_FRAME_OPTIONS, "DENY"),
];

/// Returns the page, some 120 KiB, with the headers that bind a browser to it.
pub(crate) async fn page() -> Response {
    (HEADERS, PAGE).into_response()
}

#[cfg(test)]
mod tests {
    use super::{PAGE, POLICY};
    use base64::{Engine, prelude::BASE64_STANDARD};
    use sha2::{Digest, Sha256};

    /// Returns the text of the only element of a name.
    fn inline(tag: &str) -> &'static str {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let (_, rest) = PAGE.split_once(&open).expect("the element");
        let (text, rest) = rest.split_once(&close).expect("its end");
        assert!(!rest.contains(&open), "a second <{tag}>");
        text
    }

    #[test]
    fn the_policy_allows_the_script_and_the_style_of_the_page_and_nothing_else() {
        for (directive, tag) in [("script-src", "script"), ("style-src", "style")] {
            let hash = BASE64_STANDARD.encode(Sha256::digest(inline(tag)));
            let allowed = format!("{directive} 'sha256-{hash}'");
            assert!(POLICY.split("; ").any(|part| part == allowed), "{POLICY}");
        }
        let others: Vec<_> = POLICY
            .split("; ")
            .filter(|part| !part.contains("sha256-"))
            .collect();
        assert_eq!(
            others,
            [
                "default-src 'none'",
                "img-src data:",
                "connect-src 'self'",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
                "require-trusted-types-for 'script'",
                "trusted-types 'none'",
            ]
        );
    }

    #[test]
    fn the_page_names_no_address_elsewhere() {
        // The names of SVG's namespace are no addresses that a browser asks.
        let named = PAGE.replace("http://www.w3.org/", "");
        for scheme in ["http://", "https://", "//cdn", "ws://", "wss://"] {
            assert_eq!(named.find(scheme), None, "{scheme}");
        }
    }
}
