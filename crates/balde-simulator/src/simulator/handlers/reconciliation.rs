//! Handlers of content ids, their files and events, and event notifications.

use super::{RequestContext, invalid, problem};
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::simulator::query::Query;
use crate::wire::{
    CidSetFile, CreateCidSetFile, CreateSyncVerification, FileStatus, Problem, Timestamp,
    cid_set_events_response, cid_set_file_response, entry_by_cid_response,
    event_notifications_response, is_cid, sync_verification_response,
};
use balde_dict::KeyType;

/// The default number of events in a list.
const CID_EVENTS_LIMIT_DEFAULT: usize = 100;

impl Simulator {
    pub(super) async fn create_sync_verification(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let read = CreateSyncVerification::read(context.document()?);
        let request = read.map_err(invalid("BadRequest"))?;
        let directory = &self.0.directory;
        let verifier = directory
            .sync_verifier(&request.participant, request.key_type)
            .await;
        let is_same = verifier
            .map_err(problem)?
            .eq_ignore_ascii_case(&request.verifier);
        let id = directory.next_number().await.map_err(problem)?;
        let body = sync_verification_response(&context.head, &request, id, is_same);
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn create_cid_set_file(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let read = CreateCidSetFile::read(context.document()?);
        let request = read.map_err(invalid("BadRequest"))?;
        let directory = &self.0.directory;
        let created = directory
            .create_cid_file(&request.participant, request.key_type, context.now)
            .await;
        let file = created.map_err(problem)?;
        let name = "CreateCidSetFileResponse";
        let body = cid_set_file_response(name, &context.head, &file, FileStatus::Requested, "");
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn get_cid_set_file(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let found = self
            .0
            .directory
            .cid_file(context.participant, context.segment)
            .await;
        let file = found.map_err(problem)?;
        let url = self.file_url(context, &file);
        let status = self.0.directory.cid_file_status(&file, context.now);
        let name = "GetCidSetFileResponse";
        let body = cid_set_file_response(name, &context.head, &file, status, &url);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn list_cid_set_events(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let query = Query::new(context.query);
        let key_type = query.value("KeyType", KeyType::parse)?;
        let key_type =
            key_type.ok_or_else(|| Problem::bad_request("Missing request parameter 'KeyType'"))?;
        let period = period(&query, context.now)?;
        let limit = query.limit(CID_EVENTS_LIMIT_DEFAULT)?;
        let directory = &self.0.directory;
        let found = directory
            .cid_events(context.participant, key_type, period, limit)
            .await;
        let body = cid_set_events_response(&context.head, &found.map_err(problem)?);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn get_entry_by_cid(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        if !is_cid(context.segment) {
            return Err(Problem::bad_request(
                "The id in the path is not 64 hexadecimal digits",
            ));
        }
        let found = self
            .0
            .directory
            .entry_by_cid(context.participant, context.segment)
            .await;
        let record = found.map_err(problem)?;
        let request_id = &record.entry.request_id;
        let body = entry_by_cid_response(&context.head, &record.cid(), record.xml(), request_id);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn list_event_notifications(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let query = Query::new(context.query);
        let participants = self.listed_participants(context, &query)?;
        let after = query.value("Cursor", |text| text.parse().ok())?;
        let directory = &self.0.directory;
        let found = directory
            .notifications(&participants, after.unwrap_or(0), context.now)
            .await;
        let (events, next) = found.map_err(problem)?;
        let next = next.map(|id| id.to_string());
        let body = event_notifications_response(&context.head, &events, next.as_deref());
        Ok(Answer::xml(200, body))
    }

    /// The URL of the file, which is one of the inspection endpoints.
    fn file_url(&self, context: &RequestContext<'_>, file: &CidSetFile) -> String {
        let scheme = if self.is_tls() { "https" } else { "http" };
        let host = context.host.and_then(|host| host.to_str().ok());
        let host = host.unwrap_or("localhost");
        format!("{scheme}://{host}/sim/cids/files/{}", file.id)
    }
}

/// The period of a list of events. By default, from the Unix epoch to now.
fn period(query: &Query<'_>, now: Timestamp) -> Result<(Timestamp, Timestamp), Problem> {
    let start = query.timestamp("StartTime")?.unwrap_or_default();
    let end = query.timestamp("EndTime")?.unwrap_or(now);
    Ok((start, end))
}
