//! Handlers of entries, keys and statistics.

use balde_policy::percent_decoded;

use super::{RequestContext, invalid, problem};
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::wire::{
    CreateEntry, DeleteEntry, Problem, UpdateEntry, check_keys_response, delete_response,
    entry_response, entry_statistics_response, person_statistics_response, read_check_keys,
};

impl Simulator {
    pub(super) async fn get_entry(&self, context: &RequestContext<'_>) -> Result<Answer, Problem> {
        let key = path_key(context)?;
        let found = self.0.directory.entry(key).await.map_err(problem)?;
        let record = found.ok_or_else(entry_not_found)?;
        if record.entry.account.participant == context.participant {
            let detail = "The key belongs to the requesting participant";
            let problem = Problem::new(400, "EntryCannotBeQueriedForBookTransfer");
            return Err(problem.with_detail(detail));
        }
        let body = entry_response("GetEntryResponse", &context.head, record.xml());
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn create_entry(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let request = CreateEntry::read(context.document()?).map_err(invalid("EntryInvalid"))?;
        let created = self.0.directory.create_entry(&request, context.now).await;
        let record = created.map_err(problem)?;
        let body = entry_response("CreateEntryResponse", &context.head, record.xml());
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn update_entry(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let request = UpdateEntry::read(context.document()?).map_err(invalid("EntryInvalid"))?;
        require_path_key(context, &request.key)?;
        let updated = self.0.directory.update_entry(&request, context.now).await;
        let record = updated.map_err(problem)?;
        let body = entry_response("UpdateEntryResponse", &context.head, record.xml());
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn delete_entry(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let request = DeleteEntry::read(context.document()?).map_err(invalid("EntryInvalid"))?;
        require_path_key(context, &request.key)?;
        let deleted = self.0.directory.delete_entry(&request, context.now).await;
        deleted.map_err(problem)?;
        Ok(Answer::xml(
            200,
            delete_response(&context.head, &request.key),
        ))
    }

    pub(super) async fn get_entry_statistics(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let directory = &self.0.directory;
        let key = path_key(context)?;
        let record = directory.entry(key).await.map_err(problem)?;
        let record = record.ok_or_else(entry_not_found)?;
        let of_key = directory.key_statistics(key, context.now).await;
        let tax_id = &record.entry.owner.tax_id_number;
        let of_owner = directory.person_statistics(tax_id, context.now).await;
        let body = entry_statistics_response(
            &context.head,
            key,
            &of_key.map_err(problem)?,
            &of_owner.map_err(problem)?,
            context.now,
        );
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn get_person_statistics(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let tax_id = percent_decoded(context.segment)
            .ok_or_else(|| Problem::bad_request("The tax number cannot be decoded"))?;
        let statistics = self
            .0
            .directory
            .person_statistics(&tax_id, context.now)
            .await;
        let statistics = statistics.map_err(problem)?;
        let body = person_statistics_response(&context.head, &tax_id, &statistics, context.now);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn check_keys(&self, context: &RequestContext<'_>) -> Result<Answer, Problem> {
        let keys = read_check_keys(context.document()?).map_err(invalid("BadRequest"))?;
        let checked = self.0.directory.check_keys(keys).await.map_err(problem)?;
        Ok(Answer::xml(
            200,
            check_keys_response(&context.head, &checked),
        ))
    }
}

fn path_key<'t>(context: &'t RequestContext<'_>) -> Result<&'t str, Problem> {
    context
        .key
        .ok_or_else(|| Problem::bad_request("The path contains no key"))
}

fn require_path_key(context: &RequestContext<'_>, key: &str) -> Result<(), Problem> {
    if path_key(context)? == key {
        Ok(())
    } else {
        Err(Problem::bad_request(
            "The path and the body name different keys",
        ))
    }
}

fn entry_not_found() -> Problem {
    Problem::not_found("Entry associated with given key does not exist")
}
