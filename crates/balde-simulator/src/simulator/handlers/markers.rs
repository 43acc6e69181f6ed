//! Handlers of fraud markers.

use super::{RequestContext, invalid, problem};
use crate::directory::{LIST_LIMIT_MAX, MarkerFilter};
use crate::simulator::Simulator;
use crate::simulator::answer::Answer;
use crate::simulator::query::{LIST_LIMIT_DEFAULT, Query};
use crate::wire::{
    CancelFraudMarker, CreateFraudMarker, FraudMarkerStatus, Problem, WireEnum,
    fraud_marker_response, list_fraud_markers,
};

/// The most markers that are counted.
const COUNTED_MAX: usize = 10_000;

/// The default of the deprecated `page.itemsPerPage`.
const ITEMS_PER_PAGE_DEFAULT: usize = 10;

impl Simulator {
    pub(super) async fn create_fraud_marker(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let read = CreateFraudMarker::read(context.document()?);
        let request = read.map_err(invalid("FraudMarkerInvalid"))?;
        let created = self.0.directory.create_marker(&request, context.now).await;
        let marker = created.map_err(problem)?;
        let body = fraud_marker_response("CreateFraudMarkerResponse", &context.head, &marker);
        Ok(Answer::xml(201, body))
    }

    pub(super) async fn get_fraud_marker(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let marker = self
            .0
            .directory
            .marker(context.uuid()?)
            .await
            .map_err(problem)?;
        let body = fraud_marker_response("GetFraudMarkerResponse", &context.head, &marker);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn list_fraud_markers(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let query = Query::new(context.query);
        let page = Page::read(&query)?;
        let mut filter = query.filter(vec![context.participant.to_owned()], Vec::new())?;
        // All are read, because the response says how many there are.
        filter.limit = COUNTED_MAX;
        let markers = MarkerFilter {
            tax_id: query.one("TaxIdNumber")?.unwrap_or_default(),
            key: query.one("Key")?,
            status: query.value("Status", FraudMarkerStatus::parse)?,
        };
        let found = self.0.directory.markers(&filter, &markers).await;
        let found = found.map_err(problem)?;
        let total = found.len();
        let listed = found.get(page.skip..).unwrap_or_default();
        let listed = listed.get(..page.limit).unwrap_or(listed);
        let has_more = page.skip + listed.len() < total;
        let body = list_fraud_markers(&context.head, listed, has_more, total);
        Ok(Answer::xml(200, body))
    }

    pub(super) async fn cancel_fraud_marker(
        &self,
        context: &RequestContext<'_>,
    ) -> Result<Answer, Problem> {
        let read = CancelFraudMarker::read(context.document()?);
        let request = read.map_err(invalid("BadRequest"))?;
        context.require_path_id(&request.id)?;
        let cancelled = self.0.directory.cancel_marker(&request, context.now).await;
        let marker = cancelled.map_err(problem)?;
        let body = fraud_marker_response("CancelFraudMarkerResponse", &context.head, &marker);
        Ok(Answer::xml(200, body))
    }
}

/// Which part of a list is asked for: by `Limit`, or by the deprecated numbers of pages.
struct Page {
    skip: usize,
    limit: usize,
}

impl Page {
    fn read(query: &Query<'_>) -> Result<Self, Problem> {
        let number = |name: &str| query.value(name, |text| text.parse::<usize>().ok());
        let (page, items) = (number("page.pageNumber")?, number("page.itemsPerPage")?);
        let limit = query.limit(LIST_LIMIT_DEFAULT)?;
        if [page, items]
            .into_iter()
            .flatten()
            .any(|n| n > LIST_LIMIT_MAX)
        {
            return Err(Problem::bad_request("A page number or size is above 200"));
        }
        if page.is_none() && items.is_none() {
            return Ok(Self { skip: 0, limit });
        }
        let mut size = items.unwrap_or(ITEMS_PER_PAGE_DEFAULT);
        if query.one("Limit")?.is_some() {
            size = size.min(limit);
        }
        let (skip, limit) = (page.unwrap_or(0) * size, size);
        Ok(Self { skip, limit })
    }
}
