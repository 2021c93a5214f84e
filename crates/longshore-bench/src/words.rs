//! Command templates: words, quotes and `{placeholders}`.

/// Splits a template as a shell would, without expanding anything.
///
/// # Errors
///
/// A sentence where a quote is left open.
pub(crate) fn split(template: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = template.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('"') | None, '\\') => match characters.next() {
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err(format!("`{template}` ends with a backslash")),
            },
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(format!("`{template}` has a quote that is not closed"));
    }
    words.extend(word);
    Ok(words)
}

/// Puts values in the place of `{name}`.
///
/// A word that is a placeholder and nothing else becomes all words of its value, none included;
/// inside a word the value's words are joined by blanks. Other braces are left as they are.
pub(crate) fn fill(words: &[String], values: &[(&str, Vec<String>)]) -> Vec<String> {
    words
        .iter()
        .flat_map(|word| {
            for (name, value) in values {
                if *word == format!("{{{name}}}") {
                    return value.clone();
                }
            }
            let mut filled = word.clone();
            for (name, value) in values {
                filled = filled.replace(&format!("{{{name}}}"), &value.join(" "));
            }
            vec![filled]
        })
        .collect()
}

/// A command as one line that a shell would read back as the same words.
pub(crate) fn shown(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%{}".contains(c);
    let quoted: Vec<String> = words
        .iter()
        .map(|word| {
            if !word.is_empty() && word.chars().all(plain) {
                word.clone()
            } else {
                format!("'{}'", word.replace('\'', "'\\''"))
            }
        })
        .collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_keep_words_together() {
        assert_eq!(
            split(r#"a  'b c' "d\"e" f\ g ''"#).expect("is closed"),
            ["a", "b c", "d\"e", "f g", ""]
        );
        assert!(split("'open").is_err());
        assert!(split("end\\").is_err());
    }

    #[test]
    fn a_placeholder_alone_becomes_the_words_of_its_value() {
        let words = split("{wrap} run -t={n} {cmd}").expect("is closed");
        let values = [
            ("wrap", vec![]),
            ("n", vec!["4".to_owned()]),
            (
                "cmd",
                vec!["sh".to_owned(), "-c".to_owned(), "a b".to_owned()],
            ),
        ];
        assert_eq!(fill(&words, &values), ["run", "-t=4", "sh", "-c", "a b"]);
    }

    #[test]
    fn a_shown_command_can_be_read_back() {
        let words = ["echo", "it's", "", "a b"].map(str::to_owned).to_vec();
        assert_eq!(split(&shown(&words)).expect("is closed"), words);
    }
}
