//! Prices by response status.

/// The highest price of one response.
pub const COST_MAX: u64 = 1_000_000;

/// Prices in tokens: by exact response status, else by class (`4xx`), else a default.
///
/// ```
/// use balde_policy::PriceList;
///
/// let prices = PriceList::new(1).with_class(5, 0).with_status(503, 2);
/// assert_eq!([200, 500, 503].map(|status| prices.cost(status)), [1, 0, 2]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceList {
    default: u64,
    /// By class 1 to 5.
    classes: [Option<u64>; 5],
    statuses: Vec<(u16, u64)>,
    unanswered: Option<u64>,
}

impl PriceList {
    /// Creates a price list with one price for everything. Prices above [`COST_MAX`] are lowered to
    /// it.
    pub fn new(default: u64) -> Self {
        Self {
            default: default.min(COST_MAX),
            classes: [None; 5],
            statuses: Vec::new(),
            unanswered: None,
        }
    }

    /// Sets the price of one status.
    pub fn with_status(mut self, status: u16, cost: u64) -> Self {
        self.statuses.retain(|(other, _)| *other != status);
        self.statuses.push((status, cost.min(COST_MAX)));
        self.statuses.sort_unstable();
        self
    }

    /// Sets the price of all statuses of a class, 1 to 5. Other classes do not exist.
    pub fn with_class(mut self, class: u8, cost: u64) -> Self {
        let place = usize::from(class).checked_sub(1);
        if let Some(price) = place.and_then(|place| self.classes.get_mut(place)) {
            *price = Some(cost.min(COST_MAX));
        }
        self
    }

    /// Sets the price of requests that were never answered.
    pub fn with_unanswered(self, cost: u64) -> Self {
        Self {
            unanswered: Some(cost.min(COST_MAX)),
            ..self
        }
    }

    /// What a response with this status costs.
    pub fn cost(&self, status: u16) -> u64 {
        let exact = self.statuses.iter().find(|(named, _)| *named == status);
        if let Some((_, cost)) = exact {
            return *cost;
        }
        let class = usize::from(status / 100).checked_sub(1);
        let priced = class.and_then(|class| *self.classes.get(class)?);
        priced.unwrap_or(self.default)
    }

    /// What a request that was never answered costs: the price set for that, or the default.
    pub fn unanswered(&self) -> u64 {
        self.unanswered.unwrap_or(self.default)
    }

    /// The highest price of any outcome.
    pub fn highest(&self) -> u64 {
        let listed = self.statuses.iter().map(|(_, cost)| *cost);
        let classes = self.classes.iter().flatten().copied();
        let prices = listed.chain(classes).chain(self.unanswered);
        prices.fold(self.default, u64::max)
    }

    /// The price of everything that is not listed.
    pub fn default_cost(&self) -> u64 {
        self.default
    }

    /// The prices of single statuses, ascending by status.
    pub fn statuses(&self) -> &[(u16, u64)] {
        &self.statuses
    }

    /// The prices of classes, ascending by class.
    pub fn classes(&self) -> impl Iterator<Item = (u8, u64)> {
        let priced = (1..).zip(self.classes);
        priced.filter_map(|(class, cost)| Some((class, cost?)))
    }
}
