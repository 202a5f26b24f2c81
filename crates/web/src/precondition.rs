//! The condition of a change: `If-Match` (RFC 9110 §13.1.1).

use crate::answer::WebRefusal;
use hyper::{
    StatusCode,
    header::{HeaderMap, HeaderValue, IF_MATCH},
};

/// The versions of which a caller wants one to be in force when its change is made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum SeenVersions {
    /// Any: `*`.
    Any,
    /// One with one of these strong entity tags, each with its quotation marks.
    These(Vec<String>),
}

impl SeenVersions {
    /// Reads the field; `at` is where versions are.
    ///
    /// # Errors
    ///
    /// 428 without the field, and 400 if it is neither `*` nor a list of entity tags.
    pub(crate) fn read(headers: &HeaderMap, at: &str) -> Result<Self, WebRefusal> {
        let lines = headers.get_all(IF_MATCH).iter();
        // RFC 9110 §5.3: "combining the field values, in order, separated by commas".
        let lines: Vec<_> = lines.map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
        if lines.is_empty() {
            let why = format!("the field If-Match is missing: it has the ETag of {at}, or *");
            return Err(WebRefusal::new(StatusCode::PRECONDITION_REQUIRED, why));
        }
        let text = lines.join(",");
        if text.trim() == "*" {
            return Ok(Self::Any);
        }
        let tags = strong_tags(&text).ok_or_else(|| {
            WebRefusal::bad_request(format!(
                "If-Match is * or the ETag of {at} with its quotation marks: If-Match: \"0123abcd\"; \
                 several are separated by commas"
            ))
        })?;
        Ok(Self::These(tags))
    }

    /// Whether a change of the version with this entity tag is wanted.
    pub(crate) fn admit(&self, etag: &HeaderValue) -> bool {
        match self {
            Self::Any => true,
            Self::These(tags) => tags.iter().any(|tag| tag.as_bytes() == etag.as_bytes()),
        }
    }
}

/// The strong entity tags of a list (RFC 9110 §8.8.3); `None` if it is no list, or an empty one.
///
/// RFC 9110 §13.1.1: "An origin server MUST use the strong comparison function", by which a weak tag is
/// equal to none.
fn strong_tags(list: &str) -> Option<Vec<String>> {
    let is_blank = |character: char| matches!(character, ' ' | '\t');
    let (mut tags, mut is_empty, mut rest) = (Vec::new(), true, list);
    loop {
        // RFC 9110 §5.6.1.2: "a recipient MUST parse and ignore a reasonable number of empty list
        // elements".
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return (!is_empty).then_some(tags);
        }
        let weak = rest.strip_prefix("W/");
        let (opaque, after) = weak.unwrap_or(rest).strip_prefix('"')?.split_once('"')?;
        if weak.is_none() {
            tags.push(format!("\"{opaque}\""));
        }
        (is_empty, rest) = (false, after.trim_start_matches(is_blank));
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Result<SeenVersions, u16> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(IF_MATCH, HeaderValue::from_str(line).unwrap());
        }
        SeenVersions::read(&headers, "/x").map_err(|refusal| refusal.status.as_u16())
    }

    /// The examples of RFC 9110 §13.1.1, and what they leave out.
    #[test]
    fn a_condition_is_a_list_of_entity_tags_or_any() {
        let admits = |lines: &[&str], etag: &'static str| {
            read(lines).map(|seen| seen.admit(&HeaderValue::from_static(etag)))
        };
        for (lines, expected) in [
            (&["\"xyzzy\""][..], Ok(true)),
            (&["\"xyzzy\", \"r2d2xxxx\", \"c3piozzzz\""], Ok(true)),
            (&["\"r2d2xxxx\" ,, \"xyzzy\" ,"], Ok(true)),
            (&["\"r2d2xxxx\"", "\"xyzzy\""], Ok(true)),
            (&["*"], Ok(true)),
            (&[" * "], Ok(true)),
            (&["\"r2d2xxxx\""], Ok(false)),
            (&["\"a,xyzzy\""], Ok(false)),
            (&["W/\"xyzzy\""], Ok(false)),
            (&["W/\"xyzzy\", \"xyzzy\""], Ok(true)),
            (&["xyzzy"], Err(400)),
            (&["\"xyzzy"], Err(400)),
            (&["\"r2d2xxxx\" \"xyzzy\""], Err(400)),
            (&["\"r2d2xxxx\", *"], Err(400)),
            (&["w/\"xyzzy\""], Err(400)),
            (&[""], Err(400)),
            (&[" , "], Err(400)),
            (&[], Err(428)),
        ] {
            assert_eq!(admits(lines, "\"xyzzy\""), expected, "{lines:?}");
        }
    }
}
