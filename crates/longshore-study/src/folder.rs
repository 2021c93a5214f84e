//! The folder of a result: samples as they come, the study, the host, and the reports.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::sample::{FORMAT, Record};

/// A result could not be written or read.
#[derive(Debug, Error)]
pub enum FolderError {
    /// The folder or a file in it could not be made or written.
    #[error("cannot write {}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is something in the folder, which may be somebody's.
    #[error("the folder {} is not empty", path.display())]
    Occupied {
        /// Which.
        path: PathBuf,
    },
    /// A line of the samples is not a record.
    #[error("{}:{line} is not a record: {message}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Number of the line.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// The samples were written by a later version.
    #[error("{} has format {format}; this version reads up to {FORMAT}", path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
}

/// A result folder.
#[derive(Clone, Debug)]
pub struct ResultFolder {
    path: PathBuf,
}

/// The samples of a running study, on disk as soon as they are taken.
pub struct Journal {
    path: PathBuf,
    file: File,
    records: Vec<Record>,
}

impl ResultFolder {
    /// Makes the folder with its parents; it must be empty.
    ///
    /// # Errors
    ///
    /// [`FolderError::Occupied`] rather than mixing two results, or a result with files of another
    /// kind that happen to have the same names; [`FolderError::Write`] where the place cannot be
    /// written.
    pub fn create(path: &Path) -> Result<ResultFolder, FolderError> {
        let fail = |source| FolderError::Write {
            path: path.to_owned(),
            source,
        };
        fs::create_dir_all(path).map_err(fail)?;
        if fs::read_dir(path).map_err(fail)?.next().is_some() {
            return Err(FolderError::Occupied {
                path: path.to_owned(),
            });
        }
        Ok(ResultFolder {
            path: path.to_owned(),
        })
    }

    /// Opens the folder of an earlier result.
    pub fn open(path: &Path) -> ResultFolder {
        ResultFolder {
            path: path.to_owned(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file whole or not at all.
    ///
    /// # Errors
    ///
    /// [`FolderError::Write`].
    pub fn write(&self, name: &str, content: &str) -> Result<PathBuf, FolderError> {
        let path = self.file(name);
        let fail = |source| FolderError::Write {
            path: path.clone(),
            source,
        };
        let temporary = self.file(&format!(".{name}.new"));
        fs::write(&temporary, content).map_err(fail)?;
        fs::rename(&temporary, &path).map_err(fail)?;
        Ok(path)
    }

    /// Reads a text file of the folder.
    ///
    /// # Errors
    ///
    /// [`FolderError::Read`].
    pub fn read(&self, name: &str) -> Result<String, FolderError> {
        let path = self.file(name);
        fs::read_to_string(&path).map_err(|source| FolderError::Read { path, source })
    }

    /// Starts `samples.jsonl`.
    ///
    /// # Errors
    ///
    /// [`FolderError::Write`], also where the file is there already.
    pub fn journal(&self) -> Result<Journal, FolderError> {
        let path = self.file("samples.jsonl");
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(&path)
            .map_err(|source| FolderError::Write {
                path: path.clone(),
                source,
            })?;
        Ok(Journal {
            path,
            file,
            records: Vec::new(),
        })
    }

    /// Reads the samples of an earlier run.
    ///
    /// A last line without an end is what a killed study leaves, and is passed over.
    ///
    /// # Errors
    ///
    /// [`FolderError::Record`] names a line that is no record.
    pub fn records(&self) -> Result<Vec<Record>, FolderError> {
        let path = self.file("samples.jsonl");
        let fail = |source| FolderError::Read {
            path: path.clone(),
            source,
        };
        let mut reader = BufReader::new(File::open(&path).map_err(fail)?);
        let mut records = Vec::new();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if reader.read_until(b'\n', &mut line).map_err(fail)? == 0 {
                break;
            }
            match serde_json::from_slice(&line) {
                Ok(Record::Study { format, .. }) if format > FORMAT => {
                    return Err(FolderError::TooNew { path, format });
                }
                Ok(record) => records.push(record),
                Err(_) if !line.ends_with(b"\n") => break,
                Err(_) if line.trim_ascii().is_empty() => {}
                Err(error) => {
                    return Err(FolderError::Record {
                        path,
                        line: number,
                        message: error.to_string(),
                    });
                }
            }
        }
        Ok(records)
    }
}

impl Journal {
    /// Writes a record down before anything else happens.
    ///
    /// One write a line: a process that is killed between two samples has lost none.
    ///
    /// # Errors
    ///
    /// [`FolderError::Write`].
    pub fn add(&mut self, record: Record) -> Result<(), FolderError> {
        let mut line = serde_json::to_string(&record).map_err(|error| FolderError::Write {
            path: self.path.clone(),
            source: error.into(),
        })?;
        line.push('\n');
        self.file
            .write_all(line.as_bytes())
            .map_err(|source| FolderError::Write {
                path: self.path.clone(),
                source,
            })?;
        self.records.push(record);
        Ok(())
    }

    /// What was written so far.
    pub fn records(&self) -> &[Record] {
        &self.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(name: &str) -> Record {
        Record::Fact {
            name: name.into(),
            text: String::new(),
        }
    }

    #[test]
    fn a_half_written_last_line_is_passed_over() {
        let folder = tempfile::tempdir().expect("temp folder");
        let result = ResultFolder::create(folder.path()).expect("is empty");
        let mut journal = result.journal().expect("can be written");
        journal.add(fact("one")).expect("can be written");
        journal.add(fact("two")).expect("can be written");
        let path = result.file("samples.jsonl");
        let text = fs::read_to_string(&path).expect("was written");
        fs::write(&path, &text[..text.len() - 9]).expect("can be written");
        assert_eq!(result.records().expect("reads"), [fact("one")]);
    }

    #[test]
    fn a_broken_line_in_the_middle_is_an_error_with_its_number() {
        let folder = tempfile::tempdir().expect("temp folder");
        let result = ResultFolder::create(folder.path()).expect("is empty");
        fs::write(result.file("samples.jsonl"), "{\"type\":\"end\"}\n{}\n").expect("written");
        let error = result.records().expect_err("is broken").to_string();
        assert!(error.contains("samples.jsonl:1 is not a record"), "{error}");
    }

    #[test]
    fn a_result_is_not_written_over() {
        let folder = tempfile::tempdir().expect("temp folder");
        let result = ResultFolder::create(folder.path()).expect("is empty");
        result.journal().expect("can be written");
        assert!(matches!(
            ResultFolder::create(folder.path()),
            Err(FolderError::Occupied { .. })
        ));
    }

    #[test]
    fn files_of_another_kind_are_not_written_over() {
        let folder = tempfile::tempdir().expect("temp folder");
        fs::write(folder.path().join("report.html"), "mine").expect("written");
        assert!(matches!(
            ResultFolder::create(folder.path()),
            Err(FolderError::Occupied { .. })
        ));
    }

    #[test]
    fn samples_of_a_later_format_are_refused() {
        let folder = tempfile::tempdir().expect("temp folder");
        let result = ResultFolder::create(folder.path()).expect("is empty");
        fs::write(
            result.file("samples.jsonl"),
            r#"{"type":"study","format":99,"name":"x","tool":"t","seed":1,"time":""}"#,
        )
        .expect("written");
        assert!(matches!(
            result.records(),
            Err(FolderError::TooNew { format: 99, .. })
        ));
    }
}
