//! Entries and keys.

use balde_policy::percent_decoded;

use super::{Task, invalid, refused};
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::wire::{
    CreateEntry, DeleteEntry, Problem, UpdateEntry, check_keys_response, delete_response,
    entry_response, entry_statistics_response, person_statistics_response, read_check_keys,
};

impl Simulator {
    pub(super) async fn get_entry(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let key = the_key(task)?;
        let found = self.0.directory.entry(key).await.map_err(refused)?;
        let record = found.ok_or_else(no_entry)?;
        if record.entry.account.participant == task.participant {
            let detail = "The key is kept by the participant that asks";
            let problem = Problem::new(400, "EntryCannotBeQueriedForBookTransfer");
            return Err(problem.with_detail(detail));
        }
        let body = entry_response("GetEntryResponse", &task.head, record.xml());
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn create_entry(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let request = CreateEntry::read(task.document()?).map_err(invalid("EntryInvalid"))?;
        let created = self.0.directory.create_entry(&request, task.now).await;
        let record = created.map_err(refused)?;
        let body = entry_response("CreateEntryResponse", &task.head, record.xml());
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn update_entry(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let request = UpdateEntry::read(task.document()?).map_err(invalid("EntryInvalid"))?;
        must_be_the_key(task, &request.key)?;
        let updated = self.0.directory.update_entry(&request, task.now).await;
        let record = updated.map_err(refused)?;
        let body = entry_response("UpdateEntryResponse", &task.head, record.xml());
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn delete_entry(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let request = DeleteEntry::read(task.document()?).map_err(invalid("EntryInvalid"))?;
        must_be_the_key(task, &request.key)?;
        let deleted = self.0.directory.delete_entry(&request, task.now).await;
        deleted.map_err(refused)?;
        Ok(Answer::xml(200, delete_response(&task.head, &request.key)))
    }

    pub(super) async fn get_entry_statistics(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let directory = &self.0.directory;
        let key = the_key(task)?;
        let record = directory.entry(key).await.map_err(refused)?;
        let record = record.ok_or_else(no_entry)?;
        let of_key = directory.key_statistics(key, task.now).await;
        let tax_id = &record.entry.owner.tax_id_number;
        let of_owner = directory.person_statistics(tax_id, task.now).await;
        let body = entry_statistics_response(
            &task.head,
            key,
            &of_key.map_err(refused)?,
            &of_owner.map_err(refused)?,
            task.now,
        );
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn get_person_statistics(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let tax_id = percent_decoded(task.segment)
            .ok_or_else(|| Problem::bad_request("The tax number cannot be decoded"))?;
        let statistics = self.0.directory.person_statistics(&tax_id, task.now).await;
        let statistics = statistics.map_err(refused)?;
        let body = person_statistics_response(&task.head, &tax_id, &statistics, task.now);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn check_keys(&self, task: &Task<'_>) -> Result<Answer, Problem> {
        let keys = read_check_keys(task.document()?).map_err(invalid("BadRequest"))?;
        let checked = self.0.directory.check_keys(keys).await.map_err(refused)?;
        Ok(Answer::xml(200, check_keys_response(&task.head, &checked)))
    }
}

fn the_key<'t>(task: &'t Task<'_>) -> Result<&'t str, Problem> {
    task.key
        .ok_or_else(|| Problem::bad_request("The key in the path is none"))
}

fn must_be_the_key(task: &Task<'_>, key: &str) -> Result<(), Problem> {
    if the_key(task)? == key {
        Ok(())
    } else {
        Err(Problem::bad_request(
            "The path and the body name different keys",
        ))
    }
}

fn no_entry() -> Problem {
    Problem::not_found("Entry associated with given key does not exist")
}
