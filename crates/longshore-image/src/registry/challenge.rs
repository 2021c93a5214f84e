//! What a registry asks for in `WWW-Authenticate` (RFC 9110, section 11.6.1).

/// One challenge: a scheme and its parameters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) scheme: String,
    parameters: Vec<(String, String)>,
}

impl Challenge {
    /// Reads all challenges of one header value; what cannot be read is left out.
    pub(crate) fn parse_all(value: &str) -> Vec<Challenge> {
        let mut challenges: Vec<Challenge> = Vec::new();
        let mut rest = value.trim_start_matches([' ', ',']);
        while !rest.is_empty() {
            let end = rest.find([' ', '=', ',']).unwrap_or(rest.len());
            let word = &rest[..end];
            rest = rest[end..].trim_start_matches(' ');
            match rest.strip_prefix('=') {
                Some(after) if !word.is_empty() => {
                    let (text, after) = quoted_or_plain(after.trim_start_matches(' '));
                    if let Some(challenge) = challenges.last_mut() {
                        challenge.parameters.push((word.to_ascii_lowercase(), text));
                    }
                    rest = after;
                }
                Some(after) => rest = after,
                None if !word.is_empty() => challenges.push(Challenge {
                    scheme: word.to_owned(),
                    parameters: Vec::new(),
                }),
                None => {}
            }
            rest = rest.trim_start_matches([' ', ',']);
        }
        challenges
    }

    /// The value of a parameter, its name in lower case.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

fn quoted_or_plain(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            _ => value.push(letter),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_challenge_with_commas_in_quotes_is_read() {
        let all = Challenge::parse_all(
            r#"Bearer realm="https://a.io/token",service="a.io",scope="repository:x:pull,push""#,
        );
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].get("realm"), Some("https://a.io/token"));
        assert_eq!(all[0].get("scope"), Some("repository:x:pull,push"));
    }

    #[test]
    fn two_challenges_in_one_header_are_two() {
        let all = Challenge::parse_all(r#"Basic realm="a \"b\"", Bearer realm="https://t",x=1"#);
        let schemes: Vec<&str> = all.iter().map(|one| one.scheme.as_str()).collect();
        assert_eq!(schemes, ["Basic", "Bearer"]);
        assert_eq!(all[0].get("realm"), Some("a \"b\""));
        assert_eq!(all[1].get("x"), Some("1"));
    }

    #[test]
    fn nonsense_ends() {
        for text in ["", "=", ",,,", "a=\"", "===\"\"", "Bearer realm", "\"\\"] {
            let _ = Challenge::parse_all(text);
        }
    }
}
