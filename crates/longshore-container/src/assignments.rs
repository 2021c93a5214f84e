//! Evaluates shell files that only give values to variables, without a shell.
//!
//! The scripts that image builders generate under `/.singularity.d/env`, and the files that users
//! hand to `--env-file`, are nearly always lists of `export NAME=value`. Starting a shell for
//! them costs more than the rest of a container's start and mangles values. What is understood:
//! comments, `NAME=word`, `export`, `unset`, `:` and `if [ … ]` with `-z`, `-n`, `=` and `!=`; in
//! words quotes, backslashes, `$NAME`, `${NAME}`, `${NAME:-word}` and `${NAME:+word}` with their
//! forms without a colon. All else is left to the image's own shell, with the reason.

/// Variables as a shell has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variables {
    list: Vec<Variable>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Variable {
    name: Vec<u8>,
    value: Option<Vec<u8>>,
    exported: bool,
}

impl Variables {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.list
            .iter()
            .find(|variable| variable.name == name)
            .and_then(|variable| variable.value.as_deref())
    }

    pub(crate) fn set(&mut self, name: &[u8], value: Vec<u8>) {
        self.slot(name).value = Some(value);
    }

    pub(crate) fn export(&mut self, name: &[u8]) {
        self.slot(name).exported = true;
    }

    fn unset(&mut self, name: &[u8]) {
        self.list.retain(|variable| variable.name != name);
    }

    /// Names and values of exported variables, in the order of their first mention.
    pub(crate) fn exported(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.list
            .iter()
            .filter(|variable| variable.exported)
            .filter_map(|variable| Some((&variable.name[..], variable.value.as_deref()?)))
    }

    /// All names and values, exported or not.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.list
            .iter()
            .filter_map(|variable| Some((&variable.name[..], variable.value.as_deref()?)))
    }

    fn slot(&mut self, name: &[u8]) -> &mut Variable {
        let at = self
            .list
            .iter()
            .position(|variable| variable.name == name)
            .unwrap_or_else(|| {
                self.list.push(Variable {
                    name: name.to_vec(),
                    value: None,
                    exported: false,
                });
                self.list.len() - 1
            });
        &mut self.list[at]
    }
}

/// What only a shell can evaluate, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NeedsShell {
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// Applies the assignments of `text` to `variables`.
///
/// # Errors
///
/// [`NeedsShell`] at the first thing that is not understood; `variables` may then have changed.
pub(crate) fn evaluate(text: &[u8], variables: &mut Variables) -> Result<(), NeedsShell> {
    let tokens = tokens(text)?;
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
        variables,
    };
    reader.block(true, &[])?;
    match reader.next() {
        None => Ok(()),
        Some(token) => Err(token.needs_shell()),
    }
}

/// One part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Variable(Vec<u8>),
    /// `${NAME-word}`: the word where NAME is not set (or, with a colon, empty).
    Otherwise {
        name: Vec<u8>,
        or_empty: bool,
        word: Vec<Piece>,
    },
    /// `${NAME+word}`: the word where NAME is set (and, with a colon, not empty).
    Provided {
        name: Vec<u8>,
        and_not_empty: bool,
        word: Vec<Piece>,
    },
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A word, and its letters as written, by which keywords are known.
    Word(Vec<Piece>, Vec<u8>),
    /// The end of a command: a line end or a semicolon.
    End,
    /// Any other operator.
    Operator(u8),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    kind: Kind,
    line: usize,
}

impl Token {
    fn needs_shell(&self) -> NeedsShell {
        NeedsShell {
            line: self.line,
            what: match &self.kind {
                Kind::Word(_, raw) => String::from_utf8_lossy(raw).into_owned(),
                Kind::End => "end of line".to_owned(),
                Kind::Operator(byte) => char::from(*byte).to_string(),
            },
        }
    }
}

struct Reader<'t, 'v> {
    tokens: &'t [Token],
    at: usize,
    variables: &'v mut Variables,
}

impl<'t> Reader<'t, '_> {
    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<&'t Token> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn keyword(&self) -> Option<&'t [u8]> {
        match self.peek() {
            Some(Token {
                kind: Kind::Word(_, raw),
                ..
            }) => Some(raw),
            _ => None,
        }
    }

    /// Commands up to one of `ends`, which is not consumed.
    fn block(&mut self, active: bool, ends: &[&[u8]]) -> Result<(), NeedsShell> {
        while let Some(token) = self.peek() {
            match &token.kind {
                Kind::End => self.at += 1,
                Kind::Word(_, raw) if ends.contains(&raw.as_slice()) => return Ok(()),
                Kind::Word(_, raw) if raw == b"if" => self.condition(active)?,
                Kind::Word(..) => self.command(active)?,
                Kind::Operator(_) if !active => self.at += 1,
                Kind::Operator(_) => return Err(token.needs_shell()),
            }
        }
        Ok(())
    }

    fn condition(&mut self, active: bool) -> Result<(), NeedsShell> {
        let mut undecided = active;
        loop {
            let opening = self.next().expect("`if` or `elif` was seen");
            let words = self.words(undecided)?;
            let holds = undecided && self.test(&words, opening)?;
            self.skip_ends();
            self.expect(b"then", opening)?;
            self.block(holds, &[b"elif", b"else", b"fi"])?;
            undecided &= !holds;
            match self.keyword() {
                Some(b"elif") => {}
                Some(b"else") => {
                    self.at += 1;
                    self.block(undecided, &[b"fi"])?;
                    return self.expect(b"fi", opening);
                }
                _ => return self.expect(b"fi", opening),
            }
        }
    }

    fn skip_ends(&mut self) {
        while matches!(
            self.peek(),
            Some(Token {
                kind: Kind::End,
                ..
            })
        ) {
            self.at += 1;
        }
    }

    fn expect(&mut self, word: &[u8], opening: &Token) -> Result<(), NeedsShell> {
        if self.keyword() == Some(word) {
            self.at += 1;
            Ok(())
        } else {
            Err(self.peek().unwrap_or(opening).needs_shell())
        }
    }

    /// The words of a simple command.
    fn words(&mut self, active: bool) -> Result<Vec<&'t Token>, NeedsShell> {
        let mut words = Vec::new();
        while let Some(token) = self.peek() {
            match token.kind {
                Kind::End => break,
                Kind::Operator(_) if active => return Err(token.needs_shell()),
                _ => words.push(token),
            }
            self.at += 1;
        }
        Ok(words)
    }

    fn test(&self, words: &[&Token], opening: &Token) -> Result<bool, NeedsShell> {
        let wrong = || words.first().copied().unwrap_or(opening).needs_shell();
        let mut inner = match words.split_first() {
            Some((first, rest)) if raw_of(first) == b"test" => rest,
            Some((first, rest)) if raw_of(first) == b"[" => match rest.split_last() {
                Some((last, rest)) if raw_of(last) == b"]" => rest,
                _ => return Err(wrong()),
            },
            _ => return Err(wrong()),
        };
        let mut negated = false;
        if let Some((first, rest)) = inner.split_first()
            && raw_of(first) == b"!"
        {
            negated = true;
            inner = rest;
        }
        let holds = match inner {
            [operator, word] if raw_of(operator) == b"-z" => self.value(word)?.is_empty(),
            [operator, word] if raw_of(operator) == b"-n" => !self.value(word)?.is_empty(),
            [left, operator, right] if matches!(raw_of(operator), b"=" | b"==") => {
                self.value(left)? == self.value(right)?
            }
            [left, operator, right] if raw_of(operator) == b"!=" => {
                self.value(left)? != self.value(right)?
            }
            _ => return Err(wrong()),
        };
        Ok(holds != negated)
    }

    fn command(&mut self, active: bool) -> Result<(), NeedsShell> {
        let words = self.words(active)?;
        if !active {
            return Ok(());
        }
        let (first, rest) = words.split_first().expect("a command has a word");
        match raw_of(first) {
            b":" => {
                for word in rest {
                    self.value(word)?;
                }
            }
            b"export" => {
                for word in rest {
                    if let Some(name) = self.assign(word)? {
                        self.variables.export(&name);
                    } else if is_name(raw_of(word)) {
                        self.variables.export(raw_of(word));
                    } else {
                        return Err(word.needs_shell());
                    }
                }
            }
            b"unset" => {
                for word in rest {
                    if !is_name(raw_of(word)) {
                        return Err(word.needs_shell());
                    }
                    self.variables.unset(raw_of(word));
                }
            }
            _ => {
                for word in &words {
                    if self.assign(word)?.is_none() {
                        return Err(word.needs_shell());
                    }
                }
            }
        }
        Ok(())
    }

    /// Carries out `NAME=word` and gives the name; `None` where the word is no assignment.
    fn assign(&mut self, token: &Token) -> Result<Option<Vec<u8>>, NeedsShell> {
        let Kind::Word(pieces, _) = &token.kind else {
            return Ok(None);
        };
        let Some(Piece::Text(text)) = pieces.first() else {
            return Ok(None);
        };
        let Some(equals) = text.iter().position(|&byte| byte == b'=') else {
            return Ok(None);
        };
        let name = &text[..equals];
        // A quoted name would arrive here too, but no shell would take it for an assignment.
        if !is_name(name) || !raw_of(&token).starts_with(name) {
            return Ok(None);
        }
        let mut value = text[equals + 1..].to_vec();
        self.append(&pieces[1..], &mut value, token)?;
        self.variables.set(name, value);
        Ok(Some(name.to_vec()))
    }

    fn value(&self, token: &Token) -> Result<Vec<u8>, NeedsShell> {
        let Kind::Word(pieces, _) = &token.kind else {
            return Err(token.needs_shell());
        };
        let mut value = Vec::new();
        self.append(pieces, &mut value, token)?;
        Ok(value)
    }

    fn append(
        &self,
        pieces: &[Piece],
        value: &mut Vec<u8>,
        token: &Token,
    ) -> Result<(), NeedsShell> {
        for piece in pieces {
            match piece {
                Piece::Text(text) => value.extend_from_slice(text),
                Piece::Variable(name) => {
                    value.extend_from_slice(self.variables.get(name).unwrap_or_default());
                }
                Piece::Otherwise {
                    name,
                    or_empty,
                    word,
                } => match self.variables.get(name) {
                    Some(present) if !(present.is_empty() && *or_empty) => {
                        value.extend_from_slice(present);
                    }
                    _ => self.append(word, value, token)?,
                },
                Piece::Provided {
                    name,
                    and_not_empty,
                    word,
                } => match self.variables.get(name) {
                    Some(present) if !(present.is_empty() && *and_not_empty) => {
                        self.append(word, value, token)?;
                    }
                    _ => {}
                },
                Piece::Unknown(what) => {
                    return Err(NeedsShell {
                        line: token.line,
                        what: what.clone(),
                    });
                }
            }
        }
        Ok(())
    }
}

fn raw_of<'t>(token: &&'t Token) -> &'t [u8] {
    match &token.kind {
        Kind::Word(_, raw) => raw,
        _ => b"",
    }
}

fn is_name(text: &[u8]) -> bool {
    text.first()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
        && text
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Whether a shell could hold a variable of this name.
pub(crate) fn is_shell_name(name: &[u8]) -> bool {
    is_name(name)
}

fn tokens(text: &[u8]) -> Result<Vec<Token>, NeedsShell> {
    let mut scanner = Scanner {
        text,
        at: 0,
        line: 1,
    };
    let mut tokens = Vec::new();
    while let Some(byte) = scanner.peek() {
        let line = scanner.line;
        let kind = match byte {
            b' ' | b'\t' | b'\r' => {
                scanner.bump();
                continue;
            }
            b'\\' if scanner.text.get(scanner.at + 1) == Some(&b'\n') => {
                scanner.bump();
                scanner.bump();
                continue;
            }
            b'#' => {
                while scanner.peek().is_some_and(|byte| byte != b'\n') {
                    scanner.bump();
                }
                continue;
            }
            b'\n' | b';' => {
                scanner.bump();
                Kind::End
            }
            b'&' | b'|' | b'<' | b'>' | b'(' | b')' => {
                scanner.bump();
                Kind::Operator(byte)
            }
            _ => {
                let start = scanner.at;
                let pieces = scanner.word()?;
                Kind::Word(pieces, text[start..scanner.at].to_vec())
            }
        };
        tokens.push(Token { kind, line });
    }
    Ok(tokens)
}

struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
    line: usize,
}

/// Words nest in `${A:-${B:-…}}`; an image may not make this process run out of stack.
const DEEPEST_WORD: usize = 16;

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn bump(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        if byte == b'\n' {
            self.line += 1;
        }
        Some(byte)
    }

    fn unfinished(&self, what: &str) -> NeedsShell {
        NeedsShell {
            line: self.line,
            what: format!("{what} without an end"),
        }
    }

    fn word(&mut self) -> Result<Vec<Piece>, NeedsShell> {
        let mut pieces = Vec::new();
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')' => {
                    break;
                }
                b'\'' => {
                    self.bump();
                    self.single_quoted(&mut pieces)?;
                }
                b'"' => {
                    self.bump();
                    self.double_quoted(&mut pieces, 0)?;
                }
                b'\\' => {
                    self.bump();
                    match self.bump() {
                        Some(b'\n') => {}
                        Some(byte) => push(&mut pieces, &[byte]),
                        None => return Err(self.unfinished("backslash")),
                    }
                }
                b'$' => self.dollar(&mut pieces, 0)?,
                b'`' => {
                    self.bump();
                    pieces.push(Piece::Unknown("` (command substitution)".into()));
                }
                b'~' if pieces.is_empty() || ends_with_equals(&pieces) => {
                    self.bump();
                    pieces.push(Piece::Unknown("~ (home directory)".into()));
                }
                byte => {
                    self.bump();
                    push(&mut pieces, &[byte]);
                }
            }
        }
        Ok(pieces)
    }

    fn single_quoted(&mut self, pieces: &mut Vec<Piece>) -> Result<(), NeedsShell> {
        // An empty pair of quotes is still a word.
        push(pieces, b"");
        loop {
            match self.bump() {
                Some(b'\'') => return Ok(()),
                Some(byte) => push(pieces, &[byte]),
                None => return Err(self.unfinished("single quote")),
            }
        }
    }

    fn double_quoted(&mut self, pieces: &mut Vec<Piece>, depth: usize) -> Result<(), NeedsShell> {
        push(pieces, b"");
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.bump();
                    return Ok(());
                }
                Some(b'\\') => self.escape_in_quotes(pieces)?,
                Some(b'$') => self.dollar(pieces, depth)?,
                Some(b'`') => {
                    self.bump();
                    pieces.push(Piece::Unknown("` (command substitution)".into()));
                }
                Some(byte) => {
                    self.bump();
                    push(pieces, &[byte]);
                }
                None => return Err(self.unfinished("double quote")),
            }
        }
    }

    fn escape_in_quotes(&mut self, pieces: &mut Vec<Piece>) -> Result<(), NeedsShell> {
        self.bump();
        match self.bump() {
            Some(b'\n') => {}
            Some(byte @ (b'$' | b'`' | b'"' | b'\\')) => push(pieces, &[byte]),
            Some(byte) => push(pieces, &[b'\\', byte]),
            None => return Err(self.unfinished("backslash")),
        }
        Ok(())
    }

    fn name(&mut self) -> Vec<u8> {
        let start = self.at;
        while self
            .peek()
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            self.bump();
        }
        self.text[start..self.at].to_vec()
    }

    fn dollar(&mut self, pieces: &mut Vec<Piece>, depth: usize) -> Result<(), NeedsShell> {
        self.bump();
        match self.peek() {
            Some(b'{') => {
                self.bump();
                let name = self.name();
                let colon = self.peek() == Some(b':');
                if colon {
                    self.bump();
                }
                match (self.peek(), is_name(&name), colon) {
                    (Some(b'}'), true, false) => {
                        self.bump();
                        pieces.push(Piece::Variable(name));
                    }
                    (Some(b'-'), true, _) => {
                        self.bump();
                        let word = self.braced_word(depth + 1)?;
                        pieces.push(Piece::Otherwise {
                            name,
                            or_empty: colon,
                            word,
                        });
                    }
                    (Some(b'+'), true, _) => {
                        self.bump();
                        let word = self.braced_word(depth + 1)?;
                        pieces.push(Piece::Provided {
                            name,
                            and_not_empty: colon,
                            word,
                        });
                    }
                    _ => {
                        // Skipped as a whole, so that a branch that is not taken may hold it.
                        self.braced_word(depth + 1)?;
                        pieces.push(Piece::Unknown(
                            "${…} of a kind that only shells know".into(),
                        ));
                    }
                }
            }
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => {
                let name = self.name();
                pieces.push(Piece::Variable(name));
            }
            Some(b'(') => pieces.push(Piece::Unknown("$( (command substitution)".into())),
            Some(byte) if byte.is_ascii_digit() || b"@*#?$!-".contains(&byte) => {
                self.bump();
                pieces.push(Piece::Unknown(format!("${}", char::from(byte))));
            }
            _ => push(pieces, b"$"),
        }
        Ok(())
    }

    /// The word of `${NAME:-word}`, with its closing brace.
    fn braced_word(&mut self, depth: usize) -> Result<Vec<Piece>, NeedsShell> {
        if depth > DEEPEST_WORD {
            return Err(NeedsShell {
                line: self.line,
                what: "deeply nested ${…}".into(),
            });
        }
        let mut pieces = Vec::new();
        loop {
            match self.peek() {
                Some(b'}') => {
                    self.bump();
                    return Ok(pieces);
                }
                Some(b'"') => {
                    self.bump();
                    self.double_quoted(&mut pieces, depth)?;
                }
                Some(b'\\') => self.escape_in_quotes(&mut pieces)?,
                Some(b'$') => self.dollar(&mut pieces, depth)?,
                Some(b'`') => {
                    self.bump();
                    pieces.push(Piece::Unknown("` (command substitution)".into()));
                }
                // Whether these quote depends on the quotes around the braces and on the shell.
                Some(b'\'') => {
                    self.bump();
                    pieces.push(Piece::Unknown("' inside of ${…}".into()));
                }
                Some(byte) => {
                    self.bump();
                    push(&mut pieces, &[byte]);
                }
                None => return Err(self.unfinished("${")),
            }
        }
    }
}

fn push(pieces: &mut Vec<Piece>, bytes: &[u8]) {
    if let Some(Piece::Text(text)) = pieces.last_mut() {
        text.extend_from_slice(bytes);
    } else {
        pieces.push(Piece::Text(bytes.to_vec()));
    }
}

fn ends_with_equals(pieces: &[Piece]) -> bool {
    matches!(pieces, [Piece::Text(text)] if text.ends_with(b"="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(script: &str, expected: &[(&str, &str)]) {
        let mut variables = Variables::default();
        variables.set(b"HOME", b"/h".to_vec());
        evaluate(script.as_bytes(), &mut variables).expect("understood");
        let got: Vec<(String, String)> = variables
            .exported()
            .map(|(name, value)| {
                (
                    String::from_utf8_lossy(name).into_owned(),
                    String::from_utf8_lossy(value).into_owned(),
                )
            })
            .collect();
        let expected: Vec<(String, String)> = expected
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(got, expected, "{script}");
    }

    #[track_caller]
    fn needs_shell(script: &str, line: usize) {
        let error = evaluate(script.as_bytes(), &mut Variables::default()).expect_err(script);
        assert_eq!(error.line, line, "{script}: {error:?}");
    }

    #[test]
    fn generated_defaults_give_way_to_values_that_are_there() {
        check(
            "#!/bin/sh\nexport A=\"${A:-\"x y\"}\"\nA2=1\nexport B=${A:+set}${NONE+no} A2\nexport A=\"${A:-z}\"",
            &[("A", "x y"), ("A2", "1"), ("B", "set")],
        );
    }

    #[test]
    fn quotes_and_backslashes_mean_what_they_mean_to_a_shell() {
        check(
            "export A='$HOME \\' B=\"a\\\"b\\$c\\d $HOME\" C=a\\ b\\\nc D='' E=x'y'\"z\" F=5$",
            &[
                ("A", "$HOME \\"),
                ("B", "a\"b$c\\d /h"),
                ("C", "a bc"),
                ("D", ""),
                ("E", "xyz"),
                ("F", "5$"),
            ],
        );
    }

    #[test]
    fn the_last_script_of_apptainer_is_understood() {
        check(
            "if [ -z \"$LD_LIBRARY_PATH\" ]; then\n  LD_LIBRARY_PATH=\"/.singularity.d/libs\"\nelse\n  \
             LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH:/.singularity.d/libs\"\nfi\nPS1=\"Apptainer> \"\n\
             export LD_LIBRARY_PATH PS1\n",
            &[
                ("LD_LIBRARY_PATH", "/.singularity.d/libs"),
                ("PS1", "Apptainer> "),
            ],
        );
    }

    #[test]
    fn a_branch_that_is_not_taken_may_hold_anything() {
        check(
            "if test -n \"${APP:-}\"; then\n for x in $(ls /scif | sort); do eval \"$x\"; done\n \
             if [ -d /x ]; then . /x; fi\nelif [ ! -z \"\" ]; then exit 1\nelse export OK=1; fi",
            &[("OK", "1")],
        );
    }

    #[test]
    fn what_only_a_shell_can_do_is_named_with_its_line() {
        needs_shell("A=1\nB=$(date)\n", 2);
        needs_shell("\n\nsource /etc/profile\n", 3);
        needs_shell("A=1 && export B\n", 1);
        needs_shell("A=~/x\n", 1);
        needs_shell("A=`id`\n", 1);
        needs_shell("A=${B##x}\n", 1);
        needs_shell("A='x\n", 2);
        needs_shell("ls", 1);
        needs_shell("A=1 ls", 1);
        needs_shell("if true; then A=1; fi", 1);
        needs_shell(&format!("A={}", "${A:-".repeat(100_000)), 1);
    }

    #[test]
    fn unset_variables_are_gone_and_unexported_ones_stay_inside() {
        check("A=1 B=2\nexport A C=3\nunset A\n", &[("C", "3")]);
    }

    /// Runs a script by a real shell and gives what it exports.
    fn by_shell(script: &str, names: &[&str]) -> Option<Vec<Option<String>>> {
        let mut text = format!("exec 3>&1 >/dev/null 2>&1\n{script}\n");
        for name in names {
            text.push_str(&format!("/usr/bin/printenv {name} >&3; printf '\\0' >&3\n"));
        }
        let output = std::process::Command::new("/bin/sh")
            .args(["-c", &text])
            .env_clear()
            .env("HOME", "/h")
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let values: Vec<Option<String>> = text
            .split_terminator('\0')
            .map(|value| value.strip_suffix('\n').map(str::to_owned))
            .collect();
        // A shell gives up on a whole script for what is skipped here, such as a stray `;`.
        (values.len() == names.len()).then_some(values)
    }

    proptest::proptest! {
        #[test]
        fn no_script_of_an_image_makes_it_panic(text: Vec<u8>) {
            let _ = evaluate(&text, &mut Variables::default());
        }

        #[test]
        fn a_script_that_is_understood_means_what_it_means_to_a_shell(
            parts in proptest::collection::vec(
                proptest::sample::select(vec![
                    "A", "B", "=", "export ", " ", "\n", ";", "\"", "'", "$A", "${B}", "${A:-", "${B+", "}", "\\",
                    "x", "$", "y z", "unset ", "#", ":", "if [ -z \"$A\" ]; then ", "fi", "else ", "/", "-",
                ]),
                0..14,
            )
        ) {
            let script = parts.concat();
            let mut variables = Variables::default();
            variables.set(b"HOME", b"/h".to_vec());
            if evaluate(script.as_bytes(), &mut variables).is_ok()
                && let Some(expected) = by_shell(&script, &["A", "B"])
            {
                let own: Vec<Option<String>> = ["A", "B"]
                    .iter()
                    .map(|name| {
                        variables
                            .exported()
                            .find(|(found, _)| *found == name.as_bytes())
                            .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
                    })
                    .collect();
                proptest::prop_assert_eq!(own, expected, "{:?}", script);
            }
        }
    }
}
