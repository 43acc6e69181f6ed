//! Which records of a job are done, in a file that survives the process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use thiserror::Error;

/// The first line of every file.
const HEADER: &str = "balde checkpoint 1";

/// The records of a job that are done, by number, kept in a small text file.
///
/// Records may be done in any order. The file has the ranges of numbers that are done, so it stays
/// small while a job works on neighbouring records. [`save`](Checkpoint::save) replaces the file as a
/// whole: a process that is killed leaves the last complete one.
///
/// After a restart [`pending`](Checkpoint::pending) returns what is not done. Records that were done
/// after the last `save` are among them: send each with an idempotency key that depends only on the
/// record, so that the server recognises what it has seen.
///
/// ```
/// use balde_throttle::Checkpoint;
///
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("import.checkpoint");
/// let checkpoint = Checkpoint::open(&path, "customers 2026-11")?;
/// checkpoint.complete(0);
/// checkpoint.complete(2);
/// checkpoint.save()?;
/// drop(checkpoint);
///
/// let again = Checkpoint::open(&path, "customers 2026-11")?;
/// assert_eq!(again.pending(0..4).collect::<Vec<_>>(), [1, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    job: String,
    done: Mutex<Ranges>,
    /// Held while the file is written.
    saving: Mutex<()>,
}

/// Why a checkpoint cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The file cannot be read or written.
    #[error("checkpoint {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file belongs to another job.
    #[error(
        "checkpoint {} belongs to the job `{found}`, not to `{job}`; use another file, or delete it \
         to begin again",
        path.display()
    )]
    OtherJob {
        /// The file.
        path: PathBuf,
        /// The job that the file names.
        found: String,
        /// The job that was opened.
        job: String,
    },
    /// The file is not a checkpoint, or is damaged.
    #[error(
        "checkpoint {}, line {line}: not a line of a checkpoint; restore the file, or delete it to \
         begin again",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first line that cannot be read, from 1.
        line: usize,
    },
}

impl Checkpoint {
    /// Opens the checkpoint of a job. A file that does not exist means that nothing is done. `job`
    /// names the job, on one line, so that the file of another one is not taken for it.
    pub fn open(path: impl Into<PathBuf>, job: &str) -> Result<Self, CheckpointError> {
        let path = path.into();
        let job = job.replace(['\r', '\n'], " ");
        let done = match fs::read_to_string(&path) {
            Ok(text) => read(&text, &path, &job)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ranges::default(),
            Err(source) => return Err(CheckpointError::Io { path, source }),
        };
        Ok(Self {
            path,
            job,
            done: Mutex::new(done),
            saving: Mutex::new(()),
        })
    }

    /// Notes that a record is done. It is in the file after the next [`save`](Checkpoint::save).
    pub fn complete(&self, record: u64) {
        self.done.lock().insert(record);
    }

    /// How many records are done.
    pub fn completed(&self) -> u64 {
        self.done.lock().len()
    }

    /// The records of `all` that were not done when this was called, in order.
    pub fn pending(&self, all: Range<u64>) -> impl Iterator<Item = u64> + use<> {
        let done = self.done.lock().clone();
        done.gaps(all).into_iter().flatten()
    }

    /// Writes the file. It is on the disk when this returns. Waits for the disk: call it from a thread
    /// that may block, once a second for instance.
    pub fn save(&self) -> Result<(), CheckpointError> {
        let _saving = self.saving.lock();
        let mut text = format!("{HEADER}\njob {}\n", self.job);
        for (first, end) in &self.done.lock().0 {
            text.extend([
                "done ",
                &first.to_string(),
                " ",
                &(end - 1).to_string(),
                "\n",
            ]);
        }
        text.push_str("end\n");
        self.replace(text.as_bytes())
            .map_err(|source| CheckpointError::Io {
                path: self.path.clone(),
                source,
            })
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let mut name = self.path.clone().into_os_string();
        name.push(".new");
        let new = PathBuf::from(name);
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        let folder = self
            .path
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        // Without this the new name may be lost with the machine's power; some systems cannot do it.
        if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
            folder.sync_all().ok();
        }
        Ok(())
    }
}

fn read(text: &str, path: &Path, job: &str) -> Result<Ranges, CheckpointError> {
    let damaged = |line: usize| CheckpointError::Damaged {
        path: path.to_owned(),
        line: line + 1,
    };
    let mut done = Ranges::default();
    let mut is_complete = false;
    let mut lines = 0;
    for (at, line) in text.lines().enumerate() {
        lines = at + 1;
        match (at, line.split_once(' ')) {
            (0, _) if line == HEADER => {}
            (1, Some(("job", found))) if found == job => {}
            (1, Some(("job", found))) => {
                return Err(CheckpointError::OtherJob {
                    path: path.to_owned(),
                    found: found.to_owned(),
                    job: job.to_owned(),
                });
            }
            (2.., Some(("done", numbers))) if !is_complete => {
                let numbers = numbers.split_once(' ').and_then(|(first, last)| {
                    let (first, last) = (first.parse().ok()?, last.parse::<u64>().ok()?);
                    Some((first, last.checked_add(1)?))
                });
                let (first, end) = numbers.ok_or_else(|| damaged(at))?;
                if first >= end || !done.push(first, end) {
                    return Err(damaged(at));
                }
            }
            (2.., None) if line == "end" && !is_complete => is_complete = true,
            _ => return Err(damaged(at)),
        }
    }
    if is_complete {
        Ok(done)
    } else {
        Err(damaged(lines))
    }
}

/// Ranges of numbers: the first of each, and the one behind its last. They neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn insert(&mut self, number: u64) {
        let before = self.0.range(..=number).next_back();
        let mut first = number;
        if let Some((&start, &end)) = before {
            if number < end {
                return;
            }
            if number == end {
                first = start;
            }
        }
        // The largest number cannot be the last of a range, because ranges end behind their last.
        let Some(mut end) = number.checked_add(1) else {
            return;
        };
        if let Some(merged) = self.0.remove(&end) {
            end = merged;
        }
        self.0.insert(first, end);
    }

    /// Adds a range behind all others. Returns false if it is not behind them.
    fn push(&mut self, first: u64, end: u64) -> bool {
        let is_behind = self
            .0
            .last_key_value()
            .is_none_or(|(_, last)| first > *last);
        if is_behind {
            self.0.insert(first, end);
        }
        is_behind
    }

    fn len(&self) -> u64 {
        self.0.iter().map(|(first, end)| end - first).sum()
    }

    /// The parts of `all` that are in no range.
    fn gaps(&self, all: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut from = all.start;
        for (&first, &end) in &self.0 {
            if first >= all.end {
                break;
            }
            if first > from {
                gaps.push(from..first);
            }
            from = from.max(end);
        }
        if from < all.end {
            gaps.push(from..all.end);
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_file_that_is_damaged_or_of_another_job_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        let open = |text: &str| {
            fs::write(&path, text).unwrap();
            Checkpoint::open(&path, "mine").map(|checkpoint| checkpoint.completed())
        };
        let sound = "balde checkpoint 1\njob mine\ndone 0 9\ndone 11 11\nend\n";
        assert_eq!(open(sound).unwrap(), 11);
        for cut in 0..sound.len() - 1 {
            let error = open(&sound[..cut]).expect_err(&sound[..cut]).to_string();
            assert!(error.contains("delete it to begin again"), "{cut}: {error}");
        }
        for (text, line) in [
            ("balde checkpoint 2\njob mine\nend\n", "line 1"),
            ("balde checkpoint 1\njob mine\ndone 5 3\nend\n", "line 3"),
            (
                "balde checkpoint 1\njob mine\ndone 0 3\ndone 4 5\nend\n",
                "line 4",
            ),
            (
                "balde checkpoint 1\njob mine\ndone 0 18446744073709551615\nend\n",
                "line 3",
            ),
            ("balde checkpoint 1\njob mine\nend\nend\n", "line 4"),
            ("garbage\0", "line 1"),
        ] {
            let error = open(text).expect_err(text).to_string();
            assert!(error.contains(line), "{text}: {error}");
        }
        let other = open("balde checkpoint 1\njob yours\nend\n")
            .unwrap_err()
            .to_string();
        assert!(other.contains("`yours`, not to `mine`"), "{other}");
    }

    #[test]
    fn a_folder_that_does_not_exist_is_an_error_that_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing").join("job");
        let checkpoint = Checkpoint::open(&path, "mine").unwrap();
        let error = checkpoint.save().unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
    }

    proptest! {
        #[test]
        fn it_has_the_same_records_as_a_set_before_and_after_a_restart(
            records in prop::collection::vec(0_u64..60, 0..120),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("job");
            let checkpoint = Checkpoint::open(&path, "set").unwrap();
            let mut set = BTreeSet::new();
            for record in records {
                checkpoint.complete(record);
                set.insert(record);
                prop_assert_eq!(checkpoint.completed(), set.len() as u64);
            }
            checkpoint.save().unwrap();
            let again = Checkpoint::open(&path, "set").unwrap();
            let expected: Vec<u64> = (3..50).filter(|record| !set.contains(record)).collect();
            prop_assert_eq!(again.pending(3..50).collect::<Vec<_>>(), expected);
            prop_assert_eq!(&*again.done.lock(), &*checkpoint.done.lock());
        }
    }
}
