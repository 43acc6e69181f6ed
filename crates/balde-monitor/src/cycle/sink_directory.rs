//! The configured sinks and the classes that each serves.

use std::collections::BTreeMap;

use crate::alert::{Event, Routes, SinkClass};
use crate::history::RoutedEvent;

/// The names of the configured sinks by the class they serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkDirectory {
    by_class: BTreeMap<SinkClass, Vec<String>>,
}

impl SinkDirectory {
    /// Adds a sink that serves all of `classes`.
    pub fn with(mut self, sink: &str, classes: impl IntoIterator<Item = SinkClass>) -> Self {
        for class in classes {
            let sinks = self.by_class.entry(class).or_default();
            if !sinks.iter().any(|name| name == sink) {
                sinks.push(sink.to_owned());
            }
        }
        self
    }

    /// Routes an event to sinks. A sink that serves several of the event's classes gets it once, as
    /// the last and most urgent of them.
    pub(crate) fn route(&self, routes: &Routes, event: Event) -> RoutedEvent {
        let classes: Vec<SinkClass> = routes.sinks(&event).into_iter().collect();
        let mut sinks: BTreeMap<&str, SinkClass> = BTreeMap::new();
        for class in &classes {
            for sink in self.by_class.get(class).into_iter().flatten() {
                sinks.insert(sink, *class);
            }
        }
        routed(event, classes, sinks)
    }

    /// Routes an event to every sink, whatever the routes say.
    pub(crate) fn route_to_all(&self, event: Event) -> RoutedEvent {
        let mut sinks: BTreeMap<&str, SinkClass> = BTreeMap::new();
        for (class, names) in &self.by_class {
            // A sink that can page urgently or not does not page urgently for this.
            let is_better =
                |known: Option<&SinkClass>| known.is_none() || *class != SinkClass::PageUrgent;
            for name in names {
                if is_better(sinks.get(name.as_str())) {
                    sinks.insert(name, *class);
                }
            }
        }
        let classes = self.by_class.keys().copied().collect();
        routed(event, classes, sinks)
    }
}

fn routed(event: Event, classes: Vec<SinkClass>, sinks: BTreeMap<&str, SinkClass>) -> RoutedEvent {
    let sinks = sinks.into_iter();
    RoutedEvent {
        sinks: sinks
            .map(|(sink, class)| (sink.to_owned(), class))
            .collect(),
        event,
        classes,
    }
}
