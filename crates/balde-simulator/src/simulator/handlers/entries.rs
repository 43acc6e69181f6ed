//! Handlers of entries, keys and statistics.

use balde_policy::percent_decoded;

use super::{RequestContext, invalid, problem};
use crate::directory::EntryRecord;
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::simulator::query::Query;
use crate::wire::{
    ApiVersion, CreateEntry, DeleteEntry, KeyStatistics, OwnerType, PersonStatistics, Problem,
    Statistics, UpdateEntry, canonical_key, check_keys_response, delete_response, entry_response,
    entry_statistics_response, entry_with_counters_response, entry_with_statistics_response,
    owner_statistics_response, person_statistics_response, read_check_keys,
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
        let errors = [
            Some("EntryBlocked"),
            Some("EntryWithFraudRelatedRestriction"),
            None,
            None,
        ];
        self.check_restrictions(Some(key), None, errors)?;
        if self.0.version == ApiVersion::V1 {
            let statistics = self.0.directory.entry_counters(&record.entry, context.now);
            let statistics = statistics.await.map_err(problem)?;
            let body = entry_with_counters_response(&context.head, record.xml(), &statistics);
            return Ok(self.cached_by_owner(&record, body));
        }
        let has_query = !context.query.is_empty();
        let query = Query::new(context.query);
        let body = if has_query && query.flag("IncludeStatistics")? == Some(true) {
            let (of_key, of_owner) = self.statistics(context, key, Some(&*record)).await?;
            entry_with_statistics_response(&context.head, record.xml(), &of_owner, &of_key)
        } else {
            entry_response("GetEntryResponse", &context.head, record.xml())
        };
        Ok(self.cached_by_owner(&record, body))
    }

    /// The response with an entry. That of a company may be cached.
    fn cached_by_owner(&self, record: &EntryRecord, body: String) -> Answer {
        let is_company = record.entry.owner.owner_type == OwnerType::LegalPerson;
        let max_age = self.0.table.settings().cache_max_age.as_secs();
        Answer::xml(200, body).cache_for(is_company.then_some(max_age))
    }

    /// The statistics of a key and of its owner, if it has one.
    async fn statistics(
        &self,
        context: &RequestContext<'_>,
        key: &str,
        record: Option<&EntryRecord>,
    ) -> Result<(KeyStatistics, PersonStatistics), Problem> {
        let directory = &self.0.directory;
        let of_key = directory.key_statistics(key, context.now).await;
        let of_key = of_key.map_err(problem)?;
        let of_owner = match record {
            Some(record) => {
                let tax_id = &record.entry.owner.tax_id_number;
                let found = directory.person_statistics(tax_id, context.now).await;
                found.map_err(problem)?
            }
            None => PersonStatistics {
                common: Statistics::none(context.now),
                registered_accounts: 0,
            },
        };
        Ok((of_key, of_owner))
    }

    pub(super) async fn create_entry(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let request = CreateEntry::read(context.document()?).map_err(invalid("EntryInvalid"))?;
        let errors = [
            None,
            None,
            Some("TaxIdNumberBlocked"),
            Some("UserOrAccountWithFraudRelatedRestriction"),
        ];
        let tax_id = &request.owner.tax_id_number;
        self.check_restrictions(None, Some(tax_id), errors)?;
        let created = self.0.directory.create_entry(&request, context.now).await;
        let record = created.map_err(problem)?;
        let body = entry_response("CreateEntryResponse", &context.head, record.xml());
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn update_entry(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let read = UpdateEntry::read(context.document()?);
        let mut request = read.map_err(invalid("EntryInvalid"))?;
        require_path_key(context, &request.key)?;
        request.participant = Some(context.participant.to_owned());
        let found = self.0.directory.entry(&request.key).await;
        let owner = found.map_err(problem)?;
        let owner = owner.map(|record| record.entry.owner.tax_id_number.clone());
        let errors = [Some("EntryBlocked"), None, Some("TaxIdNumberBlocked"), None];
        self.check_restrictions(Some(&request.key), owner.as_deref(), errors)?;
        let updated = self.0.directory.update_entry(&request, context.now).await;
        let record = updated.map_err(problem)?;
        let body = entry_response("UpdateEntryResponse", &context.head, record.xml());
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn delete_entry(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let request = DeleteEntry::read(context.document()?).map_err(invalid("BadRequest"))?;
        require_path_key(context, &request.key)?;
        let errors = [Some("EntryBlocked"), None, None, None];
        self.check_restrictions(Some(&request.key), None, errors)?;
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
        if record.is_none() && !self.0.table.settings().statistics_of_unregistered_keys {
            return Err(entry_not_found());
        }
        let (of_key, of_owner) = self.statistics(context, key, record.as_deref()).await?;
        let body = entry_statistics_response(&context.head, key, &of_key, &of_owner);
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
        let body = person_statistics_response(&context.head, &tax_id, &statistics);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn get_owner_statistics(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let tax_id = percent_decoded(context.segment)
            .ok_or_else(|| Problem::bad_request("The tax number cannot be decoded"))?;
        let counters = self.0.directory.owner_counters(&tax_id, context.now).await;
        let counters = counters.map_err(problem)?;
        let body = owner_statistics_response(&context.head, &tax_id, &counters);
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
    if canonical_key(path_key(context)?) == canonical_key(key) {
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
