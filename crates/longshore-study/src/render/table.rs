//! A plain table: aligned for a terminal, or as Markdown.

/// Rows of text under a header.
pub(super) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(header: Vec<String>) -> Table {
        Table {
            header,
            rows: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    pub(super) fn header(&self) -> &[String] {
        &self.header
    }

    pub(super) fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Columns aligned with blanks; a column of numbers to the right.
    pub(super) fn text(&self) -> String {
        let lines = || std::iter::once(&self.header).chain(&self.rows);
        let columns = self.header.len();
        let width = |column: usize| {
            lines()
                .filter_map(|line| line.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let numeric: Vec<bool> = (0..columns)
            .map(|column| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(column))
                    .all(|cell| {
                        cell.is_empty()
                            || cell.starts_with(|c: char| c.is_ascii_digit() || c == '-')
                    })
            })
            .collect();
        let mut out = String::new();
        for line in lines() {
            let mut text = String::new();
            for (column, cell) in line.iter().enumerate() {
                if column > 0 {
                    text.push_str("  ");
                }
                let pad = " ".repeat(widths[column] - cell.chars().count());
                if numeric[column] {
                    text.push_str(&pad);
                    text.push_str(cell);
                } else {
                    text.push_str(cell);
                    text.push_str(&pad);
                }
            }
            out.push_str(text.trim_end());
            out.push('\n');
        }
        out
    }

    pub(super) fn markdown(&self) -> String {
        let mut out = String::new();
        let mut line = |cells: &[String]| {
            out.push('|');
            for cell in cells {
                out.push(' ');
                out.push_str(&cell.replace('|', "\\|").replace('\n', " "));
                out.push_str(" |");
            }
            out.push('\n');
        };
        line(&self.header);
        line(&vec!["---".to_owned(); self.header.len()]);
        for row in &self.rows {
            line(row);
        }
        out
    }
}
